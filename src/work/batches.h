// SPDX-License-Identifier: Apache-2.0
// The parts of a batch's structures that are read here. They mirror types that older CUDA headers lack.
#ifndef GPUSHARE_WORK_BATCHES_H_
#define GPUSHARE_WORK_BATCHES_H_

#include <cuda.h>

#include <cstddef>

namespace gpushare::work {

// CUmemcpy3DOperand, since CUDA 12.8.
struct BatchOperand {
  static constexpr int kPointer = 1;
  int type;
  union {
    struct {
      CUdeviceptr pointer;
      size_t row_length, layer_height;
      CUmemLocation location;
    } pointer;
    struct {
      CUarray array;
      size_t x, y, z;
    } array;
  };
};
// CUDA_MEMCPY3D_BATCH_OP.
struct BatchBox {
  BatchOperand from, to;
  size_t width, height, depth;
  int order;
  unsigned flags;
};
// CUmemDecompressParams, since CUDA 12.6.
struct Decompression {
  size_t from_bytes, to_bytes;
  void* actual_bytes;
  const void* from;
  void* to;
  int algorithm;
  unsigned char padding[20];
};

#if CUDA_VERSION >= 12080
static_assert(sizeof(BatchBox) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
static_assert(offsetof(BatchBox, to) == offsetof(CUDA_MEMCPY3D_BATCH_OP, dst));
static_assert(offsetof(BatchBox, width) == offsetof(CUDA_MEMCPY3D_BATCH_OP, extent));
static_assert(offsetof(BatchOperand, pointer) == offsetof(CUmemcpy3DOperand, op));
static_assert(BatchOperand::kPointer == CU_MEMCPY_OPERAND_TYPE_POINTER);
static_assert(sizeof(Decompression) == sizeof(CUmemDecompressParams));
static_assert(offsetof(Decompression, to_bytes) == offsetof(CUmemDecompressParams, dstNumBytes));
#endif

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_BATCHES_H_
