// SPDX-License-Identifier: Apache-2.0
// Spin kernels: they occupy as much of a GPU, for as long, as the kernels of a trace, in place of these.
//
//   GPUSHARE_ASSIGN_OR_RETURN(SpinModule module, MakeSpinModule(trace));
//   // load module.ptx, get the functions module.entries[i]; then for each kernel of the trace:
//   SpinLaunch launch = SpinLaunchOf(kernel, device);
//   uint64_t stamps = 0;
//   void* params[] = {&launch.duration_ns, &launch.block_ns, &stamps};
//
// A module has one `.entry` for each distinct name of the trace, so that code that tells kernels apart by function sees as many
// as the program has. Each block's first thread reads %globaltimer until it has run for `block_ns`; the other threads leave at
// once. If two readings are further apart than kSpinAway, something else ran on the SM, and the time between them does not
// count: where a GPU slices time between processes, a kernel makes no progress while another process has the GPU. Parameters:
//
//   0  .u64 duration_ns  of the whole kernel. A real GPU ignores it; the simulated GPU uses it as the
//                        kernel's cost (the comment line before each .entry says so, testing/sim.h).
//   1  .u64 block_ns     of one block: duration_ns divided by the number of waves.
//   2  .u64 stamps       0, or the address of a SpinStamps to which the kernel writes when it ran
//
// A footprint of S SMs is a grid of S blocks with one block per SM. A real GPU runs one block per SM if the block asks for more
// than half of an SM's shared memory (shared_bytes; above 48 KiB the function must first be allowed to). The precision there is
// %globaltimer's step (32 ns to 1 us, by generation) plus about 1 us for launching a block. Therefore kernels that would have
// very short waves get fewer waves.
//
// The text is PTX ISA 7.0 for sm_70 and newer. Pure functions; any thread may call them.
#ifndef GPUSHARE_WORKLOAD_SPIN_H_
#define GPUSHARE_WORKLOAD_SPIN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "workload/trace.h"

namespace gpushare::workload {

inline constexpr size_t kMaxSpinEntries = 10'000;
inline constexpr Nanos kSpinAway{20'000};

// What a kernel writes to device memory. Times are in ns on the device's clock (%globaltimer).
struct SpinStamps {
  uint64_t first = UINT64_MAX;  // when its first block began
  uint64_t last = 0;            // when its last block ended
  uint64_t ran = 0;             // for how long its blocks ran, summed
  uint64_t cycles = 0;          // the same in cycles of their SMs; 0 on a simulated GPU
  uint64_t away = 0;            // 0, or the address of a SpinAwayLog, which many kernels may share
};

// The absences: when another process had the device for more than kSpinAway in the middle of kernels. Where the GPU slices time
// between processes, an absence concerns all running kernels of a process; the first kernel to see that it has ended logs it.
struct SpinAwayLog {
  uint64_t told = 0;   // the end of the latest absence
  uint64_t count = 0;  // number of absences, including those that found no room
  uint64_t room = 0;
  // Followed by `room` of these:
  struct Entry {
    uint64_t from = 0, until = 0;
  };
};

struct SpinModule {
  std::string ptx;
  std::vector<std::string> entries;  // entries[i] stands for trace.names()[i]
};

// InvalidArgument when the trace has more than kMaxSpinEntries distinct names.
absl::StatusOr<SpinModule> MakeSpinModule(const KernelTrace& trace);

struct SpinDevice {
  int sms = 1;
  size_t shared_per_sm = 0;  // bytes; 0: unknown, then blocks have 1024 threads instead
  Nanos least_wave{5'000};   // waves are merged until each takes at least this long
};

// Shared memory of an SM by compute capability; 0 if this version does not know it.
size_t SharedPerSm(int compute_major, int compute_minor);

struct SpinLaunch {
  uint32_t entry;         // index into SpinModule::entries
  unsigned grid, block;   // x dimensions; the others are 1
  unsigned shared_bytes;  // dynamic
  uint64_t duration_ns, block_ns;
};

SpinLaunch SpinLaunchOf(const TraceKernel& kernel, const SpinDevice& device);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_SPIN_H_
