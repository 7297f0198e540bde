// SPDX-License-Identifier: Apache-2.0
#include "meter/markers.h"

#include <algorithm>
#include <cmath>

#include "base/status_macros.h"

namespace gpushare::meter {
namespace {

constexpr Nanos kRebase = Seconds(2);

}  // namespace

EventPool::~EventPool() { Clear(); }

void EventPool::Clear() {
  const base::MutexLock lock(&mu_);
  for (driver::Event event : free_) driver_.DestroyEvent(event);
  free_.clear();
}

driver::Event EventPool::Take() {
  {
    const base::MutexLock lock(&mu_);
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
  const base::MutexLock lock(&mu_);
  free_.push_back(event);
}

absl::StatusOr<std::unique_ptr<TimeLine>> TimeLine::Create(driver::Driver& driver,
                                                           EventPool& pool) {
  driver::Stream stream = nullptr;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.CreateStream(&stream, 0), "CreateStream"));
  driver::Event base = pool.Take();
  if (base == nullptr) {
    driver.DestroyStream(stream);
    return absl::ResourceExhaustedError("the driver gave no timing event for the meter");
  }
  std::unique_ptr<TimeLine> time_line(new TimeLine(driver, pool, base));
  absl::Status status = driver::ToStatus(driver.RecordEvent(base, stream), "RecordEvent");
  if (status.ok()) status = driver::ToStatus(driver.SynchronizeEvent(base), "SynchronizeEvent");
  if (status.ok()) status = time_line->Calibrate(stream);
  driver.DestroyStream(stream);
  if (!status.ok()) return status;
  return time_line;
}

absl::Status TimeLine::Calibrate(driver::Stream stream) {
  constexpr int kRounds = 9;
  std::vector<Nanos> costs, offsets;
  for (int i = 0; i < kRounds; ++i) {
    driver::Event first = pool_.Take(), second = pool_.Take();
    if (first == nullptr || second == nullptr) {
      if (first != nullptr) pool_.Give(first);
      return absl::ResourceExhaustedError("the driver gave no timing event for the meter");
    }
    driver::Result result = driver_.RecordEvent(first, stream);
    const Time submitted = driver_.clock().Now();
    if (result == driver::Result::kSuccess) result = driver_.RecordEvent(second, stream);
    if (result == driver::Result::kSuccess) result = driver_.SynchronizeEvent(second);
    if (result != driver::Result::kSuccess) {
      pool_.Give(first);
      pool_.Give(second);
      return driver::ToStatus(result, "RecordEvent");
    }
    GPUSHARE_ASSIGN_OR_RETURN(const Nanos began, Stamp(first));
    GPUSHARE_ASSIGN_OR_RETURN(const Nanos ended, Stamp(second));
    costs.push_back(ended - began);
    offsets.push_back(submitted.time_since_epoch() - began);
  }
  std::nth_element(offsets.begin(), offsets.begin() + kRounds / 2, offsets.end());
  marker_cost_ = *std::min_element(costs.begin(), costs.end());
  submit_offset_ = offsets[kRounds / 2] + marker_cost_;
  return absl::OkStatus();
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
