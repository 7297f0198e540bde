// SPDX-License-Identifier: Apache-2.0
#include "device/unfinished.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/text.h"

namespace gpushare::device {
namespace {

constexpr Nanos kPoll = Millis(1);

}  // namespace

Unfinished::~Unfinished() {
  const base::MutexLock lock(&mutex_);
  for (const End& end : ends_) static_cast<void>(driver_.DestroyEvent(end.event));
}

void Unfinished::Leave(const std::string& tenant, driver::Stream stream) {
  // A lost context answers errors: nothing runs there any more.
  if (driver_.QueryStream(stream) != driver::Result::kNotReady) return;
  driver::Event event = nullptr;
  if (driver_.CreateEvent(&event, /*timing=*/false) != driver::Result::kSuccess) return;
  if (driver_.RecordEvent(event, stream) != driver::Result::kSuccess) {
    static_cast<void>(driver_.DestroyEvent(event));
    return;
  }
  bool many;
  {
    const base::MutexLock lock(&mutex_);
    ends_.push_back({tenant, event});
    many = ends_.size() >= sweep_at_;
  }
  if (many) Sweep();
}

void Unfinished::Sweep() {
  std::vector<End> ends, left;
  {
    const base::MutexLock lock(&mutex_);
    ends.swap(ends_);
  }
  for (End& end : ends) {
    if (driver_.QueryEvent(end.event) == driver::Result::kNotReady) {
      left.push_back(std::move(end));
    } else {
      static_cast<void>(driver_.DestroyEvent(end.event));
    }
  }
  const base::MutexLock lock(&mutex_);
  ends_.insert(ends_.end(), std::make_move_iterator(left.begin()),
               std::make_move_iterator(left.end()));
  sweep_at_ = std::max<size_t>(64, 2 * ends_.size());
}

std::string Unfinished::Await(base::Clock& clock, Time deadline) {
  for (;;) {
    Sweep();
    {
      const base::MutexLock lock(&mutex_);
      if (ends_.empty()) return "";
    }
    const Time now = clock.Now();
    if (now >= deadline) break;
    clock.SleepUntil(std::min(deadline, now + kPoll));
  }
  std::map<std::string, int> streams;
  {
    const base::MutexLock lock(&mutex_);
    for (const End& end : ends_) ++streams[end.tenant];
  }
  std::string who;
  for (const auto& [tenant, count] : streams) {
    absl::StrAppend(&who, who.empty() ? "" : ", ", "tenant ", Quoted(tenant), " (", count,
                    count == 1 ? " stream)" : " streams)");
  }
  return who;
}

}  // namespace gpushare::device
