// SPDX-License-Identifier: Apache-2.0
// Simulated GPUs that several processes share: which processes these are, and how much of each GPU's memory each holds.
//
// Each process models its own contexts, streams and kernels; only the common state is here. Any thread may call. The first
// process that notices that another has died declares it dead. On the machine's clock each process has a thread that looks for
// such deaths.
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
  uint64_t freed_at = kForever;  // when the memory of a process that has ended is free
  int32_t pid = 0;
  uint32_t place = kNobody;  // kNobody for a process that has ended
};

class SharedDevice {
 public:
  // Joins the processes of the device that `config` names. Null on failure, with the reason in `error`.
  static std::unique_ptr<SharedDevice> Join(const Config& config, const Clock& clock,
                                            std::string* error);
  // Ends this process's part, so that no other process has to find out that it ended.
  void Leave();

  // This process now holds `bytes` of a GPU in place of what it held. False when the GPU has less left.
  bool Hold(uint32_t gpu, uint64_t bytes);
  void HoldLess(uint32_t gpu, uint64_t bytes);
  // Memory of the GPU that no process holds.
  uint64_t Left(uint32_t gpu);
  std::vector<Holding> Holdings(uint32_t gpu);
  // Publishes what this process used of a GPU lately (SampleOf). Samples() returns this for all processes, with their pids.
  void Publish(uint32_t gpu, uint64_t sample);
  struct Sample {
    int32_t pid;
    uint64_t value;
  };
  std::vector<Sample> Samples(uint32_t gpu);
  // Shares memory that this process is charged with. Returns its number; 0 when too much is shared already.
  uint64_t GiveMemory(uint32_t gpu, uint64_t bytes);
  // This process now holds shared memory too. False when no process held it any more and it does not fit, or when too much is
  // shared already.
  bool HoldMemory(uint64_t number, uint32_t gpu, uint64_t bytes);
  // This process no longer holds it. Call this before uncharging memory of its own: other holders keep the memory from being
  // free.
  void DropMemory(uint64_t number);
  // Pages for the bytes of this process's memory, in a file that other processes can open. MAP_FAILED on failure.
  struct Arena {
    int file = -1;
    uint64_t address = 0, bytes = 0;
  };
  void* NewArena(uint32_t gpu, uint64_t bytes);
  const Arena& arena(uint32_t gpu) const { return arenas_[gpu]; }
  // Reserves a copy engine for `ns` after the work that it has already. Returns when the reservation begins.
  uint64_t TakeEngine(uint32_t gpu, uint32_t engine, uint64_t now, uint64_t ns);
  // Ends at `now` a reservation that was to end at `end`.
  void ReturnEngine(uint32_t gpu, uint32_t engine, uint64_t end, uint64_t now);
  // Checks the common state. Empty when it is sound, else what is wrong.
  std::string Check();

  uint32_t place() const { return place_; }
  // False once the process has left or lost the common file.
  bool joined() const { return joined_.load(std::memory_order_acquire) && !file_.lost(); }
  // Called in a forked child, which has no part in the device: from here on its memory is its own.
  void Forget();
  SharedTurn& turn() { return turn_; }
  SharedSlices& slices() { return slices_; }
  SharedEvents& events() { return events_; }
  // This process's incarnation, and whether the process with a given one is still there.
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
  // On the machine's clock a teardown has to begin when a process dies, even if no process asks for memory, so each watches.
  void WatchForDeaths();
  ProcessPlace& own() { return segment_->places[place_]; }

  // Call these with the lock held.
  uint64_t Now() const;
  bool IsDead(uint32_t place) const;
  // IsDead(), or the place is empty.
  bool IsGone(uint32_t place) const;
  // Repairs the nonsense that would otherwise block this process for ever.
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
