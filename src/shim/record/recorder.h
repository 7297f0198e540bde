// SPDX-License-Identifier: Apache-2.0
// Records the kernels of a process that `gpushare bench record` runs (docs/recording.md): each launch is let go as it is,
// measured by CUPTI (cupti.h) or by events on its stream (kit.h), and written down (record/journal.h).
//
// What is asked for is how long a kernel takes that has the device for itself. So launches take turns, and the device is idle
// before each: whoever launches waits for the kernel. That could wait for ever, where the kernel or what is before it on its
// stream waits for something that comes only later. So nobody waits longer than kPatience, and after kGiveUp times
// nobody waits at all: kernels are measured still, those whose time may be in part others' are counted.
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
  // Null also in a forked child, where no driver works, and once all is recorded.
  static Recorder* Find() { return working.load(std::memory_order_acquire); }

  const driver::Driver& driver() const { return *driver_; }
  Names& names() { return names_; }

  using Launch = absl::FunctionRef<CUresult()>;
  // A null stream is the legacy one.
  CUresult Kernel(CUfunction function, const driver::LaunchShape& shape, CUstream stream,
                  Launch launch);
  CUresult Graph(CUgraphExec exec, CUstream stream, Launch launch);
  // What cannot be measured as one kernel.
  CUresult Unmeasured(Launch launch);

  // After a graph was instantiated.
  void Instantiated(CUgraphExec exec, CUgraph graph);
  // Before contexts end, or may: what is of them is given up.
  void ContextsEnd();

 private:
  Recorder(std::unique_ptr<driver::Driver> driver,
           std::unique_ptr<gpushare::record::Journal> journal)
      : driver_(std::move(driver)), journal_(std::move(journal)) {}

  // What is launched, as it is written down.
  struct Command {
    std::string name;
    uint64_t sms = 1;
    bool graph = false;
  };
  // Under way. Written down in the order of launches.
  struct Pending {
    Command command;
    Kit* kit;
    driver::Event begin, end;  // no begin: CUPTI has the time
    bool late, together;
  };
  struct Exec {
    uint32_t number = 0;  // in the order in which they came
    uint64_t kernels = 0, sms = 1;
  };

  CUresult Record(CUstream stream, absl::FunctionRef<Command()> describe, Launch launch);
  CUresult Measure(CUstream stream, const Command& command, Launch launch);
  CUresult MeasureByCupti(CUstream stream, Launch launch);
  // Decides between CUPTI and events, once.
  void Begin();
  // Writes down what CUPTI has.
  void TakeFromCupti();
  // Whether the next is to be left out as was asked; counts it.
  bool Skips();
  bool Captures(CUstream stream);
  Kit* KitOf(CUstream stream);
  uint64_t SmsOf(CUfunction function, const driver::LaunchShape& shape);
  // Blocks of `threads` that an SM holds; 0: the driver does not say.
  uint64_t PerSm(CUfunction function, uint64_t threads, uint32_t shared_bytes);
  void AddKernelsOf(CUgraph graph, Exec* exec);
  // Writes down what has ended. True: nothing is under way.
  bool Drain();
  bool Await(Time deadline);
  void StopIfOver();
  void Stop();

  static std::atomic<Recorder*> made, working;

  const std::unique_ptr<driver::Driver> driver_;
  const std::unique_ptr<gpushare::record::Journal> journal_;
  Names names_;
  std::atomic<uint64_t> seen_{0};

  std::atomic<uint32_t> turn_{0};  // a ClockLock; what follows is of who has it
  bool begun_ = false;
  std::unique_ptr<Cupti> cupti_;  // null: by events
  uint32_t since_taken_ = 0;      // launches
  HostPace pace_;
  std::map<CUcontext, std::unique_ptr<Kit>> kits_;
  std::deque<Pending> pending_;
  Time first_ = kNever;
  int waited_in_vain_ = 0;

  base::Mutex execs_mutex_;
  std::unordered_map<CUgraphExec, Exec> execs_ ABSL_GUARDED_BY(execs_mutex_);
  uint32_t graphs_ ABSL_GUARDED_BY(execs_mutex_) = 0;

  // What CUPTI does not say of a kernel: PerSm() by name, threads and dynamic shared memory of a block.
  base::Mutex shapes_mutex_;
  std::map<std::tuple<std::string, uint64_t, uint32_t>, uint64_t> per_sm_
      ABSL_GUARDED_BY(shapes_mutex_);
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_RECORDER_H_
