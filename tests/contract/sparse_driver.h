// SPDX-License-Identifier: Apache-2.0
// Adds sparse arrays to the simulated driver, which has none. An array is a number. Memory that is mapped into it also gets a mapping
// on the simulated GPU, which counts the memory until the array is unmapped or destroyed. Each array has one part.
#ifndef GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_
#define GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_

#include "driver/driver.h"
#include "driver/table.h"

namespace gpushare::books {

constexpr unsigned kSparseArray = 0x40;  // CUDA_ARRAY3D_SPARSE, newer than the oldest header

// The simulated driver, which stays loaded until the program ends; null if it cannot be opened.
const driver::Driver* SimulatedDriver();
// The driver that families of allocations use. It is the simulated one unless a test sets another at its beginning.
const driver::Driver& FamilyDriver();
void SetFamilyDriver(const driver::Driver& driver);
// The simulated driver's table with sparse arrays added.
const driver::Table& SparseTable();
// Forgets all sparse arrays. Call it after a restart of the simulated GPU.
void ForgetSparseArrays();

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_SPARSE_DRIVER_H_
