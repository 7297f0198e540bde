// SPDX-License-Identifier: Apache-2.0
#include "meter/markers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status_macros.h"

namespace gpushare::meter {
namespace {

constexpr Nanos kRebase = Seconds(2);

}  // namespace

EventPool::~EventPool() { Clear(); }

void EventPool::Clear() {
  const base::MutexLock lock(&mu_);
  for (std::vector<driver::Event>& free : free_) {
    for (driver::Event event : free) driver_.DestroyEvent(event);
    free.clear();
  }
}

driver::Result EventPool::Take(driver::Event* event, bool timing) {
  {
    const base::MutexLock lock(&mu_);
    if (gone_) return driver::Result::kInvalidContext;
    std::vector<driver::Event>& free = free_.at(timing ? 1 : 0);
    if (!free.empty()) {
      *event = free.back();
      free.pop_back();
      return driver::Result::kSuccess;
    }
    // Reserves room for all events, so that Give() needs no memory.
    if (free.capacity() < ++made_) free.reserve(2 * made_);
  }
  // An event belongs to the context that is current when it is created, and can be recorded only on streams of that context.
  driver::Result result = driver_.PushContext(context_);
  if (result != driver::Result::kSuccess) return result;
  result = driver_.CreateEvent(event, timing);
  driver_.PopContext();
  return result;
}

void EventPool::Give(driver::Event event, bool timing) {
  const base::MutexLock lock(&mu_);
  if (!gone_) free_.at(timing ? 1 : 0).push_back(event);
}

void EventPool::Abandon() {
  const base::MutexLock lock(&mu_);
  gone_ = true;
  for (std::vector<driver::Event>& free : free_) free.clear();
}

void EventPool::Renew() {
  const base::MutexLock lock(&mu_);
  gone_ = false;
}

absl::StatusOr<std::unique_ptr<TimeLine>> TimeLine::Create(driver::Driver& driver,
                                                           EventPool& pool) {
  driver::Stream stream = nullptr;
  GPUSHARE_RETURN_IF_ERROR(
      driver::ToStatus(driver.CreateStream(&stream, 0), "cuStreamCreateWithPriority"));
  const struct Destroys {
    ~Destroys() { driver.DestroyStream(stream); }
    driver::Driver& driver;
    driver::Stream stream;
  } destroys{driver, stream};
  driver::Event base = nullptr;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(pool.Take(&base), "cuEventCreate"));
  std::unique_ptr<TimeLine> time_line;
  try {
    time_line.reset(new TimeLine(driver, pool, base));
  } catch (...) {
    pool.Give(base);
    throw;
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.RecordEvent(base, stream), "cuEventRecord"));
  GPUSHARE_RETURN_IF_ERROR(time_line->Calibrate(stream));
  return time_line;
}

// The program's first launch waits for this. Where other processes keep the device busy, each wait for a marker is one for a slice
// of the device: so the first markers are recorded together, and there are more only as long as they are done at once.
absl::Status TimeLine::Calibrate(driver::Stream stream) {
  constexpr int kTogether = 3, kRounds = 9;
  constexpr Nanos kAtOnce = Micros(500);
  const Time begin = driver_.clock().Now();
  std::vector<Nanos> costs, offsets;
  Nanos most{0};
  GPUSHARE_RETURN_IF_ERROR(Measure(stream, kTogether, &costs, &offsets, &most));
  offsets.clear();
  for (int i = 0; i < kRounds && driver_.clock().Now() - begin <= kAtOnce; ++i) {
    GPUSHARE_RETURN_IF_ERROR(Measure(stream, 1, &costs, &offsets, &most));
  }
  marker_cost_ = *std::min_element(costs.begin(), costs.end());
  // If the markers have waited for the device, when they were seen to be done tells more than when they were submitted.
  submit_offset_ = most;
  if (driver_.clock().Now() - begin <= kAtOnce) {
    std::nth_element(offsets.begin(), offsets.begin() + kRounds / 2, offsets.end());
    submit_offset_ = offsets[kRounds / 2];
  }
  submit_offset_ += marker_cost_;
  return absl::OkStatus();
}

absl::Status TimeLine::Measure(driver::Stream stream, int count, std::vector<Nanos>* costs,
                               std::vector<Nanos>* offsets, Nanos* most) {
  struct Pair {
    driver::Event first = nullptr, second = nullptr;
    Time submitted{};  // the first of them
  };
  std::vector<Pair> pairs(static_cast<size_t>(count));
  absl::Status status;
  const auto take = [&](driver::Event* event) {
    if (status.ok()) status = driver::ToStatus(pool_.Take(event), "cuEventCreate");
  };
  const auto record = [&](driver::Event event) {
    if (status.ok()) status = driver::ToStatus(driver_.RecordEvent(event, stream), "cuEventRecord");
  };
  for (Pair& pair : pairs) {
    take(&pair.first);
    take(&pair.second);
  }
  for (Pair& pair : pairs) {
    record(pair.first);
    pair.submitted = driver_.clock().Now();
    record(pair.second);
  }
  if (status.ok()) {
    status = driver::ToStatus(driver_.SynchronizeEvent(pairs.back().second), "cuEventSynchronize");
  }
  const Time done = driver_.clock().Now();
  for (const Pair& pair : pairs) {
    if (!status.ok()) {
      if (pair.first != nullptr) pool_.Give(pair.first);
      if (pair.second != nullptr) pool_.Give(pair.second);
      continue;
    }
    // Both are stamped even if one fails, so that both events go back to the pool.
    const absl::StatusOr<Nanos> began = Stamp(pair.first), ended = Stamp(pair.second);
    status = began.ok() ? ended.status() : began.status();
    if (!status.ok()) continue;
    costs->push_back(*ended - *began);
    offsets->push_back(pair.submitted.time_since_epoch() - *began);
    *most = done.time_since_epoch() - *ended;
  }
  return status;
}

TimeLine::~TimeLine() {
  pool_.Give(base_);
  if (next_base_ != nullptr) pool_.Give(next_base_);
}

bool TimeLine::Stands() const { return driver_.QueryEvent(base_) == driver::Result::kSuccess; }

void TimeLine::ShiftTo(Nanos submit_offset) {
  base_stamp_ += submit_offset_ - submit_offset;
  submit_offset_ = submit_offset;
}

Nanos TimeLine::After(float ms) const {
  return base_stamp_ + Nanos(std::llround(static_cast<double>(ms) * 1e6));
}

// The base is recorded on a stream of its own, so that it waits for no other work and this thread does not wait.
void TimeLine::RecordNextBase() {
  driver::Stream stream = nullptr;
  if (driver_.CreateStream(&stream, 0) != driver::Result::kSuccess) return;
  if (pool_.Take(&next_base_) != driver::Result::kSuccess) {
    next_base_ = nullptr;
  } else if (driver_.RecordEvent(next_base_, stream) != driver::Result::kSuccess) {
    pool_.Give(std::exchange(next_base_, nullptr));
  }
  driver_.DestroyStream(stream);
}

void TimeLine::TakeNextBase() {
  const driver::Result result = driver_.QueryEvent(next_base_);
  if (result == driver::Result::kNotReady) return;
  driver::Event next = std::exchange(next_base_, nullptr);
  float ms = 0;
  if (result != driver::Result::kSuccess ||
      driver_.ElapsedMs(&ms, base_, next) != driver::Result::kSuccess) {
    pool_.Give(next);
    return;
  }
  base_stamp_ = After(ms);
  pool_.Give(std::exchange(base_, next));
}

absl::StatusOr<Nanos> TimeLine::Stamp(driver::Event event, EventPool* of) {
  const bool foreign = of != nullptr && of != &pool_;
  EventPool& home = foreign ? *of : pool_;
  if (next_base_ != nullptr) TakeNextBase();
  float ms = 0;
  const driver::Result result = driver_.ElapsedMs(&ms, base_, event);
  if (result != driver::Result::kSuccess) {
    home.Give(event);
    return driver::ToStatus(result, "cuEventElapsedTime");
  }
  const Nanos stamp = After(ms);
  if (stamp - base_stamp_ < kRebase || foreign) {
    home.Give(event);
  } else {
    pool_.Give(base_);
    base_ = event;
    base_stamp_ = stamp;
  }
  if (stamp - base_stamp_ >= kRebase && next_base_ == nullptr) RecordNextBase();
  return stamp;
}

}  // namespace gpushare::meter
