// SPDX-License-Identifier: Apache-2.0
// Records the kernels of a process that `gpushare bench record` runs (docs/recording.md). Each launch is passed on unchanged,
// measured by CUPTI (cupti.h) or by events on its stream (kit.h), and written to the journal (record/journal.h).
//
// The aim is how long a kernel takes when it has the device to itself. So launches take turns and start on an idle device: the
// launching thread waits for its kernel. That could last forever if the kernel, or earlier work on its stream, waits for
// something that comes later. So no wait is longer than kPatience, and after kGiveUp fruitless waits no thread waits any more.
// Kernels are still measured then, and those whose time may include other kernels' are counted.
//
// Threading: thread-safe.
#ifndef GPUSHARE_SHIM_RECORD_RECORDER_H_
#define GPUSHARE_SHIM_RECORD_RECORDER_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "driver/driver.h"
#include "record/journal.h"
#include "shim/attach_abi.h"
#include "shim/record/cupti.h"
#include "shim/record/kit.h"
#include "shim/record/names.h"

namespace gpushare::shim::recording {

class Recorder {
 public:
  static absl::Status Attach(const gpushare_shim_driver& driver);
  // Null before Attach().
  static Recorder* Made() { return made.load(std::memory_order_acquire); }
  // Null also in a forked child, where the driver does not work, and after the recording has ended.
  static Recorder* Find() { return working.load(std::memory_order_acquire); }

  const driver::Driver& driver() const { return *driver_; }
  Names& names() { return names_; }

  using Launch = absl::FunctionRef<CUresult()>;
  // A null stream is the legacy one.
  CUresult Kernel(CUfunction function, const driver::LaunchShape& shape, CUstream stream,
                  Launch launch);
  CUresult Graph(CUgraphExec exec, CUstream stream, Launch launch);
  // Work that cannot be measured as one kernel.
  CUresult Unmeasured(Launch launch);

  // Call it after a graph was instantiated.
  void Instantiated(CUgraphExec exec, CUgraph graph);
  // Call it before contexts end or may end: gives up everything that belongs to them.
  void ContextsEnd();

 private:
  Recorder(std::unique_ptr<driver::Driver> driver,
           std::unique_ptr<gpushare::record::Journal> journal)
      : driver_(std::move(driver)), journal_(std::move(journal)) {}

  // A launch as the journal describes it.
  struct Command {
    std::string name;
    uint64_t sms = 1;
    bool graph = false;
  };
  // A launch in flight. Launches are written to the journal in order.
  struct Pending {
    Command command;
    Kit* kit;
    driver::Event begin, end;  // a null `begin`: CUPTI provides the time
    bool late, together;
  };
  struct Exec {
    uint32_t number = 0;  // in the order of instantiation
    uint64_t kernels = 0, sms = 1;
  };

  CUresult Record(CUstream stream, absl::FunctionRef<Command()> describe, Launch launch);
  CUresult Measure(CUstream stream, const Command& command, Launch launch);
  CUresult MeasureByCupti(CUstream stream, Launch launch);
  // Decides between CUPTI and events, once.
  void Begin();
  // Writes CUPTI's records to the journal.
  void TakeFromCupti();
  // Counts a launch, and says whether it is one of those to skip.
  bool Skips();
  bool Captures(CUstream stream);
  Kit* KitOf(CUstream stream);
  uint64_t SmsOf(CUfunction function, const driver::LaunchShape& shape);
  // The number of blocks of `threads` threads that fit on an SM; 0 if the driver does not tell.
  uint64_t PerSm(CUfunction function, uint64_t threads, uint32_t shared_bytes);
  void AddKernelsOf(CUgraph graph, Exec* exec);
  // Writes the launches that have ended to the journal. True if nothing is in flight any more.
  bool Drain();
  bool Await(Time deadline);
  void StopIfOver();
  void Stop();

  static std::atomic<Recorder*> made, working;

  const std::unique_ptr<driver::Driver> driver_;
  const std::unique_ptr<gpushare::record::Journal> journal_;
  Names names_;
  std::atomic<uint64_t> seen_{0};

  std::atomic<uint32_t> turn_{0};  // a ClockLock that guards the following members
  bool begun_ = false;
  std::unique_ptr<Cupti> cupti_;  // null: measure by events
  uint32_t since_taken_ = 0;      // launches
  HostPace pace_;
  std::map<CUcontext, std::unique_ptr<Kit>> kits_;
  std::deque<Pending> pending_;
  Time first_ = kNever;
  int waited_in_vain_ = 0;

  base::Mutex execs_mutex_;
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(execs_mutex_);
  uint32_t graphs_ ABSL_GUARDED_BY(execs_mutex_) = 0;

  // PerSm(), which CUPTI does not report, by the kernel's name and a block's threads and dynamic shared memory.
  base::Mutex shapes_mutex_;
  std::map<std::tuple<std::string, uint64_t, uint32_t>, uint64_t> per_sm_
      ABSL_GUARDED_BY(shapes_mutex_);
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_RECORDER_H_
