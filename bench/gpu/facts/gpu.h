// SPDX-License-Identifier: Apache-2.0
// The common start of all measurements: an open driver, a context, the kernels and a warm clock.
//
//   Gpu gpu = OpenGpu();
//   CUstream stream = gpu.NewStream();
//   gpu.Spin(stream, gpu.sms, 50'000);            // 50 us on every SM
//
// A driver error ends the process through report.h. One thread, one context.
#ifndef GPUSHARE_GPU_FACTS_GPU_H_
#define GPUSHARE_GPU_FACTS_GPU_H_

#include <cstdint>
#include <vector>

#include "driver_calls.h"

namespace gpushare::facts {

// %globaltimer at the start of a kernel's first block and at the end of its last one.
struct Stamp {
  uint64_t start = UINT64_MAX, end = 0;
  // Stamps count from 1970: too large for the precision of a double, so they are subtracted first.
  double length() const { return static_cast<double>(static_cast<int64_t>(end - start)); }
};

struct Gpu {
  DriverCalls cu;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUfunction spin = nullptr, spin_small = nullptr, nothing = nullptr, ticks = nullptr,
             gaps = nullptr, flags = nullptr;
  int sms = 0;
  unsigned shared_alone = 0;  // dynamic shared memory that keeps a second block off an SM
  bool executes = false;      // false on the simulated GPU, where kernels do not write to memory
  double cycles_per_ns = 1;
  int least_priority = 0, greatest_priority = 0;
  double init_ns = 0, context_ns = 0, module_ns = 0;  // durations of the steps of opening

  CUstream NewStream(int priority = 0) const;
  CUevent NewEvent(bool timing = true) const;
  void Record(CUevent event, CUstream stream) const;
  void Sync(CUstream stream) const;
  double ElapsedNs(CUevent start, CUevent end) const;
  // Waits by polling: returns within a microsecond of the event, and lets time pass on a virtual clock too.
  void Poll(CUevent event) const;
  void PollUntil(int64_t when, CUstream stream) const;

  // `blocks` blocks, one per SM, that spin for `ns`; `stamp` as in kernels.h, 0 for none. `sim_ns` is the duration of the whole
  // kernel, which differs from `ns` only if there are several waves.
  void Spin(CUstream stream, int blocks, double ns, CUdeviceptr stamp = 0, double sim_ns = 0) const;
  void SpinSmall(CUstream stream, int blocks, double ns) const;
  void Nothing(CUstream stream) const;

  // Device memory for n stamps: allocating, resetting and reading it.
  CUdeviceptr NewStamps(size_t n) const;
  void ResetStamps(CUdeviceptr stamps, size_t n) const;
  std::vector<Stamp> ReadStamps(CUdeviceptr stamps, size_t n) const;

  // Ends the group if kernels do not write to memory.
  void NeedExecution() const;
};

// Opens the first device. With `warm` false, leaves the GPU's clock as it is and does not calibrate.
Gpu OpenGpu(bool warm = true);

// Loads the kernels into the current context, for use in a second context.
void OpenKernels(Gpu& gpu);

inline constexpr double kNsPerUs = 1'000, kNsPerMs = 1'000'000;

}  // namespace gpushare::facts

#endif  // GPUSHARE_GPU_FACTS_GPU_H_
