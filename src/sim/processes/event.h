// SPDX-License-Identifier: Apache-2.0
// Events that several processes know.
//
// Here is only how many records each process made and how many of them are complete. Both go on when a place is
// given to another event, so that a wait for a record is over when the count says so, whatever became of
// the event.
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

  // A new one, which this process has open; kNobody: there are too many.
  uint32_t Create();
  // This process opens the event that was `number` there; false: it is gone.
  bool Open(uint32_t index, uint64_t number);
  void Close(uint32_t index);
  uint64_t Number(uint32_t index);

  // A record that is not complete yet. Complete(): one of those is, at `now`.
  void Record(uint32_t index);
  void Complete(uint32_t index, uint64_t now);
  // The latest record, for IsComplete().
  uint64_t Recorded(uint32_t index);
  // While it is not, this process looks at the device's events when it is.
  bool IsComplete(uint32_t index, uint64_t record);

  // A thread waits in waiters() until the record is complete; BeginWait() and EndWait() are around that.
  // Whoever ran the device's events wakes all when IsOver() says that a wait is.
  WaitList& waiters() { return waiters_; }
  void BeginWait(uint32_t index, uint64_t record) { waits_.push_back({index, record}); }
  void EndWait(uint32_t index, uint64_t record);
  bool IsOver();

  // A process is over: what it recorded is complete. With the lock held.
  void Release(uint32_t place, uint64_t now);

 private:
  SharedEvent& At(uint32_t index);
  void Wake(SharedEvent& event, uint64_t now);
  void Free(SharedEvent& event, uint64_t now);

  SharedDevice& shared_;
  std::array<uint32_t, kSharedEvents> opened_{};  // how often, by this process
  WaitList waiters_;
  struct Wait {
    uint32_t index;
    uint64_t record;
    bool operator==(const Wait&) const = default;
  };
  std::vector<Wait> waits_;
};

struct Event;

// One that several processes know and that is destroyed here goes when its records are complete.
void CloseIfDone(Event* event);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_PROCESSES_EVENT_H_
