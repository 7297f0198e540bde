// SPDX-License-Identifier: Apache-2.0
// The device memory that an array takes. The driver tells it only for arrays without memory of their own (whose memory is
// mapped later), so it is computed.
#ifndef GPUSHARE_BOOKS_ARRAY_BYTES_H_
#define GPUSHARE_BOOKS_ARRAY_BYTES_H_

#include <cuda.h>

#include <cstdint>

namespace gpushare::books {

// The size of all elements, with each level rounded up to 512 bytes. An element of an unknown format counts as 16 bytes. 0 for
// arrays without memory of their own (sparse, deferred mapping). UINT64_MAX if the size exceeds the address space.
uint64_t ArrayBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor, unsigned levels = 1);

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_ARRAY_BYTES_H_
