// SPDX-License-Identifier: Apache-2.0
// Simulated GPUs of several processes: who they are, and what of each one's memory each holds.
//
// Each process keeps its own model of its contexts, streams and kernels; here is only what they have in
// common. Any thread may call; a process that dies is declared over by whoever notices. On the machine's clock each has a
// thread that looks for that.
#ifndef GPUSHARE_SIM_PROCESSES_DEVICE_H_
#define GPUSHARE_SIM_PROCESSES_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/clock/clock.h"
#include "sim/config/config.h"
#include "sim/processes/event.h"
#include "sim/processes/file.h"
#include "sim/processes/layout.h"
#include "sim/processes/slices.h"
#include "sim/processes/turn.h"

namespace gpushare::sim {

struct Holding {
  uint64_t bytes = 0;
  uint64_t freed_at = kForever;  // of a process that is over
  int32_t pid = 0;
  uint32_t place = kNobody;  // of one that is over: kNobody
};

class SharedDevice {
 public:
  // Joins the processes of the device that `config` names. Null, with the reason.
  static std::unique_ptr<SharedDevice> Join(const Config& config, const Clock& clock,
                                            std::string* error);
  // This process is over: another does not have to find out.
  void Leave();

  // This process holds `bytes` of a GPU instead of what it held. False when that has not so many left.
  bool Hold(uint32_t gpu, uint64_t bytes);
  void HoldLess(uint32_t gpu, uint64_t bytes);
  // Of its memory, what no process holds.
  uint64_t Left(uint32_t gpu);
  std::vector<Holding> Holdings(uint32_t gpu);
  // What this process used of a GPU lately (SampleOf); and what those that are there did, with their pids.
  void Publish(uint32_t gpu, uint64_t sample);
  struct Sample {
    int32_t pid;
    uint64_t value;
  };
  std::vector<Sample> Samples(uint32_t gpu);
  // Memory of this process, which is charged with it, from now on known to others. Its number; 0: there are too many.
  uint64_t GiveMemory(uint32_t gpu, uint64_t bytes);
  // This process holds memory of a number too. False: nobody did any more, and there is no room for it, or too many.
  bool HoldMemory(uint64_t number, uint32_t gpu, uint64_t bytes);
  // It does not any more. Before its charge goes, where that was its: others that hold it keep it from being free.
  void DropMemory(uint64_t number);
  // Pages for the bytes of this process's memory, in a file that others can open. MAP_FAILED.
  struct Arena {
    int file = -1;
    uint64_t address = 0, bytes = 0;
  };
  void* NewArena(uint32_t gpu, uint64_t bytes);
  const Arena& arena(uint32_t gpu) const { return arenas_[gpu]; }
  // A copy engine is this process's for `ns`, when it has done what it was given before: when it begins.
  uint64_t TakeEngine(uint32_t gpu, uint32_t engine, uint64_t now, uint64_t ns);
  // What was to end at `end`, ends at `now`.
  void ReturnEngine(uint32_t gpu, uint32_t engine, uint64_t end, uint64_t now);
  // What is wrong with the common state; empty: nothing.
  std::string Check();

  uint32_t place() const { return place_; }
  // False once it has left, or lost the common file.
  bool joined() const { return joined_.load(std::memory_order_acquire) && !file_.lost(); }
  // In a forked child, which has no part in the device: its memory is its own from here on.
  void Forget();
  SharedTurn& turn() { return turn_; }
  SharedSlices& slices() { return slices_; }
  SharedEvents& events() { return events_; }
  // This process's number, and whether the process of a number is there.
  uint64_t incarnation() const { return incarnation_; }
  bool IsAlive(uint64_t incarnation);
  bool IsFile(const struct stat& other) const { return file_.Is(other); }
  bool LookAtFile(struct stat* own) const { return file_.Look(own); }

 private:
  friend class SharedEvents;
  friend class SharedSlices;
  friend class SharedTurn;
  class [[nodiscard]] Locked {
   public:
    explicit Locked(SharedDevice& device) : file_(device.file_) { file_.Lock(); }
    ~Locked() { file_.Unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

   private:
    SharedFile& file_;
  };
  explicit SharedDevice(const Clock& clock) : clock_(clock) {}
  void Initialize();
  std::string Enter(const Config& config);
  // On the machine's clock a teardown begins with the death, also when nobody asks for memory: some process notices.
  void WatchForDeaths();
  ProcessPlace& own() { return segment_->places[place_]; }

  // With the lock held.
  uint64_t Now() const;
  bool IsDead(uint32_t place) const;
  // As IsDead(), or nobody is there.
  bool IsGone(uint32_t place) const;
  // Of what nonsense there may be, that which would leave this process out for ever.
  void Repair();
  void DeclareOver(uint32_t place);
  void Sweep();
  uint64_t HeldByOthers(uint32_t gpu);
  void DropMemory(SharedMemory& memory, uint32_t place);
  void ForgetTornDown();

  const Clock& clock_;
  SharedFile file_;
  SharedSettings settings_{};
  Segment* segment_ = nullptr;
  uint32_t place_ = kNobody;
  uint64_t incarnation_ = 0;
  Arena arenas_[kGpus];
  std::atomic<bool> joined_{false};
  SharedTurn turn_{*this};
  SharedSlices slices_{*this};
  SharedEvents events_{*this};
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_DEVICE_H_
