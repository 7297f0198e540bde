// SPDX-License-Identifier: Apache-2.0
// What every measurement of `gpushare bench calibrate` needs: a driver (real or simulated), a context, kernels and a clock.
//
//   Gpu gpu(driver, ordinal, findings);
//   CUstream stream = gpu.NewStream();
//   gpu.Spin(stream, Micros(50));
//   gpu.Report("launch_host", samples);
//
// Uses plain calls and plain allocations, and changes no settings of the device. A driver error ends the process with a message;
// findings reported before count. Single-threaded.
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_GPU_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_GPU_H_

#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/time.h"
#include "driver/driver.h"
#include "harness/calibrate/finding.h"

namespace gpushare::harness {

// clang-format off
#define GPUSHARE_CALIBRATE_CALLS(X)                                                                  \
  X(cuGetErrorName) X(cuDeviceGetAttribute) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent)           \
  X(cuCtxSynchronize) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuModuleUnload)                   \
  X(cuFuncSetAttribute) X(cuLaunchKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)             \
  X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamSynchronize) X(cuStreamQuery) X(cuStreamWaitEvent)  \
  X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuMemAlloc) X(cuMemFree) \
  X(cuMemGetInfo) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemHostGetDevicePointer) X(cuMemcpyHtoD)    \
  X(cuMemcpyDtoH) X(cuMemcpyHtoDAsync) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoDAsync)
// clang-format on

// %globaltimer when a kernel's first block started and its last one ended.
struct Stamp {
  uint64_t start = UINT64_MAX, end = 0;
};

class Gpu {
 public:
  // Writes findings to `findings`, which stays open.
  Gpu(driver::Driver& driver, int ordinal, std::FILE* findings);

  // Creates the context, loads the kernels, and finds out whether they execute. Before, only the driver may be used.
  void MakeContext();
  // Keeps the device busy for long enough that a real GPU's clocks leave their idle state.
  void Warm() const;

  driver::Driver& driver() const { return driver_; }
  base::Clock& clock() const { return driver_.clock(); }
  Time Now() const { return driver_.clock().Now(); }
  int ordinal() const { return ordinal_; }
  bool executes() const {
    return executes_;
  }  // whether kernels write to memory; false on the simulated GPU
  int sms() const { return sms_; }
  int Attribute(CUdevice_attribute which) const;

  CUstream NewStream() const;
  CUevent NewEvent() const;  // with timing
  void Record(CUevent event, CUstream stream) const;
  void Sync(CUstream stream) const;
  double ElapsedNs(CUevent start, CUevent end) const;
  bool IsDone(CUevent event) const;
  // Polls until the stream is idle. Time passes on a virtual clock too, even if a query costs nothing there.
  void AwaitStream(CUstream stream) const;

  void Spin(CUstream stream, Nanos ns, CUdeviceptr stamp = 0) const;  // one block
  // Launches `blocks` blocks, each alone on its SM.
  void SpinAlone(CUstream stream, int blocks, Nanos ns, CUdeviceptr stamp = 0) const;
  void Flag(CUstream stream, Nanos ns, CUdeviceptr word) const;
  void Nothing(CUstream stream) const;
  // Loads another module of these kernels and returns its `spin`.
  CUmodule LoadKernels(CUfunction* spin) const;
  void Launch(CUfunction function, CUstream stream, int blocks, unsigned shared,
              void** params) const;
  CUfunction spin() const { return spin_; }

  CUdeviceptr NewStamps(size_t n) const;
  std::vector<Stamp> ReadStamps(CUdeviceptr stamps, size_t n) const;
  size_t FreeMemory() const;

  void Report(const char* name, const std::vector<double>& samples) const;
  void ReportWords(const char* name, const std::string& words) const;
  void ReportWhyNot(const char* name, const std::string& why) const;

  // Ends the process unless `result` is CUDA_SUCCESS.
  void Must(CUresult result, const char* call) const;
  [[noreturn]] static void Stop(const std::string& why);

  struct Calls {
#define X(name) decltype(&::name) name = nullptr;
    GPUSHARE_CALIBRATE_CALLS(X)
#undef X
  };
  const Calls& cu() const { return cu_; }

 private:
  driver::Driver& driver_;
  const int ordinal_;
  std::FILE* const findings_;
  Calls cu_;
  CUcontext context_ = nullptr;
  CUfunction spin_ = nullptr, flag_ = nullptr, nothing_ = nullptr;
  int sms_ = 0;
  unsigned shared_alone_ = 0;  // dynamic shared memory that keeps a second block off an SM
  bool executes_ = false;
};

#define GPUSHARE_MUST(gpu, call, ...) (gpu).Must((gpu).cu().call(__VA_ARGS__), #call)

inline double InNs(Nanos length) { return static_cast<double>(length.count()); }

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_GPU_H_
