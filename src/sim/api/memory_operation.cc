// SPDX-License-Identifier: Apache-2.0
// Memory operations of streams. The first and the second version of each call differ only in what the oldest devices supported.
#include "sim/stream/memory_operation.h"

#include "sim/api/api.h"
#include "sim/graph/capture.h"

namespace gpushare::sim {
namespace {

constexpr unsigned kMostOperations = 256;

struct Operation {
  CommandType type;  // kEmpty: nothing to do
  ValueWork work;
};

CUresult CheckOperand(uint64_t address, uint32_t bytes) {
  return address != 0 && address % bytes == 0 && IsOperand(address, bytes)
             ? CUDA_SUCCESS
             : CUDA_ERROR_INVALID_VALUE;
}

CUresult ReadWait(uint64_t address, uint64_t value, uint32_t bytes, unsigned flags,
                  Operation* operation) {
  if ((flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  *operation = {CommandType::kWaitValue,
                {address, value, bytes, static_cast<ValueCompare>(flags & 3)}};
  return CheckOperand(address, bytes);
}

CUresult ReadWrite(uint64_t address, uint64_t value, uint32_t bytes, unsigned flags,
                   Operation* operation) {
  if ((flags & ~static_cast<unsigned>(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *operation = {CommandType::kWriteValue, {address, value, bytes, ValueCompare::kEqual}};
  return CheckOperand(address, bytes);
}

CUresult Read(const CUstreamBatchMemOpParams& one, Operation* operation) {
  switch (one.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return ReadWait(one.waitValue.address, one.waitValue.value, 4, one.waitValue.flags,
                      operation);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return ReadWait(one.waitValue.address, one.waitValue.value64, 8, one.waitValue.flags,
                      operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return ReadWrite(one.writeValue.address, one.writeValue.value, 4, one.writeValue.flags,
                       operation);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return ReadWrite(one.writeValue.address, one.writeValue.value64, 8, one.writeValue.flags,
                       operation);
    case CU_STREAM_MEM_OP_BARRIER:
      *operation = {};
      operation->type = CommandType::kEmpty;
      return one.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SubmitOperations(const std::vector<Operation>& operations, CUstream handle,
                          NullStream null) {
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = CheckSubmitUncaptured(stream);
  if (result != CUDA_SUCCESS) return result;
  for (const Operation& operation : operations) {
    if (operation.type == CommandType::kEmpty) continue;
    // An earlier operation of the batch may have taken the context down.
    if (stream->context->lost != 0) return static_cast<CUresult>(stream->context->lost);
    result = WaitForSpace(&stream);
    if (result != CUDA_SUCCESS) return result;
    Command* const command = NewCommand(stream, operation.type);
    command->value = operation.work;
    Submit(stream, command);
  }
  return CUDA_SUCCESS;
}

CUresult Wait(CUstream stream, uint64_t address, uint64_t value, uint32_t bytes, unsigned flags,
              NullStream null) {
  Operation operation;
  const CUresult result = ReadWait(address, value, bytes, flags, &operation);
  return result == CUDA_SUCCESS ? SubmitOperations({operation}, stream, null) : result;
}

CUresult Write(CUstream stream, uint64_t address, uint64_t value, uint32_t bytes, unsigned flags,
               NullStream null) {
  Operation operation;
  const CUresult result = ReadWrite(address, value, bytes, flags, &operation);
  return result == CUDA_SUCCESS ? SubmitOperations({operation}, stream, null) : result;
}

CUresult Batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams* list,
               unsigned flags, NullStream null) {
  if (list == nullptr || count == 0 || count > kMostOperations || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Checks all operations before submitting any.
  std::vector<Operation> operations(count);
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = Read(list[i], &operations[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return SubmitOperations(operations, stream, null);
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

// Not declared by every header under these names.
extern "C" {
CUresult CUDAAPI cuStreamWaitValue32_v2_ptsz(CUstream, CUdeviceptr, cuuint32_t, unsigned);
CUresult CUDAAPI cuStreamWaitValue64_v2_ptsz(CUstream, CUdeviceptr, cuuint64_t, unsigned);
CUresult CUDAAPI cuStreamWriteValue32_v2_ptsz(CUstream, CUdeviceptr, cuuint32_t, unsigned);
CUresult CUDAAPI cuStreamWriteValue64_v2_ptsz(CUstream, CUdeviceptr, cuuint64_t, unsigned);
CUresult CUDAAPI cuStreamBatchMemOp_v2_ptsz(CUstream, unsigned, CUstreamBatchMemOpParams*,
                                            unsigned);
}

SIM_STREAM_API(cuStreamWaitValue32, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),
               Wait(stream, address, value, 4, flags, null));
SIM_STREAM_API(cuStreamWaitValue32_v2, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),
               Wait(stream, address, value, 4, flags, null));
SIM_STREAM_API(cuStreamWaitValue64, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
               Wait(stream, address, value, 8, flags, null));
SIM_STREAM_API(cuStreamWaitValue64_v2, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
               Wait(stream, address, value, 8, flags, null));
SIM_STREAM_API(cuStreamWriteValue32, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),
               Write(stream, address, value, 4, flags, null));
SIM_STREAM_API(cuStreamWriteValue32_v2, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags),
               Write(stream, address, value, 4, flags, null));
SIM_STREAM_API(cuStreamWriteValue64, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
               Write(stream, address, value, 8, flags, null));
SIM_STREAM_API(cuStreamWriteValue64_v2, _ptsz, kCall,
               (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
               Write(stream, address, value, 8, flags, null));
SIM_STREAM_API(cuStreamBatchMemOp, _ptsz, kCall,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags),
               Batch(stream, count, list, flags, null));
SIM_STREAM_API(cuStreamBatchMemOp_v2, _ptsz, kCall,
               (CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags),
               Batch(stream, count, list, flags, null));
