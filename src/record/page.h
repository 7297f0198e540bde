// SPDX-License-Identifier: Apache-2.0
// The files in a recording's folder other than the kernels themselves (row.h). They are exchanged within one build on one
// machine: a file of another length or mark is refused, and nothing in them is an address or an index.
#ifndef GPUSHARE_RECORD_PAGE_H_
#define GPUSHARE_RECORD_PAGE_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "base/time.h"

namespace gpushare::record {

// The environment variable that names the folder to the processes to be recorded.
inline constexpr char kFolderVariable[] = "GPUSHARE_RECORD";

// The limit of the trace reader (workload/trace.h).
inline constexpr uint64_t kMostKernels = 1'000'000;

enum class How : uint32_t { kAuto = 0, kEvents = 1, kCupti = 2 };

// What to record: file `orders`.
struct Orders {
  static constexpr uint32_t kMark = 0x67725231;  // identifies this layout
  uint32_t mark = kMark;
  How how = How::kAuto;
  uint64_t skip = 0;                // kernels to skip before the first recorded one
  uint64_t kernels = kMostKernels;  // the most kernels to record of each process
  int64_t nanoseconds = 0;          // how long to record from the first one on; 0: no limit
};
static_assert(std::is_trivially_copyable_v<Orders>);

enum class State : uint32_t {
  kRecording = 0,
  kDone = 1,    // a limit was reached: the process goes on unrecorded
  kFailed = 2,  // writing failed with `error`
};

// The state of a process's recording: file `NUMBER.page`, which the process maps and others read meanwhile. It outlives the
// process, however that ends. One thread writes at a time.
struct Page {
  static constexpr uint32_t kMark = 0x67725031;
  uint32_t mark;
  std::atomic<State> state;
  std::atomic<How> how;
  std::atomic<int32_t> error;  // errno
  int32_t pid;
  int64_t began_ns;                  // CLOCK_REALTIME, to order processes
  char program[256];                 // name of the program's file
  char note[512];                    // why CUPTI is not used, for people
  std::atomic<uint64_t> kernels;     // recorded; a graph counts as one
  std::atomic<uint64_t> skipped;     // as Orders::skip asks
  std::atomic<uint64_t> graphs;      // recorded kernels that are graphs
  std::atomic<uint64_t> captured;    // kernels captured into graphs, which are no launches
  std::atomic<uint64_t> unmeasured;  // kernels for which the driver gave no time
  std::atomic<uint64_t> late;        // recorded kernels whose duration may include host time
  std::atomic<uint64_t> together;    // recorded kernels beside which others may have run
  std::atomic<int64_t> device_ns;    // device time of the recorded kernels
  std::atomic<int64_t> bias_ns;      // the measurement's own time, subtracted from each duration
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<State>::is_always_lock_free);

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_PAGE_H_
