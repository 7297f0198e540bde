// SPDX-License-Identifier: Apache-2.0
// The service thread of a GPU: it acts on the broker's changes, publishes figures, and notices when the broker is lost.
#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/clock_lock.h"
#include "client/gpu_session.h"

namespace gpushare::client {
namespace {

constexpr Nanos kLongestTick = Millis(160);
constexpr Nanos kLookForBroker = Millis(10);  // how often to look for a new broker's page

using quota::Minus;

GpuSession::Figures Sum(const GpuSession::Figures& one, const GpuSession::Figures& other) {
  return {.launches = one.launches + other.launches,
          .waits = one.waits + other.waits,
          .throttled = one.throttled + other.throttled};
}

}  // namespace

void GpuSession::SetFigures(std::function<Figures()> figures) {
  const base::ClockLock lock(clock_, calling_);
  if (figures_) figures_before_ = Sum(figures_before_, figures_());
  figures_ = std::move(figures);
}

// The counts of all engines and holders, including those that are gone.
GpuSession::Published GpuSession::Count() {
  Published now;
  {
    const base::ClockLock calling(clock_, calling_);
    now.figures = figures_ ? Sum(figures_before_, figures_()) : figures_before_;
  }
  const base::ClockLock limiting(clock_, limiting_);
  if (const quota::Holder* const holder = holder_.load()) now.memory = holder->figures();
  now.memory.charged += left_.load();
  now.memory.denied += memory_before_.denied;
  now.memory.peak = std::max(now.memory.peak, memory_before_.peak);
  return now;
}

// Publishes the figures. Whether any has changed.
bool GpuSession::Publish() {
  const Published now = Count();
  const std::lock_guard lock(lock_);
  // Unchanged figures are written too, since the page may be new.
  ipc::UsagePage& usage = *pages_->usage;
  usage.memory_charged.store(now.memory.charged, std::memory_order_relaxed);
  usage.memory_peak.store(now.memory.peak, std::memory_order_relaxed);
  const Figures &all = now.figures, &before = before_session_.figures;
  usage.allocations_denied.store(Minus(now.memory.denied, before_session_.memory.denied),
                                 std::memory_order_relaxed);
  usage.launches.store(Minus(all.launches, before.launches), std::memory_order_relaxed);
  usage.waits.store(Minus(all.waits, before.waits), std::memory_order_relaxed);
  usage.throttled_ns.store((all.throttled - before.throttled).count(), std::memory_order_relaxed);
  return std::exchange(published_, now) != now;
}

// While the broker is silent it is called repeatedly, so that it advances the beat as soon as it works again.
void GpuSession::Listen(Time now) {
  std::shared_ptr<const Pages> at;
  bool silent, changed;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    silent = silence_.Look(at->limits->beat.load(std::memory_order_relaxed), now);
    if (lost_ && !silent_) return;  // the session has lost the connection, which decides
    changed = silent != silent_;
  }
  if (changed) {
    if (silent) TakeAnswer();  // an earlier answer counts
    const std::lock_guard lock(lock_);
    if (lost_ != silent_ || pages_ != at) return;
    lost_ = silent_ = silent;
    const ipc::LimitsPage& page = *at->limits;
    silent ? time_.Lose(ReadLimits(page), goes_on_, now) : time_.Find();
    for (size_t way = 0; way < copies_.size(); ++way) {
      silent ? copies_[way].Lose(ReadCopies(page, way), goes_on_, now) : copies_[way].Find();
    }
    ReadWhetherCopiesAreHeld(page);
  }
  if (silent) at->bell.Ring();
  if (changed) CallOnTime();
}

Time GpuSession::Look(Time now) {
  if (fork_mark_->InChild()) return kNever;
  Listen(now);
  bool lost, ended;
  {
    const std::lock_guard lock(lock_);
    looked_at_ = pages_;
    lost = lost_;
    ended = ended_;
  }
  wake_seen_ = looked_at_->limits->wake.load(std::memory_order_acquire);
  if (!lost) {
    TimeShare::Limits limits = ReadLimits(*looked_at_->limits);
    limits.in_line = false;  // a change of this flag allows nothing more, so it need not be told
    std::array<uint64_t, 4> copies;
    for (size_t way = 0; way < copies_.size(); ++way) {
      const CopyShare::Limits now_there = ReadCopies(*looked_at_->limits, way);
      copies[2 * way] = now_there.granted;
      copies[2 * way + 1] = now_there.rate;
    }
    bool changed = std::exchange(copies_seen_, copies) != copies;
    changed |= std::exchange(seen_, limits) != limits;
    {
      const std::lock_guard lock(lock_);
      if (pages_ == looked_at_) changed |= ReadWhetherCopiesAreHeld(*pages_->limits);
    }
    if (changed) CallOnTime();
    TakeAnswer();
    AnswerRecall();
    LowerToPage();
  }
  if (now >= publish_at_) {
    tick_ = Publish() ? kPublishEvery : std::min(2 * tick_, kLongestTick);
    publish_at_ = After(now, tick_);
  }
  return lost && !ended ? std::min(publish_at_, After(now, kLookForBroker)) : publish_at_;
}

void GpuSession::Await(Time deadline) {
  if (fork_mark_->InChild() || pages() != looked_at_) return;
  clock_.WaitShared(looked_at_->limits->wake, wake_seen_, deadline);
}

void GpuSession::Nudge() {
  if (fork_mark_->InChild()) return;
  clock_.WakeShared(pages()->limits->wake, kEverybody);
}

void GpuSession::Lose(bool goes_on, bool for_good) {
  const Time now = clock_.Now();
  TakeAnswer();  // an earlier answer counts
  {
    const std::lock_guard lock(lock_);
    if (!std::exchange(lost_, true) || silent_) at_loss_ = published_;
    silent_ = false;
    ended_ |= for_good;
    time_.Lose(ReadLimits(*pages_->limits), goes_on, now);
    for (size_t way = 0; way < copies_.size(); ++way) {
      copies_[way].Lose(ReadCopies(*pages_->limits, way), goes_on, now);
    }
    ReadWhetherCopiesAreHeld(*pages_->limits);
  }
  Nudge();
  CallOnTime();
}

void GpuSession::Resume(std::shared_ptr<const Pages> pages) {
  std::shared_ptr<const Pages> before = std::move(pages);
  {
    const std::lock_guard lock(lock_);
    std::swap(pages_, before);
    lost_ = false;
    silence_.Begin();
    before_session_ = at_loss_;
    time_.Begin();
    for (CopyShare& way : copies_) way.Begin();
    ReadWhetherCopiesAreHeld(*pages_->limits);
    asked_ = taken_ = recall_seen_ = 0;
  }
  // Wakes the waiters on the old page, so that they look at the new one.
  clock_.WakeShared(before->limits->wake, kEverybody);
  const Time until = After(clock_.Now(), kLongestAnswer);
  {
    const base::ClockLock asking(clock_, asking_, until);
    LowerToPage();
    const uint64_t charged = Charged();
    Question question{clock_.Now(), clock_.Now()};
    if (asking && charged > 0) Ask(charged, charged, &question, until);
  }
  CallOnTime();
}

}  // namespace gpushare::client
