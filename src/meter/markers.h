// SPDX-License-Identifier: Apache-2.0
// Reusable timing events, and the time line on which their stamps are comparable.
//
// The driver gives the time between two events as a float of milliseconds, whose resolution is half a
// microsecond after eight seconds and a quarter of a millisecond after an hour. So stamps are chained: each is
// measured against a base event, which is replaced every two seconds by an event that has just been stamped.
#ifndef GPUSHARE_METER_MARKERS_H_
#define GPUSHARE_METER_MARKERS_H_

#include <array>
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

// A pool of timing events of one context, whichever context is current for the caller. Thread-safe.
class EventPool {
 public:
  EventPool(driver::Driver& driver, driver::Context context) : driver_(driver), context_(context) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Sets `event` on success; else returns the answer of cuEventCreate or cuCtxPushCurrent. Events without timing are for
  // what only has to be known to be done.
  driver::Result Take(driver::Event* event, bool timing = true);
  void Give(driver::Event event, bool timing = true);
  void Clear();  // destroys the events that are in the pool
  // The context is about to be destroyed, or was, and its events with it. Take() fails until Renew().
  void Abandon();
  void Renew();

  // Exists while a thread queries an event that it has taken from the pool. The thread that ends the context waits until
  // there is none.
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
  size_t made_ ABSL_GUARDED_BY(mu_) = 0;  // upper bound of the events made, and so of free ones
  std::array<std::vector<driver::Event>, 2> free_
      ABSL_GUARDED_BY(mu_);  // by whether they have timing
};

// Device time since the time line began. Used by one thread at a time.
class TimeLine {
 public:
  // Records the first base event on a stream of its own and waits for it.
  static absl::StatusOr<std::unique_ptr<TimeLine>> Create(driver::Driver& driver, EventPool& pool);
  ~TimeLine();

  // The stamp of a completed event, or an error if the driver refuses (the context is gone).
  // Takes the event, which goes back to the pool at once or after it has served as a base. An event of another pool `of` goes
  // back to that pool and never becomes a base, since its context may end. If there are only such events, a base is recorded
  // for the purpose.
  absl::StatusOr<Nanos> Stamp(driver::Event event, EventPool* of = nullptr);

  // Whether the driver still knows the time line's events.
  bool Stands() const;
  // Makes the stamps continue those of another time line, which had this offset.
  void ShiftTo(Nanos submit_offset);

  // The time that a marker itself takes on its stream: the least time between two adjacent markers.
  Nanos marker_cost() const { return marker_cost_; }
  // Host time at which the driver had taken a marker for an idle stream, minus the stamp at which the marker
  // began. It consists of the time from a call's return to its start on the device and the offset of the clocks.
  Nanos submit_offset() const { return submit_offset_; }

 private:
  TimeLine(driver::Driver& driver, EventPool& pool, driver::Event base)
      : driver_(driver), pool_(pool), base_(base) {}
  absl::Status Calibrate(driver::Stream stream);
  // Records `count` pairs of markers and waits for them. `most`: an upper bound of the last of the offsets.
  absl::Status Measure(driver::Stream stream, int count, std::vector<Nanos>* costs,
                       std::vector<Nanos>* offsets, Nanos* most);
  Nanos After(float ms) const;
  void RecordNextBase();
  void TakeNextBase();

  driver::Driver& driver_;
  EventPool& pool_;
  driver::Event base_;
  driver::Event next_base_ = nullptr;  // recorded, not yet seen to complete
  Nanos base_stamp_{0};
  Nanos marker_cost_{0}, submit_offset_{0};
};

}  // namespace gpushare::meter

#endif  // GPUSHARE_METER_MARKERS_H_
