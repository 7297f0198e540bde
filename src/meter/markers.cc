// SPDX-License-Identifier: Apache-2.0
#include "meter/markers.h"

#include <cmath>

#include "base/status_macros.h"

namespace gpushare::meter {
namespace {

constexpr Nanos kRebase = Seconds(2);

}  // namespace

EventPool::~EventPool() { Clear(); }

void EventPool::Clear() {
  absl::MutexLock lock(&mu_);
  for (driver::Event event : free_) driver_.DestroyEvent(event);
  free_.clear();
}

driver::Event EventPool::Take() {
  {
    absl::MutexLock lock(&mu_);
    if (!free_.empty()) {
      driver::Event event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  driver::Event event = nullptr;
  if (driver_.CreateEvent(&event, /*timing=*/true) != driver::Result::kSuccess) return nullptr;
  return event;
}

void EventPool::Give(driver::Event event) {
  absl::MutexLock lock(&mu_);
  free_.push_back(event);
}

absl::StatusOr<std::unique_ptr<TimeLine>> TimeLine::Create(driver::Driver& driver,
                                                           EventPool& pool) {
  driver::Stream stream = nullptr;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.CreateStream(&stream, 0), "CreateStream"));
  driver::Event base = pool.Take();
  absl::Status status = absl::OkStatus();
  if (base == nullptr) {
    status = absl::ResourceExhaustedError("the driver gave no timing event for the meter");
  } else {
    status = driver::ToStatus(driver.RecordEvent(base, stream), "RecordEvent");
    if (status.ok()) status = driver::ToStatus(driver.SynchronizeEvent(base), "SynchronizeEvent");
  }
  driver.DestroyStream(stream);
  if (!status.ok()) {
    if (base != nullptr) pool.Give(base);
    return status;
  }
  return std::unique_ptr<TimeLine>(new TimeLine(driver, pool, base));
}

TimeLine::~TimeLine() { pool_.Give(base_); }

absl::StatusOr<Nanos> TimeLine::Stamp(driver::Event event) {
  float ms = 0;
  const driver::Result result = driver_.ElapsedMs(&ms, base_, event);
  if (result != driver::Result::kSuccess) {
    pool_.Give(event);
    return driver::ToStatus(result, "ElapsedMs");
  }
  const Nanos stamp = base_stamp_ + Nanos(std::llround(static_cast<double>(ms) * 1e6));
  if (stamp - base_stamp_ >= kRebase) {
    pool_.Give(base_);
    base_ = event;
    base_stamp_ = stamp;
  } else {
    pool_.Give(event);
  }
  return stamp;
}

}  // namespace gpushare::meter
