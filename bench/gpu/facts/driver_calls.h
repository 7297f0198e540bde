// SPDX-License-Identifier: Apache-2.0
// The driver entry points that the measurements call, from a libcuda opened at run time.
//
//   DriverCalls cu = OpenDriver();
//   MUST(cu, cuMemAlloc, &pointer, bytes);      // on failure, reports it and ends this process
//   if (cu.cuEventQuery(event) == CUDA_SUCCESS) ...
//
// cuda.h provides the types and, through its macros, the names with their versions (cuMemAlloc becomes cuMemAlloc_v2 on both
// sides). The program is not linked with the driver.
#ifndef GPUSHARE_GPU_FACTS_DRIVER_CALLS_H_
#define GPUSHARE_GPU_FACTS_DRIVER_CALLS_H_

#include <cuda.h>

#include <cstdint>
#include <string>

#include "report.h"

namespace gpushare::facts {

// clang-format off
#define GPUSHARE_FACTS_CALLS(X)                                                                  \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGet) X(cuDeviceGetName)            \
  X(cuDeviceGetAttribute) X(cuDeviceTotalMem) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent)     \
  X(cuCtxSynchronize) X(cuCtxGetStreamPriorityRange) X(cuModuleLoadData) X(cuModuleGetFunction)  \
  X(cuFuncSetAttribute) X(cuLaunchKernel) X(cuStreamCreateWithPriority) X(cuStreamDestroy)       \
  X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamIsCapturing)            \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize)      \
  X(cuEventElapsedTime) X(cuMemAlloc) X(cuMemFree) X(cuMemGetInfo) X(cuMemHostAlloc)             \
  X(cuMemFreeHost) X(cuMemHostGetDevicePointer) X(cuMemcpyHtoD) X(cuMemcpyDtoH)                  \
  X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync) X(cuMemsetD8) X(cuCtxDestroy)   \
  X(cuStreamBeginCapture) X(cuStreamEndCapture) X(cuGraphInstantiate) X(cuGraphLaunch)           \
  X(cuDeviceGetDevResource) X(cuDevSmResourceSplitByCount) X(cuDevResourceGenerateDesc)          \
  X(cuGreenCtxCreate) X(cuGreenCtxDestroy)
// clang-format on

struct DriverCalls {
#define X(name) decltype(&::name) name = nullptr;
  GPUSHARE_FACTS_CALLS(X)
#undef X
  // Declared here: newer headers give cuCtxCreate another signature, while every driver has this one.
  CUresult (*create_context)(CUcontext*, unsigned, CUdevice) = nullptr;
  uint64_t (*sim_now)() = nullptr;  // only in the simulated driver

  bool simulated() const { return sim_now != nullptr; }
};

// Opens GPUSHARE_DRIVER, else libcuda.so.1. If there is none, reports that and ends the process.
DriverCalls OpenDriver();

// Nanoseconds of the clock by which the driver's work is measured: CLOCK_MONOTONIC, or the simulated GPU's clock once
// OpenDriver() has found one.
int64_t Now();

std::string ErrorName(const DriverCalls& cu, CUresult result);

template <class... P, class... A>
void MustCall(const DriverCalls& cu, CUresult (*call)(P...), const char* name, A... arguments) {
  if (call == nullptr) {
    StopUnsupported(std::string(name) + " is not in this driver");
  }
  const CUresult result = call(static_cast<P>(arguments)...);
  if (result == CUDA_SUCCESS) return;
  const std::string reason = std::string(name) + " returned " + ErrorName(cu, result);
  if (result == CUDA_ERROR_NOT_SUPPORTED) StopUnsupported(reason);
  StopFailed(reason);
}

#define GPUSHARE_FACTS_TEXT2(x) #x
#define GPUSHARE_FACTS_TEXT(x) GPUSHARE_FACTS_TEXT2(x)
#define MUST(cu, call, ...) \
  ::gpushare::facts::MustCall(cu, (cu).call, GPUSHARE_FACTS_TEXT(call), __VA_ARGS__)

}  // namespace gpushare::facts

#endif  // GPUSHARE_GPU_FACTS_DRIVER_CALLS_H_
