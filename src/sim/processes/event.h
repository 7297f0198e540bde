// SPDX-License-Identifier: Apache-2.0
// Events that several processes use.
//
// The shared state is only how many records each process made and how many of these are complete. Both counts go on when a slot
// is reused for another event, so a wait for a record ends once the count says so, whatever became of the event.
#ifndef GPUSHARE_SIM_PROCESSES_EVENT_H_
#define GPUSHARE_SIM_PROCESSES_EVENT_H_

#include <array>
#include <cstdint>
#include <vector>

#include "sim/clock/clock.h"
#include "sim/processes/layout.h"

namespace gpushare::sim {

class SharedDevice;

class SharedEvents {
 public:
  explicit SharedEvents(SharedDevice& device) : shared_(device) {}

  // Creates an event and opens it for this process. kNobody if there are too many.
  uint32_t Create();
  // Opens the event that had this number. False if it is gone.
  bool Open(uint32_t index, uint64_t number);
  void Close(uint32_t index);
  uint64_t Number(uint32_t index);

  // Record() adds a record that is not complete yet; Complete() completes one of those at `now`.
  void Record(uint32_t index);
  void Complete(uint32_t index, uint64_t now);
  // The latest record, for IsComplete().
  uint64_t Recorded(uint32_t index);
  // Until the record is complete, this process keeps looking at the device's events.
  bool IsComplete(uint32_t index, uint64_t record);

  // A thread waits in waiters() until the record is complete, between BeginWait() and EndWait(). The thread that runs the
  // device's events wakes all waiters when IsOver() says that a wait has ended.
  WaitList& waiters() { return waiters_; }
  void BeginWait(uint32_t index, uint64_t record) { waits_.push_back({index, record}); }
  void EndWait(uint32_t index, uint64_t record);
  bool IsOver();

  // Completes the records of a process that has ended. Call with the lock held.
  void Release(uint32_t place, uint64_t now);

 private:
  SharedEvent& At(uint32_t index);
  void Wake(SharedEvent& event, uint64_t now);
  void Free(SharedEvent& event, uint64_t now);

  SharedDevice& shared_;
  std::array<uint32_t, kSharedEvents> opened_{};  // how often this process opened each
  WaitList waiters_;
  struct Wait {
    uint32_t index;
    uint64_t record;
    bool operator==(const Wait&) const = default;
  };
  std::vector<Wait> waits_;
};

struct Event;

// Deletes a shared event if this process has destroyed it and all its records are complete. Called when either may have become
// true.
void CloseIfDone(Event* event);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_EVENT_H_
