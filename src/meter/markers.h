// SPDX-License-Identifier: Apache-2.0
// Timing events, reused, and the one time line on which their stamps are comparable.
//
// The driver gives the time between two events as a float of milliseconds: half a microsecond coarse
// after eight seconds, a quarter of a millisecond after an hour. So stamps are chained: each is measured
// against a base event that is replaced every two seconds by one that has just been stamped.
#ifndef GPUSHARE_METER_MARKERS_H_
#define GPUSHARE_METER_MARKERS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::meter {

// A pool of timing events of one context, whichever is current where they are taken. Thread-safe.
class EventPool {
 public:
  EventPool(driver::Driver& driver, driver::Context context) : driver_(driver), context_(context) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Sets `event` on success; else what cuEventCreate answered, or cuCtxPushCurrent.
  driver::Result Take(driver::Event* event);
  void Give(driver::Event event);
  void Clear();  // destroys the events that are in the pool
  // The context is about to be destroyed, or was, and what is of it with it: there are no events until Renew().
  void Abandon();
  void Renew();

  // That somebody asks the driver of an event that is not in the pool: who ends the context waits until nobody does.
  class Asking {
   public:
    explicit Asking(EventPool& pool) : pool_(pool) {
      pool_.asked_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Asking() { pool_.asked_.fetch_sub(1, std::memory_order_release); }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    EventPool& pool_;
  };
  bool asked() const { return asked_.load(std::memory_order_acquire) > 0; }

 private:
  driver::Driver& driver_;
  const driver::Context context_;
  std::atomic<int> asked_{0};
  base::Mutex mu_;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;  // that were asked for, at most; not more are ever free
  std::vector<driver::Event> free_ ABSL_GUARDED_BY(mu_);
};

// Device time since the time line began. One thread at a time.
class TimeLine {
 public:
  // Records the first base on a stream of its own and waits for it.
  static absl::StatusOr<std::unique_ptr<TimeLine>> Create(driver::Driver& driver, EventPool& pool);
  ~TimeLine();

  // The stamp of a completed event, or nothing when the driver refuses (the context is gone).
  // Takes the event: it goes back to the pool, now or when it has served as a base. One `of` another pool goes
  // back to that, and is no base: its context may end. Where there are no others a base is recorded for itself.
  absl::StatusOr<Nanos> Stamp(driver::Event event, EventPool* of = nullptr);

  // Does the driver still know its events?
  bool Stands() const;
  // Stamps go on from those of another time line, whose offset was this.
  void ShiftTo(Nanos submit_offset);

  // What a marker itself takes on its stream: the least time between two that followed one another.
  Nanos marker_cost() const { return marker_cost_; }
  // Host time at which the driver had taken a marker for an idle stream, less the stamp at which the
  // marker began: what lies between a call's return and its start on the device, and the clocks' offset.
  Nanos submit_offset() const { return submit_offset_; }

 private:
  TimeLine(driver::Driver& driver, EventPool& pool, driver::Event base)
      : driver_(driver), pool_(pool), base_(base) {}
  absl::Status Calibrate(driver::Stream stream);
  Nanos After(float ms) const;
  void RecordNextBase();
  void TakeNextBase();

  driver::Driver& driver_;
  EventPool& pool_;
  driver::Event base_;
  driver::Event next_base_ = nullptr;  // recorded, not seen completed
  Nanos base_stamp_{0};
  Nanos marker_cost_{0}, submit_offset_{0};
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_MARKERS_H_
