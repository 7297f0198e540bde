// SPDX-License-Identifier: Apache-2.0
#include "broker/reclaimer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace gpushare::broker {

Reclaimer::Reclaimer(Service& service, CountProcesses count, base::Clock& clock)
    : service_(service), count_(std::move(count)), clock_(clock) {
  thread_ = clock_.StartService("reclaim", [this] { Run(); });
}

void Reclaimer::End() {
  if (thread_ == nullptr) return;
  ended_.store(true, std::memory_order_release);
  service_.reclaims().fetch_add(1, std::memory_order_release);
  clock_.Wake(service_.reclaims(), 1);
  thread_->Join();
  thread_.reset();
}

void Reclaimer::Run() {
  std::atomic<uint32_t>& reclaims = service_.reclaims();
  Nanos pause = kSoon;
  for (;;) {
    const uint32_t seen = reclaims.load(std::memory_order_acquire);
    if (ended_.load(std::memory_order_acquire)) return;
    const std::optional<Service::ReclaimSubjects> subjects = service_.TakeReclaimSubjects();
    if (!subjects.has_value()) {
      pause = kSoon;
      clock_.Wait(reclaims, seen, kNever, Nanos(0));
      continue;
    }
    const absl::StatusOr<Counts> counts = count_(subjects->gpus);
    if (counts.ok()) {
      std::set<int32_t> named;
      for (const auto& [process, bytes] : *counts) named.insert(process.pid);
      service_.TakeNamed(named, subjects->at);
    } else {
      service_.ForgetNamed();
    }
    // If another process has ended, ask soon again.
    clock_.Wait(reclaims, seen, After(clock_.Now(), pause), Nanos(0));
    pause = reclaims.load(std::memory_order_acquire) == seen ? std::min(2 * pause, kLate) : kSoon;
  }
}

}  // namespace gpushare::broker
