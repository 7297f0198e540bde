// SPDX-License-Identifier: Apache-2.0
// One simulated GPU: its SMs, its copy engines, and the exact account of who used them.
//
// A kernel consists of block groups, which occupy one SM each. Free SMs go to the ready kernel with the highest priority; among
// equal ones, to the kernel that became ready first. Groups are not preempted. Groups that start together are one event.
#ifndef GPUSHARE_SIM_DEVICE_DEVICE_H_
#define GPUSHARE_SIM_DEVICE_DEVICE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "sim/config/config.h"
#include "sim/device/sm_set.h"
#include "sim/device/timeline.h"
#include "sim/graph/memory.h"
#include "sim/memory/memory.h"
#include "sim/memory/pool.h"
#include "sim/processes/layout.h"
#include "sim/stream/command.h"

namespace gpushare::sim {

class SharedDevice;
struct Context;

inline constexpr int kPriorityLevels = 6;  // stream priorities 0 (least) to -5 (greatest)

// What one account used; see gpushare_sim_truth.
struct Account {
  uint32_t number = 0;
  double used_ns = 0, work_ns = 0, sm_ns = 0;
  uint64_t kernels = 0, queued = 0;
  uint64_t h2d_bytes = 0, d2h_bytes = 0, d2d_bytes = 0;
  // For the account's kernels that are on the device now.
  uint32_t sms_held = 0;
  double work_rate = 0;
};

// For which part of an interval kernels were running and, separately, copies and sets.
struct Utilization {
  uint32_t kernels_percent = 0, copies_percent = 0;
};

class Device {
 public:
  // `ordinal`: the process's number for the device; `which`: the number among all configured devices.
  Device(int ordinal, int which, const Config& config);

  // From here on other processes use the device too; null: none does.
  void Share(SharedDevice* shared) {
    shared_ = shared;
    memory.Share(shared, static_cast<uint32_t>(which));
  }
  // Starts the command at the head of its stream's queue.
  void StartKernel(Command* command);
  void StartTransfer(Command* command, Timeline& timeline, uint64_t now);
  // For an event with timing. Such a record belongs to the stream's context, as kernels do: it waits while another process has
  // the SMs.
  void StartRecord(Command* command, Timeline& timeline, uint64_t now);
  void EndRecord() { --records_; }
  // `count` groups of the kernel have finished. True when these were the last.
  bool FinishGroups(Command* command, uint32_t count, uint64_t now);
  // Frees the transfer's engine for the next transfer.
  void FinishTransfer(Command* command, Timeline& timeline, uint64_t now);
  // Gives free SMs to ready kernels. Call it after StartKernel and FinishGroups.
  void Dispatch(Timeline& timeline, uint64_t now);
  bool needs_dispatch() const { return free_sms_ > 0 && (levels_ & open_levels_) != 0 && !stuck_; }
  // From now on the device knows each SM by number, so that kernels can keep to a partition. This cannot be undone, and costs a
  // set of SMs each time groups start.
  void KnowSms();
  // FinishGroups() for a batch that started after KnowSms().
  bool FinishBatch(Command* command, uint32_t batch, uint64_t now);
  // Another process has the SMs from `now` on: kernels and records stand still until Resume().
  void Pause(Timeline& timeline, uint64_t now);
  void Resume(Timeline& timeline, uint64_t now);
  // A kernel hangs as long as this does not change.
  uint32_t hang_era() const { return hang_era_; }
  // Ends what hangs, as if each group had begun now.
  void LetHungGo(Timeline& timeline, uint64_t now);
  bool is_paused() const { return open_levels_ == 0; }
  bool wants_sms() const { return levels_ != 0 || !holding_.empty() || records_ != 0; }
  // Takes a started command off the device before its end.
  void Cancel(Command* command, Timeline& timeline, uint64_t now);

  // Brings the accounts up to `now`.
  void Integrate(uint64_t now) {
    if (now != integrated_) IntegrateTo(now);
  }
  Account* FindAccount(uint32_t number);
  double busy_ns() const { return busy_ns_; }
  double sm_ns() const { return sm_ns_; }
  // For the last whole interval of kSample that Integrate() has passed, and the end of that interval.
  const Utilization& utilization() const { return utilization_; }
  uint64_t sampled_until() const { return sample_end_ - kSample; }

  // SMs as the dispatcher counts them: 1 when kernels run one at a time.
  uint32_t sm_units() const { return sm_units_; }
  // A random factor for a kernel's duration; 1 without noise.
  double NoiseFactor();

  const int ordinal, which;
  const Config& config;
  DeviceMemory memory;
  std::vector<std::unique_ptr<MemoryPool>> pools;
  GraphMemory graph_memory{this};
  MemoryPool* default_pool = nullptr;  // null until it is first needed
  MemoryPool* current_pool = nullptr;  // null: the default pool

  Context* primary = nullptr;  // alive while primary_count > 0
  uint32_t primary_count = 0;
  unsigned primary_flags = 0;

 private:
  struct Queue {
    Command* head = nullptr;
    Command* tail = nullptr;
    bool busy = false;
    uint64_t begins = 0, ends = 0;  // of an engine's present transfer
  };
  uint32_t IndexOf(const Queue& engine) const {
    return static_cast<uint32_t>(&engine - engines_.data());
  }
  Queue& EngineOf(const Command* command);
  void BeginTransfer(Queue& engine, Timeline& timeline, uint64_t now);
  void IntegrateTo(uint64_t now);
  void EndSample(uint64_t now);
  void Hold(Command* command, uint32_t groups);
  void Release(Command* command, uint32_t groups);
  void DispatchToSms(Timeline& timeline, uint64_t now);
  void FreeUnknown(uint32_t groups);
  void FreeBatchesOf(const Command* command);
  void TakeOff(Timeline& timeline, uint64_t now);
  uint32_t NewBatch(const Command* command, SmSet sms);

  SharedDevice* shared_ = nullptr;
  uint32_t sm_units_, free_sms_;
  std::array<Queue, kPriorityLevels> ready_;
  uint32_t records_ = 0;  // events with timing whose records have started and not ended
  uint32_t levels_ = 0;   // bit i: ready_[i] has a kernel
  // Used once SMs are known by number: the free ones, those held by groups that began before (of unknown kernels), and the
  // batches that hold the others. stuck_: no ready kernel's partition has a free SM.
  struct Batch {
    const Command* command;  // null: no longer in use
    uint32_t generation;
    SmSet sms;
  };
  bool knows_sms_ = false, stuck_ = false;
  SmSet all_, free_, unknown_;
  std::vector<Batch> batches_;
  std::vector<uint32_t> unused_batches_;
  uint32_t open_levels_ = ~0u;  // 0: paused
  struct Hung {
    Command* command;
    uint32_t generation;
    Due due;
    uint32_t count;
  };
  void FinishLater(Command* command, Due due, uint32_t count, Timeline& timeline, uint64_t now);

  std::vector<Hung> hung_;  // parts of never-ending kernels that occupy SMs
  uint32_t hang_era_ = 1;
  std::vector<TimelineEvent> paused_;  // with times relative to the pause
  uint64_t paused_at_ = 0;
  std::array<Queue, 3> engines_;
  std::mt19937_64 random_;
  double spare_normal_ = 0;
  bool has_spare_ = false;

  uint64_t integrated_ = 0;
  double busy_ns_ = 0, sm_ns_ = 0, transfer_ns_ = 0;
  uint32_t transfers_ = 0;  // running now, one per engine
  uint64_t sample_end_ = kSample;
  double sample_busy_ns_ = 0, sample_transfer_ns_ = 0;  // at the beginning of the sample
  Utilization utilization_;
  std::vector<Account*> holding_;
  std::unordered_map<uint32_t, std::unique_ptr<Account>> accounts_;
};

// Inline, as is Release(): each kernel calls them once or twice, and a call would cost as much as the work.
[[gnu::always_inline]] inline void Device::Hold(Command* command, uint32_t groups) {
  Account* const account = command->account;
  if (account->sms_held == 0) holding_.push_back(account);
  account->sms_held += groups;
  account->work_rate += groups * command->kernel.work_rate;
  free_sms_ -= groups;
  command->kernel.resident += groups;
}

[[gnu::always_inline]] inline void Device::Release(Command* command, uint32_t groups) {
  Account* const account = command->account;
  account->sms_held -= groups;
  account->work_rate -= groups * command->kernel.work_rate;
  if (account->sms_held == 0) {
    account->work_rate = 0;  // no drift from adding and subtracting
    *std::find(holding_.begin(), holding_.end(), account) = holding_.back();
    holding_.pop_back();
  }
  free_sms_ += groups;
  command->kernel.resident -= groups;
  stuck_ = false;
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_DEVICE_DEVICE_H_
