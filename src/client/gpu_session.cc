// SPDX-License-Identifier: Apache-2.0
#include "client/gpu_session.h"

#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "base/clock_lock.h"

namespace gpushare::client {
namespace {

// Keeps the pages mapped forever. Must not allocate memory, since that may not work in a forked child.
void Keep(std::shared_ptr<const Pages> pages) {
  using Owner = std::shared_ptr<const Pages>;
  alignas(Owner) std::byte never_destroyed[sizeof(Owner)];
  static_cast<void>(new (never_destroyed) Owner(std::move(pages)));
}

}  // namespace

GpuSession::GpuSession(base::Clock& clock, std::shared_ptr<const ForkMark> fork_mark,
                       uint64_t device_memory, std::shared_ptr<const Pages> pages, std::string spec,
                       bool goes_on)
    : clock_(clock),
      fork_mark_(std::move(fork_mark)),
      device_memory_(device_memory),
      spec_(std::move(spec)),
      goes_on_(goes_on),
      pages_(std::move(pages)),
      granted_(pages_->limits->memory_granted.load()),
      looked_at_(pages_),
      wake_seen_(pages_->limits->wake.load() - 1) {
  ReadWhetherCopiesAreHeld(*pages_->limits);
}

GpuSession::~GpuSession() {
  if (!fork_mark_->InChild()) return;
  // In a child the pages' addresses may hold another mapping, so they must not be unmapped.
  Keep(std::move(pages_));
  Keep(std::move(looked_at_));
}

TimeShare::Limits GpuSession::ReadLimits(const ipc::LimitsPage& page) {
  const uint32_t flags = page.flags.load(std::memory_order_acquire);
  return {.closed = (flags & ipc::LimitsPage::kClosed) != 0,
          .suspended = (flags & ipc::LimitsPage::kSuspended) != 0,
          .bypass = (flags & ipc::LimitsPage::kBypass) != 0,
          .in_line = (flags & ipc::LimitsPage::kInLine) != 0,
          .below = (flags & ipc::LimitsPage::kBelow) != 0,
          .held = (flags & ipc::LimitsPage::kHeld) != 0,
          .granted = Nanos(page.time_granted_ns.load(std::memory_order_acquire)),
          .grant = Nanos(page.grant_ns.load(std::memory_order_relaxed)),
          .guarantee_ppm = page.guarantee_ppm.load(std::memory_order_relaxed)};
}

CopyShare::Limits GpuSession::ReadCopies(const ipc::LimitsPage& page, size_t way) {
  return {.granted = page.copy_granted[way].load(),
          .rate = page.copy_rate[way].load(std::memory_order_relaxed)};
}

bool GpuSession::ReadWhetherCopiesAreHeld(const ipc::LimitsPage& page) {
  bool differs = false;
  for (size_t way = 0; way < copies_limited_.size(); ++way) {
    const CopyShare::Limits limits = ReadCopies(page, way);
    if (limits.rate == 0) copies_[way].Lift(limits);
    SayWhatWasCopied(way);
    differs |= copies_limited_[way].exchange(limits.rate > 0) != (limits.rate > 0);
  }
  below_.store(ReadLimits(page).below, std::memory_order_relaxed);
  shares_link_.store(page.link_granted[0].load(std::memory_order_relaxed) != 0,
                     std::memory_order_relaxed);
  const bool suspended = ReadLimits(page).suspended;
  return copies_suspended_.exchange(suspended) != suspended || differs;
}

std::shared_ptr<const Pages> GpuSession::pages() const {
  const std::lock_guard lock(lock_);
  return pages_;
}

// ---- Time.

gate::Supply::Answer GpuSession::Tell(const Report& of_engine, Time now) {
  if (fork_mark_->InChild()) return {.open = false};
  std::shared_ptr<const Pages> at;
  TimeShare::Told told;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    Report report = of_engine;
    told_ = report.charged += before_;
    told = time_.Tell(ReadLimits(*at->limits), report, now);
    told.answer.ended = ended_;
    ipc::UsagePage& usage = *at->usage;
    usage.time_used_ns.store(told.used.count(), std::memory_order_relaxed);
    static_assert(kNever.time_since_epoch().count() == ipc::UsagePage::kGuess);
    usage.time_ends_ns.store(told.ends.time_since_epoch().count(), std::memory_order_relaxed);
    usage.time_ended_ns.store(of_engine.ended.time_since_epoch().count(),
                              std::memory_order_relaxed);
    usage.time_in_flight_ns.store(told.in_flight.count(), std::memory_order_release);
    usage.time_wanted_ns.store(told.wanted.count());
    usage.time_returned_ns.store(told.returned.count(), std::memory_order_release);
    // The broker may have taken this process out of the line before it saw the new wish. Either the broker still sees the wish,
    // or the cleared flag is seen here.
    told.ring |= told.relies_on_line && (at->limits->flags.load() & ipc::LimitsPage::kInLine) == 0;
    if (told.ring) Calls(now);
  }
  if (told.ring) at->bell.Ring();
  return told.answer;
}

void GpuSession::Enter() {
  while (in_use_.exchange(1) != 0) clock_.Wait(in_use_, 1, kNever, Nanos(0));
}

void GpuSession::Leave() {
  in_use_.store(0);
  clock_.Wake(in_use_, kEverybody);
}

// Tells the share that the engine has been idle for kIdle, so that it gives its time back.
void GpuSession::EngineEnds() {
  const Time now = clock_.Now();
  Report last;
  {
    const std::lock_guard lock(lock_);
    last.charged = told_ - before_;
  }
  Tell(last, now);
  Tell(last, After(now, TimeShare::kIdle));
  const std::lock_guard lock(lock_);
  before_ = told_;
}

void GpuSession::SetOnTime(std::function<void()> on_time) {
  const base::ClockLock lock(clock_, calling_);
  on_time_ = std::move(on_time);
}

void GpuSession::CallOnTime() {
  const base::ClockLock lock(clock_, calling_);
  if (on_time_) on_time_();
}

}  // namespace gpushare::client
