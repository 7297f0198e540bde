// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/unfinished.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "device/stream/poll.h"
#include "spec/text.h"

namespace gpushare::device {

void Unfinished::Leave(const std::string& tenant, std::shared_ptr<StreamEnd> end) {
  if (end->Over()) return;
  bool many;
  {
    const base::MutexLock lock(&mutex_);
    ends_.push_back({tenant, std::move(end)});
    many = ends_.size() >= sweep_at_;
  }
  if (many) Sweep();
}

void Unfinished::Sweep() {
  std::vector<End> taken;
  {
    const base::MutexLock lock(&mutex_);
    taken.swap(ends_);
  }
  std::erase_if(taken, [](const End& left) { return left.end->Over(); });
  const base::MutexLock lock(&mutex_);
  std::move(taken.begin(), taken.end(), std::back_inserter(ends_));
  sweep_at_ = std::max<size_t>(64, 2 * ends_.size());
}

std::string Unfinished::Await(base::Clock& clock, Time deadline, const std::string* tenant) {
  const auto counts = [&](const End& end) { return tenant == nullptr || end.tenant == *tenant; };
  bool others = false;
  for (;;) {
    Sweep();
    others = tenant == nullptr && context_.Runs(clock);
    {
      const base::MutexLock lock(&mutex_);
      if (!others && std::none_of(ends_.begin(), ends_.end(), counts)) return "";
    }
    const Time now = clock.Now();
    if (now >= deadline) break;
    clock.SleepUntil(std::min(deadline, now + kPoll));
  }
  std::map<std::string, int> streams;
  {
    const base::MutexLock lock(&mutex_);
    for (const End& end : ends_) {
      if (counts(end)) ++streams[end.tenant];
    }
  }
  std::string who;
  for (const auto& [name, count] : streams) {
    absl::StrAppend(&who, who.empty() ? "" : ", ", "tenant ", Quoted(name), " (", count,
                    count == 1 ? " stream)" : " streams)");
  }
  if (others) absl::StrAppend(&who, who.empty() ? "" : ", ", "streams that gpushare does not know");
  return who;
}

}  // namespace gpushare::device
