// SPDX-License-Identifier: Apache-2.0
// External memory. A memfd stands for the exporter's memory: the buffers show its bytes.
#include <sys/stat.h>
#include <unistd.h>

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

CUresult Import(CUexternalMemory* handle, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  if (handle == nullptr || descriptor == nullptr || descriptor->size == 0 ||
      (descriptor->flags & ~static_cast<unsigned>(CUDA_EXTERNAL_MEMORY_DEDICATED)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (descriptor->type < CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_INVALID_VALUE;
  if (descriptor->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  struct stat file;
  if (fstat(descriptor->handle.fd, &file) != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (!S_ISREG(file.st_mode) || static_cast<uint64_t>(file.st_size) < descriptor->size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (state().faults.FailAllocation()) return CUDA_ERROR_OUT_OF_MEMORY;
  const Allocation* const allocation =
      virtual_memory().ImportFile(context, descriptor->handle.fd, descriptor->size);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUexternalMemory>(allocation->handle);
  return CUDA_SUCCESS;
}

CUresult MapBuffer(CUdeviceptr* pointer, CUexternalMemory handle,
                   const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  if (pointer == nullptr || buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation* const allocation = virtual_memory().FindExternal(reinterpret_cast<uint64_t>(handle));
  if (allocation == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (buffer->size == 0 || buffer->flags != 0 || buffer->offset > allocation->size ||
      buffer->size > allocation->size - buffer->offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t address = virtual_memory().MapBuffer(allocation, buffer->offset, buffer->size);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = address;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuImportExternalMemory)
(CUexternalMemory* handle, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* descriptor) {
  SIM_ENTER(cuImportExternalMemory, kCall);
  return Import(handle, descriptor);
}

SIM_API(cuExternalMemoryGetMappedBuffer)
(CUdeviceptr* pointer, CUexternalMemory handle, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* buffer) {
  SIM_ENTER(cuExternalMemoryGetMappedBuffer, kCall);
  return MapBuffer(pointer, handle, buffer);
}

SIM_API(cuDestroyExternalMemory)(CUexternalMemory handle) {
  SIM_ENTER(cuDestroyExternalMemory, kCall);
  Allocation* const allocation = virtual_memory().FindExternal(reinterpret_cast<uint64_t>(handle));
  if (allocation == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  virtual_memory().Release(allocation);
  return CUDA_SUCCESS;
}
