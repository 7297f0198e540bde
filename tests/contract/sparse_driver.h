// SPDX-License-Identifier: Apache-2.0
// A driver with sparse arrays, which the simulated one has none of: an array is a number, and what is mapped into it has
// a mapping on the GPU, which counts it until the array is unmapped or gone. One part an array.
#ifndef GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_
#define GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_

#include "driver/driver.h"
#include "driver/table.h"

namespace gpushare::books {

constexpr unsigned kSparseArray = 0x40;  // CUDA_ARRAY3D_SPARSE, newer than the oldest header

// It stays loaded; null: there is none.
const driver::Driver* SimulatedDriver();
// What the families of allocations are taken from, the simulated one unless a test says another at its begin.
const driver::Driver& FamilyDriver();
void SetFamilyDriver(const driver::Driver& driver);
// Its table with sparse arrays.
const driver::Table& SparseTable();
// After a restart of the simulated GPU: there is no array.
void ForgetSparseArrays();

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_
