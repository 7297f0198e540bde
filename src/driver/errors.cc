// SPDX-License-Identifier: Apache-2.0
#include "driver/errors.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gpushare::driver {
namespace {

using Code = absl::StatusCode;

// Aborted stands for errors that end the context: waiting or retrying does not help, starting over does.
constexpr ErrorEntry kErrors[] = {
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is null or out of its range",
     Code::kInvalidArgument},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", Code::kResourceExhausted},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver was not initialised", Code::kFailedPrecondition},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down", Code::kUnavailable},
    {5, "CUDA_ERROR_PROFILER_DISABLED", "the profiler is disabled", Code::kFailedPrecondition},
    {6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "the profiler was not initialised",
     Code::kFailedPrecondition},
    {7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "the profiler is already started",
     Code::kFailedPrecondition},
    {8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "the profiler is already stopped",
     Code::kFailedPrecondition},
    {34, "CUDA_ERROR_STUB_LIBRARY", "this libcuda is the toolkit's stub library, not a driver",
     Code::kUnavailable},
    {36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", "the call needs a newer driver",
     Code::kUnimplemented},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or in exclusive use",
     Code::kUnavailable},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA device was found", Code::kUnavailable},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no such device", Code::kNotFound},
    {102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "the device has no valid licence",
     Code::kPermissionDenied},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the module image is invalid", Code::kInvalidArgument},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or it is not valid",
     Code::kFailedPrecondition},
    {202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is already current",
     Code::kFailedPrecondition},
    {205, "CUDA_ERROR_MAP_FAILED", "mapping failed", Code::kInternal},
    {206, "CUDA_ERROR_UNMAP_FAILED", "unmapping failed", Code::kInternal},
    {207, "CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped", Code::kFailedPrecondition},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "the resource is already mapped", Code::kAlreadyExists},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this device",
     Code::kInvalidArgument},
    {210, "CUDA_ERROR_ALREADY_ACQUIRED", "the resource is already acquired", Code::kAlreadyExists},
    {211, "CUDA_ERROR_NOT_MAPPED", "the resource is not mapped", Code::kFailedPrecondition},
    {212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array",
     Code::kFailedPrecondition},
    {213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer",
     Code::kFailedPrecondition},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "an uncorrectable memory error occurred",
     Code::kDataLoss},
    {215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the device does not have this limit",
     Code::kUnimplemented},
    {216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread",
     Code::kFailedPrecondition},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the devices cannot access each other's memory",
     Code::kUnimplemented},
    {218, "CUDA_ERROR_INVALID_PTX", "PTX compilation failed", Code::kInvalidArgument},
    {219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "the graphics context is invalid",
     Code::kFailedPrecondition},
    {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "an uncorrectable NVLink error occurred",
     Code::kDataLoss},
    {221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found",
     Code::kUnavailable},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX is newer than this driver",
     Code::kInvalidArgument},
    {223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX compilation is disabled",
     Code::kFailedPrecondition},
    {224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
     "the device does not support this execution affinity", Code::kUnimplemented},
    {225, "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
     "the code synchronises on the device, which is not supported", Code::kUnimplemented},
    {226, "CUDA_ERROR_CONTAINED",
     "an error was contained on the device; the process has to restart", Code::kAborted},
    {300, "CUDA_ERROR_INVALID_SOURCE", "the kernel source is invalid", Code::kInvalidArgument},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "the file was not found", Code::kNotFound},
    {302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared object lacks a symbol",
     Code::kNotFound},
    {303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared object failed to initialise",
     Code::kUnavailable},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed",
     Code::kUnavailable},
    {400, "CUDA_ERROR_INVALID_HANDLE", "the handle is null, destroyed or not of this kind",
     Code::kNotFound},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the resource is not in a state that allows the call",
     Code::kFailedPrecondition},
    {402, "CUDA_ERROR_LOSSY_QUERY", "the answer would lose information", Code::kOutOfRange},
    {500, "CUDA_ERROR_NOT_FOUND", "no such symbol", Code::kNotFound},
    {600, "CUDA_ERROR_NOT_READY", "the work has not completed yet", Code::kUnavailable},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an illegal address; the context is lost",
     Code::kAborted},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "the launch needs more registers, threads or shared memory than the device has",
     Code::kInvalidArgument},
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT",
     "a kernel ran past the device's time limit; the context is lost", Code::kAborted},
    {703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
     "the kernel uses an incompatible texturing mode", Code::kFailedPrecondition},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled",
     Code::kAlreadyExists},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled",
     Code::kFailedPrecondition},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is already active",
     Code::kFailedPrecondition},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context has been destroyed",
     Code::kFailedPrecondition},
    {710, "CUDA_ERROR_ASSERT", "an assertion in a kernel failed; the context is lost",
     Code::kAborted},
    {711, "CUDA_ERROR_TOO_MANY_PEERS", "too many peers", Code::kResourceExhausted},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered",
     Code::kAlreadyExists},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered",
     Code::kFailedPrecondition},
    {714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel corrupted its stack; the context is lost",
     Code::kAborted},
    {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "a kernel hit an illegal instruction; the context is lost", Code::kAborted},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS",
     "a kernel accessed a misaligned address; the context is lost", Code::kAborted},
    {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "a kernel accessed a wrong address space; the context is lost", Code::kAborted},
    {718, "CUDA_ERROR_INVALID_PC", "a kernel jumped to an invalid address; the context is lost",
     Code::kAborted},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed; the context is lost", Code::kAborted},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
     "the cooperative launch has more blocks than fit the device at once", Code::kInvalidArgument},
    {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK",
     "a kernel ended without freeing tensor memory; the context is lost", Code::kAborted},
    {800, "CUDA_ERROR_NOT_PERMITTED", "not permitted", Code::kPermissionDenied},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "not supported", Code::kUnimplemented},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready", Code::kUnavailable},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the driver and its kernel module do not match",
     Code::kFailedPrecondition},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "the compatibility driver does not support this device", Code::kUnimplemented},
    {805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS control daemon cannot be reached",
     Code::kUnavailable},
    {806, "CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed", Code::kUnavailable},
    {807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready", Code::kUnavailable},
    {808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no place for another client",
     Code::kResourceExhausted},
    {809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has no connection left",
     Code::kResourceExhausted},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server terminated this client",
     Code::kAborted},
    {811, "CUDA_ERROR_CDP_NOT_SUPPORTED", "launching kernels from kernels is not supported",
     Code::kUnimplemented},
    {812, "CUDA_ERROR_CDP_VERSION_MISMATCH",
     "the modules use different versions of launching kernels from kernels",
     Code::kFailedPrecondition},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "the call is not allowed while the stream is capturing", Code::kFailedPrecondition},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture was invalidated by an earlier error", Code::kFailedPrecondition},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "the call would merge two captures",
     Code::kFailedPrecondition},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun on this stream",
     Code::kFailedPrecondition},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "a stream that was forked from the capture was not joined", Code::kFailedPrecondition},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "the call would make the capture depend on work outside it", Code::kFailedPrecondition},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "the call would make the capture depend on the legacy stream", Code::kFailedPrecondition},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture",
     Code::kFailedPrecondition},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread",
     Code::kFailedPrecondition},
    {909, "CUDA_ERROR_TIMEOUT", "the wait timed out", Code::kDeadlineExceeded},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph differs too much to update the executable", Code::kFailedPrecondition},
    {911, "CUDA_ERROR_EXTERNAL_DEVICE", "a device outside CUDA failed", Code::kUnavailable},
    {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster size is invalid", Code::kInvalidArgument},
    {913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded",
     Code::kFailedPrecondition},
    {914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "the device resource is of the wrong type",
     Code::kInvalidArgument},
    {915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
     "the device resource is not usable as configured", Code::kInvalidArgument},
    {916, "CUDA_ERROR_KEY_ROTATION", "the device is rotating its keys", Code::kUnavailable},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error", Code::kInternal},
};

struct CodeEntry {
  Code status;
  Result result;
};

constexpr Result kIllegalState = Result{401};
constexpr Result kSystemNotReady = Result{802};
// Not 702 (launch timeout): after that a process has to be restarted.
constexpr Result kTimeout = Result{909};

constexpr CodeEntry kByCode[] = {
    {Code::kOk, Result::kSuccess},
    {Code::kCancelled, Result::kUnknown},
    {Code::kUnknown, Result::kUnknown},
    {Code::kInvalidArgument, Result::kInvalidValue},
    {Code::kDeadlineExceeded, kTimeout},
    {Code::kNotFound, Result::kInvalidHandle},
    {Code::kAlreadyExists, kIllegalState},
    {Code::kPermissionDenied, Result::kNotPermitted},
    {Code::kResourceExhausted, Result::kOutOfMemory},
    {Code::kFailedPrecondition, kIllegalState},
    {Code::kAborted, Result::kUnknown},
    {Code::kOutOfRange, Result::kInvalidValue},
    {Code::kUnimplemented, Result::kNotSupported},
    {Code::kInternal, Result::kUnknown},
    {Code::kUnavailable, kSystemNotReady},
    {Code::kDataLoss, Result::kUnknown},
    {Code::kUnauthenticated, Result::kNotPermitted},
};

constexpr char kPayload[] = "gpushare/driver-result";

}  // namespace

const ErrorEntry* ErrorTable(size_t* count) {
  *count = std::size(kErrors);
  return kErrors;
}

const ErrorEntry* FindError(Result result) {
  const int code = static_cast<int>(result);
  const ErrorEntry* entry =
      std::lower_bound(std::begin(kErrors), std::end(kErrors), code,
                       [](const ErrorEntry& e, int value) { return e.result < value; });
  return entry != std::end(kErrors) && entry->result == code ? entry : nullptr;
}

absl::Status ToStatus(Result result, const char* call) {
  if (result == Result::kSuccess) return absl::OkStatus();
  const int code = static_cast<int>(result);
  const ErrorEntry* entry = FindError(result);
  absl::Status status =
      entry != nullptr
          ? absl::Status(entry->status, absl::StrCat(call, ": ", entry->name, ": ", entry->text))
          : absl::UnknownError(absl::StrCat(call, ": CUDA error ", code,
                                            ", which this version of gpushare does not know"));
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(code)));
  return status;
}

Result FromStatus(const absl::Status& status) {
  if (const absl::optional<absl::Cord> payload = status.GetPayload(kPayload)) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) return Result{code};
  }
  return FromCode(status.code());
}

Result FromCode(absl::StatusCode code) {
  for (const CodeEntry& entry : kByCode) {
    if (entry.status == code) return entry.result;
  }
  return Result::kUnknown;
}

}  // namespace gpushare::driver
