// SPDX-License-Identifier: Apache-2.0
// What an array takes of the device. The driver tells it only of arrays that hold nothing (those whose memory
// is mapped later), so it is computed.
#ifndef GPUSHARE_BOOKS_ARRAY_BYTES_H_
#define GPUSHARE_BOOKS_ARRAY_BYTES_H_

#include <cuda.h>

#include <cstdint>

namespace gpushare::books {

// The elements, each level rounded up to 512 bytes. Of formats that are not known here 16 bytes an element. 0 for
// arrays without memory of their own (sparse, deferred mapping). UINT64_MAX: more than there are addresses.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels = 1);

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_ARRAY_BYTES_H_
