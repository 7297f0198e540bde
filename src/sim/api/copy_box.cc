// SPDX-License-Identifier: Apache-2.0
// Copies of boxes, to and from arrays, and between contexts.
#include "sim/api/api.h"
#include "sim/stream/box.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

template <typename Copy>
CUresult CopyBox(const ThreadContext& thread, const Copy* copy, CUstream stream, NullStream null,
                 Blocking blocking) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work;
  const CUresult result = FillBox(*copy, &work);
  if (result != CUDA_SUCCESS) return result;
  return SubmitCopy(thread, work, stream, null, blocking);
}

CUresult CopyRows(const ThreadContext& thread, const CUDA_MEMCPY2D* copy, Pitches pitches,
                  CUstream stream, NullStream null, Blocking blocking) {
  if (copy == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work;
  const CUresult result = FillBox(*copy, pitches, &work);
  if (result != CUDA_SUCCESS) return result;
  return SubmitCopy(thread, work, stream, null, blocking);
}

BoxEnd OfArray(CUarray array, size_t offset) {
  BoxEnd end{};
  end.type = CU_MEMORYTYPE_ARRAY;
  end.array = array;
  end.x = offset;
  return end;
}

BoxEnd OfDevice(CUdeviceptr pointer) {
  BoxEnd end{};
  end.type = CU_MEMORYTYPE_DEVICE;
  end.device = pointer;
  return end;
}

BoxEnd OfHost(const void* pointer) {
  BoxEnd end{};
  end.type = CU_MEMORYTYPE_HOST;
  end.host = pointer;
  return end;
}

// The copies of one row, between arrays of one dimension and memory.
CUresult CopyLine(const ThreadContext& thread, const BoxEnd& to, const BoxEnd& from, size_t bytes,
                  CUstream stream, NullStream null, Blocking blocking) {
  for (const BoxEnd* end : {&to, &from}) {
    if (end->type != CU_MEMORYTYPE_ARRAY) continue;
    const Array* const array = state().arrays.Find(end->array);
    if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (array->shape.height != 0 || array->shape.depth != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  CopyWork work;
  const CUresult result = FillBox(to, from, bytes, 1, 1, Pitches::kAny, &work);
  if (result != CUDA_SUCCESS) return result;
  return SubmitCopy(thread, work, stream, null, blocking);
}

CUresult CopyPeer(const ThreadContext& thread, CUdeviceptr to, CUcontext to_context,
                  CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream,
                  NullStream null, Blocking blocking) {
  if (FindContext(to_context) == nullptr || FindContext(from_context) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  CopyWork work;
  const CUresult result = FillBox(OfDevice(to), OfDevice(from), bytes, 1, 1, Pitches::kAny, &work);
  if (result != CUDA_SUCCESS) return result;
  return SubmitCopy(thread, work, stream, null, blocking);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_STREAM_API(cuMemcpy2D_v2, _ptds, kCall, (const CUDA_MEMCPY2D* copy),
               CopyRows(scope.thread(), copy, Pitches::kLimited, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpy2DUnaligned_v2, _ptds, kCall, (const CUDA_MEMCPY2D* copy),
               CopyRows(scope.thread(), copy, Pitches::kAny, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpy2DAsync_v2, _ptsz, kCall, (const CUDA_MEMCPY2D* copy, CUstream stream),
               CopyRows(scope.thread(), copy, Pitches::kLimited, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemcpy3D_v2, _ptds, kCall, (const CUDA_MEMCPY3D* copy),
               CopyBox(scope.thread(), copy, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpy3DAsync_v2, _ptsz, kCall, (const CUDA_MEMCPY3D* copy, CUstream stream),
               CopyBox(scope.thread(), copy, stream, null, Blocking::kNo));
SIM_STREAM_API(cuMemcpy3DPeer, _ptds, kCall, (const CUDA_MEMCPY3D_PEER* copy),
               CopyBox(scope.thread(), copy, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpy3DPeerAsync, _ptsz, kCall, (const CUDA_MEMCPY3D_PEER* copy, CUstream stream),
               CopyBox(scope.thread(), copy, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemcpyPeer, _ptds, kCall,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t bytes),
               CopyPeer(scope.thread(), to, to_context, from, from_context, bytes, nullptr, null,
                        Blocking::kYes));
SIM_STREAM_API(cuMemcpyPeerAsync, _ptsz, kCall,
               (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                size_t bytes, CUstream stream),
               CopyPeer(scope.thread(), to, to_context, from, from_context, bytes, stream, null,
                        Blocking::kNo));

SIM_STREAM_API(cuMemcpyDtoA_v2, _ptds, kCall,
               (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
               CopyLine(scope.thread(), OfArray(to, offset), OfDevice(from), bytes, nullptr, null,
                        Blocking::kYes));
SIM_STREAM_API(cuMemcpyAtoD_v2, _ptds, kCall,
               (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
               CopyLine(scope.thread(), OfDevice(to), OfArray(from, offset), bytes, nullptr, null,
                        Blocking::kYes));
SIM_STREAM_API(cuMemcpyHtoA_v2, _ptds, kCall,
               (CUarray to, size_t offset, const void* from, size_t bytes),
               CopyLine(scope.thread(), OfArray(to, offset), OfHost(from), bytes, nullptr, null,
                        Blocking::kYes));
SIM_STREAM_API(cuMemcpyAtoH_v2, _ptds, kCall, (void* to, CUarray from, size_t offset, size_t bytes),
               CopyLine(scope.thread(), OfHost(to), OfArray(from, offset), bytes, nullptr, null,
                        Blocking::kYes));
SIM_STREAM_API(cuMemcpyAtoA_v2, _ptds, kCall,
               (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
               CopyLine(scope.thread(), OfArray(to, to_offset), OfArray(from, from_offset), bytes,
                        nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpyHtoAAsync_v2, _ptsz, kCall,
               (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream),
               CopyLine(scope.thread(), OfArray(to, offset), OfHost(from), bytes, stream, null,
                        Blocking::kNo));
SIM_STREAM_API(cuMemcpyAtoHAsync_v2, _ptsz, kCall,
               (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream),
               CopyLine(scope.thread(), OfHost(to), OfArray(from, offset), bytes, stream, null,
                        Blocking::kNo));
