// SPDX-License-Identifier: Apache-2.0
// What every measurement of `gpushare bench calibrate` starts from: a driver, whichever there is, a context, the kernels and
// a clock.
//
//   Gpu gpu(driver, ordinal, findings);
//   CUstream stream = gpu.NewStream();
//   gpu.Spin(stream, Micros(50));
//   gpu.Report("launch_host", samples);
//
// Plain calls and plain allocations; nothing of the device is set. An error of the driver ends the process with what it was:
// what has been reported by then counts. One thread.
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
  // Findings go to `findings`, which stays open.
  Gpu(driver::Driver& driver, int ordinal, std::FILE* findings);

  // The context, the kernels and whether they execute; until then there is only the driver.
  void MakeContext();
  // Long enough for the clocks of a real GPU to leave their idle state.
  void Warm() const;

  driver::Driver& driver() const { return driver_; }
  base::Clock& clock() const { return driver_.clock(); }
  Time Now() const { return driver_.clock().Now(); }
  int ordinal() const { return ordinal_; }
  bool executes() const { return executes_; }  // kernels write to memory: not on the simulated GPU
  int sms() const { return sms_; }
  int Attribute(CUdevice_attribute which) const;

  CUstream NewStream() const;
  CUevent NewEvent() const;  // with timing
  void Record(CUevent event, CUstream stream) const;
  void Sync(CUstream stream) const;
  double ElapsedNs(CUevent start, CUevent end) const;
  bool IsDone(CUevent event) const;
  // Asks until all of it is done; time passes on a virtual clock too, whatever a question costs there.
  void AwaitStream(CUstream stream) const;

  void Spin(CUstream stream, Nanos ns, CUdeviceptr stamp = 0) const;  // one block
  // `blocks` blocks, each alone on its SM.
  void SpinAlone(CUstream stream, int blocks, Nanos ns, CUdeviceptr stamp = 0) const;
  void Flag(CUstream stream, Nanos ns, CUdeviceptr word) const;
  void Nothing(CUstream stream) const;
  // One more module of these kernels, and its `spin`.
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

  // Ends the process unless it is CUDA_SUCCESS.
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
