// SPDX-License-Identifier: Apache-2.0
// Spin kernels: stand-ins that hold as much of a GPU, for as long, as the kernels of a trace.
//
//   GPUSHARE_ASSIGN_OR_RETURN(SpinModule module, MakeSpinModule(trace));
//   // load module.ptx, get the functions module.entries[i]; then for each kernel of the trace:
//   SpinLaunch launch = SpinLaunchOf(kernel, device);
//   uint64_t stamps = 0;
//   void* params[] = {&launch.duration_ns, &launch.block_ns, &stamps};
//
// A module has one `.entry` for each distinct name of the trace, so that whoever keys kernels by
// function sees as many as the program has. Each block's first thread reads %globaltimer until it has
// run for `block_ns`; the other threads leave at once. Where two looks are further apart than
// kSpinAway something else ran on the SM, and the time between does not count: where a GPU slices
// time between processes, a kernel does not get on while it is off. Parameters:
//
//   0  .u64 duration_ns  of the whole kernel. A real GPU ignores it; the simulated GPU takes it as
//   the
//                        kernel's cost (the comment line before each .entry says so,
//                        testing/sim.h).
//   1  .u64 block_ns     of one block: duration_ns divided by the number of waves.
//   2  .u64 stamps       0, or where it says when it ran: the address of a SpinStamps
//
// A footprint of S SMs is a grid of S blocks, one block an SM. On a real GPU one block an SM is
// reached by asking for more than half of an SM's shared memory (shared_bytes; above 48 KiB the
// function must be allowed it first). Its precision there is %globaltimer's step (32 ns to 1 us, by
// generation) plus about 1 us of block launch, which is why kernels that would have very short
// waves get fewer of them.
//
// The text is PTX ISA 7.0 for sm_70 and newer. Pure functions; any thread.
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

// What a kernel makes of this in the device's memory; times are the device's (%globaltimer), in ns.
struct SpinStamps {
  uint64_t first = UINT64_MAX;  // when its first block began
  uint64_t last = 0;            // when its last ended
  uint64_t ran = 0;             // how long its blocks ran, together
  uint64_t cycles = 0;          // the same in cycles of their SMs; of the simulated GPU 0
  uint64_t away = 0;  // 0, or the address of a SpinAwayLog, which many kernels may have in common
};

// When the device was another process's for more than kSpinAway in the midst of kernels. Where the GPU slices time
// between processes, it is so for all that runs of one; the first to see that it is back tells.
struct SpinAwayLog {
  uint64_t told = 0;   // until when it was
  uint64_t count = 0;  // of entries, those that had no room too
  uint64_t room = 0;
  // Behind it `room` of these.
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
  Nanos least_wave{5'000};   // waves are merged until each takes as long
};

// Shared memory of an SM by compute capability; 0 when this version does not know it.
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
