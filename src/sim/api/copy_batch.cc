// SPDX-License-Identifier: Apache-2.0
// Batches of copies. Each becomes a copy in the stream: the API allows this order among others.
#include <vector>

#include "sim/api/api.h"
#include "sim/stream/box.h"
#include "sim/stream/transfer.h"

#if CUDA_VERSION < 12080
// As declared in the headers since 12.8.
typedef int CUmemcpySrcAccessOrder;
enum { CU_MEMCPY_SRC_ACCESS_ORDER_STREAM = 1, CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL = 2 };
enum { CU_MEMCPY_SRC_ACCESS_ORDER_ANY = 3 };
enum { CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE = 1 };
enum { CU_MEMCPY_OPERAND_TYPE_POINTER = 1, CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 };
struct CUmemcpyAttributes {
  CUmemcpySrcAccessOrder srcAccessOrder;
  CUmemLocation srcLocHint, dstLocHint;
  unsigned flags;
};
struct CUmemcpy3DOperand {
  int type;
  union {
    struct {
      CUdeviceptr ptr;
      size_t rowLength, layerHeight;
      CUmemLocation locHint;
    } ptr;
    struct {
      CUarray array;
      struct {
        size_t x, y, z;
      } offset;
    } array;
  } op;
};
struct CUDA_MEMCPY3D_BATCH_OP {
  CUmemcpy3DOperand src, dst;
  struct {
    size_t width, height, depth;
  } extent;
  CUmemcpySrcAccessOrder srcAccessOrder;
  unsigned flags;
};
#endif

namespace gpushare::sim {
namespace {

struct OneCopy {
  CopyWork work;
  Blocking blocking;
};

// When the source may be read. If it must be read within the call, the caller waits for the copy.
CUresult ReadOrder(CUmemcpySrcAccessOrder order, unsigned flags, Blocking* blocking) {
  if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
      (flags & ~static_cast<unsigned>(CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *blocking = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL ? Blocking::kYes : Blocking::kNo;
  return CUDA_SUCCESS;
}

// Checks all copies before submitting any: if one is invalid, none is made.
CUresult SubmitAll(const ThreadContext& thread, std::vector<OneCopy>* copies, size_t* failed,
                   CUstream stream, NullStream null) {
  for (size_t i = 0; i < copies->size(); ++i) {
    CopyWork& work = (*copies)[i].work;
    if (work.empty()) continue;
    const CUresult result = CheckCopy(&work);
    if (result == CUDA_SUCCESS) continue;
    *failed = i;
    return result;
  }
  for (const OneCopy& copy : *copies) {
    const CUresult result = SubmitCopy(thread, copy.work, stream, null, copy.blocking);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

bool IsLegacy(CUstream stream, NullStream null) {
  return stream == CU_STREAM_LEGACY || (stream == nullptr && null == NullStream::kLegacy);
}

// `failed`: the index of the invalid copy; SIZE_MAX: no particular one.
CUresult CopyLinear(const ThreadContext& thread, const CUdeviceptr* to, const CUdeviceptr* from,
                    const size_t* sizes, size_t count, const CUmemcpyAttributes* attributes,
                    const size_t* begins, size_t kinds, size_t* failed, CUstream stream,
                    NullStream null) {
  *failed = SIZE_MAX;
  if (to == nullptr || from == nullptr || sizes == nullptr || attributes == nullptr ||
      begins == nullptr || count == 0 || kinds == 0 || kinds > count || begins[0] != 0 ||
      IsLegacy(stream, null)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<OneCopy> copies(count);
  for (size_t kind = 0; kind < kinds; ++kind) {
    const size_t begin = begins[kind], end = kind + 1 < kinds ? begins[kind + 1] : count;
    if (begin >= end || end > count) return CUDA_ERROR_INVALID_VALUE;
    Blocking blocking;
    const CUresult result =
        ReadOrder(attributes[kind].srcAccessOrder, attributes[kind].flags, &blocking);
    if (result != CUDA_SUCCESS) return result;
    for (size_t i = begin; i < end; ++i) {
      CopyWork& work = copies[i].work;
      work = {};
      work.to = to[i];
      work.from = from[i];
      work.bytes = sizes[i];
      work.rows = 1;
      copies[i].blocking = blocking;
    }
  }
  return SubmitAll(thread, &copies, failed, stream, null);
}

uint64_t ElementOf(const CUmemcpy3DOperand& operand) {
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_ARRAY) return 0;
  const Array* const array = state().arrays.Find(operand.op.array.array);
  return array == nullptr ? 0 : array->shape.element;
}

// The operand's extents are in elements.
CUresult ReadEnd(const CUmemcpy3DOperand& operand, const CUDA_MEMCPY3D_BATCH_OP& copy,
                 uint64_t element, BoxEnd* end) {
  *end = {};
  switch (static_cast<int>(operand.type)) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER: {
      const auto& memory = operand.op.ptr;
      if ((memory.rowLength != 0 && memory.rowLength < copy.extent.width) ||
          (memory.layerHeight != 0 && memory.layerHeight < copy.extent.height) ||
          __builtin_mul_overflow(memory.rowLength, element, &end->pitch)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      end->type = CU_MEMORYTYPE_UNIFIED;
      end->device = memory.ptr;
      end->height = memory.layerHeight;
      return CUDA_SUCCESS;
    }
    case CU_MEMCPY_OPERAND_TYPE_ARRAY: {
      const auto& array = operand.op.array;
      end->type = CU_MEMORYTYPE_ARRAY;
      end->array = array.array;
      end->y = array.offset.y;
      end->z = array.offset.z;
      return __builtin_mul_overflow(array.offset.x, element, &end->x) ? CUDA_ERROR_INVALID_VALUE
                                                                      : CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult ReadBox(const CUDA_MEMCPY3D_BATCH_OP& operation, OneCopy* copy) {
  const auto& extent = operation.extent;
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = ReadOrder(operation.srcAccessOrder, operation.flags, &copy->blocking);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t to_element = ElementOf(operation.dst), from_element = ElementOf(operation.src);
  if (to_element != 0 && from_element != 0 && to_element != from_element) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Without an array, the extents are in bytes.
  const uint64_t element = to_element != 0 ? to_element : from_element != 0 ? from_element : 1;
  BoxEnd to, from;
  result = ReadEnd(operation.dst, operation, element, &to);
  if (result == CUDA_SUCCESS) result = ReadEnd(operation.src, operation, element, &from);
  size_t width;
  if (result != CUDA_SUCCESS || __builtin_mul_overflow(extent.width, element, &width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return FillBox(to, from, width, extent.height, extent.depth, Pitches::kLimited, &copy->work);
}

CUresult CopyBoxes(const ThreadContext& thread, size_t count,
                   const CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                   unsigned long long flags, CUstream stream, NullStream null) {
  *failed = SIZE_MAX;
  if (operations == nullptr || count == 0 || flags != 0 || IsLegacy(stream, null)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<OneCopy> copies(count);
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = ReadBox(operations[i], &copies[i]);
    if (result == CUDA_SUCCESS) continue;
    *failed = i;
    return result;
  }
  return SubmitAll(thread, &copies, failed, stream, null);
}

// The newer ABI does not report the index, and callers of the older one may pass null.
struct Failed {
  explicit Failed(size_t* callers = nullptr) : where(callers != nullptr ? callers : &unread) {}
  size_t unread;
  size_t* where;
};

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Not every header declares them under these names.
#define DECLARE_COPY_BATCH(suffix)                                                                \
  extern "C" {                                                                                    \
  CUresult CUDAAPI cuMemcpyBatchAsync##suffix(CUdeviceptr*, CUdeviceptr*, size_t*, size_t,        \
                                              CUmemcpyAttributes*, size_t*, size_t, size_t*,      \
                                              CUstream);                                          \
  CUresult CUDAAPI cuMemcpyBatchAsync_v2##suffix(CUdeviceptr*, CUdeviceptr*, size_t*, size_t,     \
                                                 CUmemcpyAttributes*, size_t*, size_t, CUstream); \
  CUresult CUDAAPI cuMemcpy3DBatchAsync##suffix(size_t, CUDA_MEMCPY3D_BATCH_OP*, size_t*,         \
                                                unsigned long long, CUstream);                    \
  CUresult CUDAAPI cuMemcpy3DBatchAsync_v2##suffix(size_t, CUDA_MEMCPY3D_BATCH_OP*,               \
                                                   unsigned long long, CUstream);                 \
  }                                                                                               \
  static_assert(true)
DECLARE_COPY_BATCH();
DECLARE_COPY_BATCH(_ptsz);

SIM_STREAM_API(cuMemcpyBatchAsync, _ptsz, kCall,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count,
                CUmemcpyAttributes* attributes, size_t* begins, size_t kinds, size_t* failed,
                CUstream stream),
               CopyLinear(scope.thread(), to, from, sizes, count, attributes, begins, kinds,
                          Failed(failed).where, stream, null));
SIM_STREAM_API(cuMemcpyBatchAsync_v2, _ptsz, kCall,
               (CUdeviceptr * to, CUdeviceptr* from, size_t* sizes, size_t count,
                CUmemcpyAttributes* attributes, size_t* begins, size_t kinds, CUstream stream),
               CopyLinear(scope.thread(), to, from, sizes, count, attributes, begins, kinds,
                          Failed().where, stream, null));
SIM_STREAM_API(cuMemcpy3DBatchAsync, _ptsz, kCall,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, size_t* failed,
                unsigned long long flags, CUstream stream),
               CopyBoxes(scope.thread(), count, operations, Failed(failed).where, flags, stream,
                         null));
SIM_STREAM_API(cuMemcpy3DBatchAsync_v2, _ptsz, kCall,
               (size_t count, CUDA_MEMCPY3D_BATCH_OP* operations, unsigned long long flags,
                CUstream stream),
               CopyBoxes(scope.thread(), count, operations, Failed().where, flags, stream, null));
