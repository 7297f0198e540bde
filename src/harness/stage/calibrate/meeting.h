// SPDX-License-Identifier: Apache-2.0
// Lets two processes take steps in order, through a page in a file that both map.
//
//   meeting.Await(clock, 1);      // until the other has reached step 1
//   ...
//   meeting.Say(2);
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_MEETING_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_MEETING_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace gpushare::harness {

class Meeting {
 public:
  static absl::StatusOr<Meeting> Open(const std::string& path);  // creates the file if needed

  uint32_t stage() const { return page_->stage.load(std::memory_order_acquire); }
  void Say(uint32_t stage) { page_->stage.store(stage, std::memory_order_release); }
  // Waits until the other has said `stage`, polling at the interval `every` of the common clock.
  void Await(base::Clock& clock, uint32_t stage, Nanos every) const {
    while (this->stage() < stage) {
      clock.SleepUntil(clock.Now() + every);
    }
  }
  // A point in time that one process tells the other.
  void Tell(Time when) { page_->told.store(when.time_since_epoch().count()); }
  Time told() const { return Time(Nanos(page_->told.load())); }
  // Counts the processes at the start line; each arrives once.
  void Arrive() { page_->arrived.fetch_add(1); }
  void AwaitBoth(base::Clock& clock, Nanos every) const {
    while (page_->arrived.load() < 2) clock.SleepUntil(clock.Now() + every);
  }

 private:
  struct Page {
    std::atomic<uint32_t> stage{0}, arrived{0};
    std::atomic<int64_t> told{0};
  };
  explicit Meeting(Page* page) : page_(page) {}
  Page* page_;  // mapped until the process ends
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_MEETING_H_
