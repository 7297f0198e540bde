// SPDX-License-Identifier: Apache-2.0
// Linear copies, and sets.
#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/stream/transfer.h"

namespace gpushare::sim {
namespace {

CUresult Linear(const ThreadContext& thread, uint64_t to, uint64_t from, size_t bytes,
                CUstream stream, NullStream null, Blocking blocking) {
  CopyWork work{};
  work.to = to;
  work.from = from;
  work.bytes = bytes;
  work.rows = 1;
  return SubmitCopy(thread, work, stream, null, blocking);
}

// The typed forms: the side that must be a device address. Pinned host memory has one.
bool IsMapped(uint64_t address) { return IsDeviceAddress(address) || !IsPageable(address); }

CUresult HostToDevice(const ThreadContext& thread, CUdeviceptr to, const void* from, size_t bytes,
                      CUstream stream, NullStream null, Blocking blocking) {
  if (bytes > 0 && !IsMapped(to)) return CUDA_ERROR_INVALID_VALUE;
  return Linear(thread, to, reinterpret_cast<uint64_t>(from), bytes, stream, null, blocking);
}

CUresult DeviceToHost(const ThreadContext& thread, void* to, CUdeviceptr from, size_t bytes,
                      CUstream stream, NullStream null, Blocking blocking) {
  if (bytes > 0 && !IsMapped(from)) return CUDA_ERROR_INVALID_VALUE;
  return Linear(thread, reinterpret_cast<uint64_t>(to), from, bytes, stream, null, blocking);
}

CUresult DeviceToDevice(const ThreadContext& thread, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                        CUstream stream, NullStream null, Blocking blocking) {
  if (bytes > 0 && (!IsMapped(to) || !IsMapped(from))) return CUDA_ERROR_INVALID_VALUE;
  return Linear(thread, to, from, bytes, stream, null, blocking);
}

CUresult SetRows(const ThreadContext& thread, CUdeviceptr to, size_t pitch, uint32_t value,
                 uint8_t element, size_t width, size_t rows, CUstream stream, NullStream null,
                 Blocking blocking) {
  if (blocking == Blocking::kYes) {
    const CUresult result = CheckUnsafe(thread);
    if (result != CUDA_SUCCESS) return result;
  }
  return SubmitSet({to, width, rows, pitch, value, element}, stream, null);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_STREAM_API(cuMemcpy, _ptds, kCall, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               Linear(scope.thread(), to, from, bytes, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpyAsync, _ptsz, kCall,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               Linear(scope.thread(), to, from, bytes, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemcpyHtoD_v2, _ptds, kCall, (CUdeviceptr to, const void* from, size_t bytes),
               HostToDevice(scope.thread(), to, from, bytes, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpyHtoDAsync_v2, _ptsz, kCall,
               (CUdeviceptr to, const void* from, size_t bytes, CUstream stream),
               HostToDevice(scope.thread(), to, from, bytes, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemcpyDtoH_v2, _ptds, kCall, (void* to, CUdeviceptr from, size_t bytes),
               DeviceToHost(scope.thread(), to, from, bytes, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpyDtoHAsync_v2, _ptsz, kCall,
               (void* to, CUdeviceptr from, size_t bytes, CUstream stream),
               DeviceToHost(scope.thread(), to, from, bytes, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemcpyDtoD_v2, _ptds, kCall, (CUdeviceptr to, CUdeviceptr from, size_t bytes),
               DeviceToDevice(scope.thread(), to, from, bytes, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemcpyDtoDAsync_v2, _ptsz, kCall,
               (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
               DeviceToDevice(scope.thread(), to, from, bytes, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemsetD8_v2, _ptds, kCall, (CUdeviceptr to, unsigned char value, size_t n),
               SetRows(scope.thread(), to, 0, value, 1, n, 1, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemsetD16_v2, _ptds, kCall, (CUdeviceptr to, unsigned short value, size_t n),
               SetRows(scope.thread(), to, 0, value, 2, n, 1, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemsetD32_v2, _ptds, kCall, (CUdeviceptr to, unsigned value, size_t n),
               SetRows(scope.thread(), to, 0, value, 4, n, 1, nullptr, null, Blocking::kYes));
SIM_STREAM_API(cuMemsetD8Async, _ptsz, kCall,
               (CUdeviceptr to, unsigned char value, size_t n, CUstream stream),
               SetRows(scope.thread(), to, 0, value, 1, n, 1, stream, null, Blocking::kNo));
SIM_STREAM_API(cuMemsetD16Async, _ptsz, kCall,
               (CUdeviceptr to, unsigned short value, size_t n, CUstream stream),
               SetRows(scope.thread(), to, 0, value, 2, n, 1, stream, null, Blocking::kNo));
SIM_STREAM_API(cuMemsetD32Async, _ptsz, kCall,
               (CUdeviceptr to, unsigned value, size_t n, CUstream stream),
               SetRows(scope.thread(), to, 0, value, 4, n, 1, stream, null, Blocking::kNo));

SIM_STREAM_API(cuMemsetD2D8_v2, _ptds, kCall,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),
               SetRows(scope.thread(), to, pitch, value, 1, width, height, nullptr, null,
                       Blocking::kYes));
SIM_STREAM_API(cuMemsetD2D16_v2, _ptds, kCall,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),
               SetRows(scope.thread(), to, pitch, value, 2, width, height, nullptr, null,
                       Blocking::kYes));
SIM_STREAM_API(cuMemsetD2D32_v2, _ptds, kCall,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
               SetRows(scope.thread(), to, pitch, value, 4, width, height, nullptr, null,
                       Blocking::kYes));
SIM_STREAM_API(cuMemsetD2D8Async, _ptsz, kCall,
               (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height,
                CUstream stream),
               SetRows(scope.thread(), to, pitch, value, 1, width, height, stream, null,
                       Blocking::kNo));
SIM_STREAM_API(cuMemsetD2D16Async, _ptsz, kCall,
               (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height,
                CUstream stream),
               SetRows(scope.thread(), to, pitch, value, 2, width, height, stream, null,
                       Blocking::kNo));
SIM_STREAM_API(cuMemsetD2D32Async, _ptsz, kCall,
               (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height,
                CUstream stream),
               SetRows(scope.thread(), to, pitch, value, 4, width, height, stream, null,
                       Blocking::kNo));
