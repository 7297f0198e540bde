// SPDX-License-Identifier: Apache-2.0
// The files of a recording's folder, but for the kernels themselves (row.h). All of one build and one machine: a file of
// another length or mark is refused, and nothing in it is an address or an index.
#ifndef GPUSHARE_RECORD_PAGE_H_
#define GPUSHARE_RECORD_PAGE_H_

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "base/time.h"

namespace gpushare::record {

// Names the folder to the processes that are to be recorded.
inline constexpr char kFolderVariable[] = "GPUSHARE_RECORD";

// As a trace's reader has it (workload/trace.h).
inline constexpr uint64_t kMostKernels = 1'000'000;

enum class How : uint32_t { kAuto = 0, kEvents = 1, kCupti = 2 };

// What is asked for: file `orders`.
struct Orders {
  static constexpr uint32_t kMark = 0x67725231;  // of this layout
  uint32_t mark = kMark;
  How how = How::kAuto;
  uint64_t skip = 0;                // kernels that are let go by before the first that is kept
  uint64_t kernels = kMostKernels;  // that are kept at most, of each process
  int64_t nanoseconds = 0;          // since the first that is kept; 0: without end
};
static_assert(std::is_trivially_copyable_v<Orders>);

enum class State : uint32_t {
  kRecording = 0,
  kDone = 1,    // a limit was reached: the process goes on as if nothing were there
  kFailed = 2,  // nothing more can be written: `error`
};

// Where a process stands: file `NUMBER.page`, mapped there, read while it is written. It outlives the process, however
// that ends. Everything is written by one thread at a time.
struct Page {
  static constexpr uint32_t kMark = 0x67725031;
  uint32_t mark;
  std::atomic<State> state;
  std::atomic<How> how;
  std::atomic<int32_t> error;  // errno
  int32_t pid;
  int64_t began_ns;                  // of the machine's calendar, to tell who came first
  char program[256];                 // by the name of its file
  char note[512];                    // why not by CUPTI, for people
  std::atomic<uint64_t> kernels;     // kept; graphs count as one each
  std::atomic<uint64_t> skipped;     // as was asked
  std::atomic<uint64_t> graphs;      // of those kept
  std::atomic<uint64_t> captured;    // into graphs: no launches
  std::atomic<uint64_t> unmeasured;  // that the driver gave no time of
  std::atomic<uint64_t>
      late;  // of those kept: the host was slow, some of whose time may be in them
  std::atomic<uint64_t> together;  // of those kept: others may have run beside them
  std::atomic<int64_t> device_ns;  // of those kept
  std::atomic<int64_t> bias_ns;    // what was taken off each: what the measurement itself takes
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<State>::is_always_lock_free);

}  // namespace gpushare::record

#endif  // GPUSHARE_RECORD_PAGE_H_
