// SPDX-License-Identifier: Apache-2.0
#include "client/gpu_session.h"

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>

#include "base/clock_lock.h"

namespace gpushare::client {
namespace {

constexpr uint64_t kLeastChunk = uint64_t{2} << 20;
constexpr uint64_t kChunksOfAShare = 64;
constexpr Nanos kLongestTick = Millis(160);
constexpr Nanos kLookForBroker = Millis(10);  // whose new page there may be
constexpr int kEverybody = INT32_MAX;

using quota::Minus;

GpuSession::Figures Sum(const GpuSession::Figures& one, const GpuSession::Figures& other) {
  return {.launches = one.launches + other.launches,
          .waits = one.waits + other.waits,
          .throttled = one.throttled + other.throttled};
}

// The pages stay mapped for good. Takes no memory: there may be none in a child.
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
  // Where the pages were in its parent, a child may have something else.
  Keep(std::move(pages_));
  Keep(std::move(looked_at_));
}

TimeShare::Limits GpuSession::ReadLimits(const ipc::LimitsPage& page) {
  const uint32_t flags = page.flags.load(std::memory_order_acquire);
  return {.closed = (flags & ipc::LimitsPage::kClosed) != 0,
          .suspended = (flags & ipc::LimitsPage::kSuspended) != 0,
          .bypass = (flags & ipc::LimitsPage::kBypass) != 0,
          .in_line = (flags & ipc::LimitsPage::kInLine) != 0,
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
    told.answer.ended = lost_ && for_good_;
    ipc::UsagePage& usage = *at->usage;
    usage.time_used_ns.store(told.used.count(), std::memory_order_relaxed);
    usage.time_ends_ns.store(told.ends.time_since_epoch().count(), std::memory_order_relaxed);
    usage.time_in_flight_ns.store(told.in_flight.count(), std::memory_order_release);
    usage.time_wanted_ns.store(told.wanted.count());
    usage.time_returned_ns.store(told.returned.count(), std::memory_order_release);
    // The broker may have struck it off before it saw what is wanted now; then it sees that, or this is seen here.
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

// What is idle so long is given back.
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

// ---- Copies.

gate::CopyState GpuSession::Copies(gate::CopyDirection direction, Time now) {
  if (fork_mark_->InChild()) return gate::CopyState::kUnlimited;  // the driver does nothing there
  // As the service thread saw it last: it tells the engine of a change, the page does not.
  if (copies_suspended_.load()) return gate::CopyState::kSuspended;
  if (!LimitsCopies(direction)) return gate::CopyState::kUnlimited;
  const auto way = static_cast<size_t>(direction);
  const std::lock_guard lock(lock_);
  const bool open = copies_[way].Look(ReadCopies(*pages_->limits, way), now);
  SayWhatWasCopied(way);
  return open ? gate::CopyState::kOpen : gate::CopyState::kUsedUp;
}

// With lock_.
void GpuSession::SayWhatWasCopied(size_t way) {
  pages_->usage->copy_used[way].store(copies_[way].used(), std::memory_order_release);
}

void GpuSession::ChargeCopy(gate::CopyDirection direction, int64_t bytes) {
  if (fork_mark_->InChild()) return;
  const auto way = static_cast<size_t>(direction);
  const std::lock_guard lock(lock_);
  if (!LimitsCopies(direction)) return;
  copies_[way].Charge(bytes);
  SayWhatWasCopied(way);
}

Time GpuSession::AwaitCopies(gate::CopyDirection direction, Time now) {
  if (fork_mark_->InChild()) return kNever;
  const auto way = static_cast<size_t>(direction);
  std::shared_ptr<const Pages> at;
  bool ring;
  Time look_by;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    const uint64_t wanted = copies_[way].Await();
    // Again and again, so that it is known whether the broker is silent.
    const bool more = at->usage->copy_wanted[way].exchange(wanted) < wanted;
    ring = !lost_ && (more || now >= After(copies_asked_at_[way], CopyShare::kAskAgain));
    // The broker may have granted enough just before it saw that this is enough; then it does not say so.
    const CopyShare::Limits limits = ReadCopies(*at->limits, way);
    look_by = copies_[way].Look(limits, now) ? now : copies_[way].LookBy(limits, now);
    if (ring) {
      copies_asked_at_[way] = now;
      Calls(now);
    }
  }
  if (ring) at->bell.Ring();
  return look_by;
}

void GpuSession::NobodyAwaitsCopies(gate::CopyDirection direction) {
  if (fork_mark_->InChild()) return;
  const auto way = static_cast<size_t>(direction);
  const std::lock_guard lock(lock_);
  copies_[way].Unawait();
  pages_->usage->copy_wanted[way].store(0);
}

void GpuSession::SetOnTime(std::function<void()> on_time) {
  const base::ClockLock lock(clock_, calling_);
  on_time_ = std::move(on_time);
}

void GpuSession::SetFigures(std::function<Figures()> figures) {
  const base::ClockLock lock(clock_, calling_);
  if (figures_) figures_before_ = Sum(figures_before_, figures_());
  figures_ = std::move(figures);
}

void GpuSession::CallOnTime() {
  const base::ClockLock lock(clock_, calling_);
  if (on_time_) on_time_();
}

// ---- Memory.

uint64_t GpuSession::Limit() const {
  return fork_mark_->InChild() ? 0 : pages()->limits->memory_limit.load();
}

uint64_t GpuSession::Left() const {
  if (fork_mark_->InChild()) return 0;
  const uint64_t charged = ChargedNow();
  const std::lock_guard lock(lock_);
  const uint64_t limit = pages_->limits->memory_limit.load();
  if (lost_ || limit == quota::kUnlimited) return Minus(std::min(limit, granted_), charged);
  return Minus(Minus(limit, pages_->limits->memory_others.load()), charged);
}

void GpuSession::SetHolder(quota::Holder* holder, uint64_t left) {
  const base::ClockLock limiting(clock_, limiting_);
  if (const quota::Holder* const before = holder_.load()) {
    const quota::Holder::Figures last = before->figures();
    memory_before_.denied += last.denied;
    memory_before_.peak = std::max(memory_before_.peak, last.peak);
  }
  holder_.store(holder);
  left_.fetch_add(left);
  if (holder == nullptr) return;
  uint64_t granted;
  {
    const std::lock_guard lock(lock_);
    granted = granted_;
  }
  Limit(granted);
}

uint64_t GpuSession::ChargedNow() const {
  const quota::Holder* const holder = holder_.load();
  return left_.load() + (holder == nullptr ? 0 : holder->Charged());
}

void GpuSession::Limit(uint64_t granted) {
  if (quota::Holder* const holder = holder_.load()) holder->SetLimit(Minus(granted, left_.load()));
}

uint64_t GpuSession::Charged() {
  const base::ClockLock limiting(clock_, limiting_);
  return ChargedNow();
}

void GpuSession::GiveAllBack() {
  Publish();
  const uint64_t left = Charged();
  const std::lock_guard lock(lock_);
  ipc::UsagePage& usage = *pages_->usage;
  usage.memory_charged.store(left, std::memory_order_relaxed);
  usage.memory_left.store(left, std::memory_order_relaxed);
  usage.ended.store(1, std::memory_order_release);
}

// In pieces, so that small allocations do not each ask for themselves.
uint64_t GpuSession::InChunks(uint64_t needed, uint64_t limit) const {
  const uint64_t share = device_memory_ == 0 ? limit : std::min(limit, device_memory_);
  const uint64_t chunk = std::max(kLeastChunk, share / kChunksOfAShare);
  const uint64_t more = (chunk - needed % chunk) % chunk;
  return more > Minus(limit, needed) ? limit : needed + more;
}

bool GpuSession::GetRoom(quota::Account& account, uint64_t bytes, Time deadline) {
  if (fork_mark_->InChild()) return false;
  const Time until = std::min(deadline, After(clock_.Now(), kLongestAnswer));
  const base::ClockLock asking(clock_, asking_, until);
  if (!asking) return false;
  const auto has_room = [&] { return Minus(account.limit(), account.charged()) >= bytes; };
  bool in_chunks = true, again = true;
  for (;;) {
    if (has_room()) return true;  // what another thread has asked for may be enough
    const std::shared_ptr<const Pages> at = pages();
    if ((at->limits->flags.load() & ipc::LimitsPage::kDraining) != 0) return false;
    const uint64_t limit = at->limits->memory_limit.load(), charged = Charged();
    if (bytes > Minus(limit, charged)) return false;
    const uint64_t needed = charged + bytes, chunks = InChunks(needed, limit);
    // The broker may have had no more than what is needed.
    if (!in_chunks && chunks == needed) return false;
    if (Ask(charged, in_chunks ? chunks : needed, until)) {
      if (!std::exchange(in_chunks, false)) return has_room();
    } else if (pages() == at || clock_.Now() >= until || !std::exchange(again, false)) {
      return false;  // else it asks the broker that there is now
    }
  }
}

// With asking_. Whether it was answered by `until`; if it is later, Look() takes the answer.
bool GpuSession::Ask(uint64_t charged, uint64_t wanted, Time until) {
  std::shared_ptr<const Pages> at;
  {
    const std::lock_guard lock(lock_);
    if (lost_) return false;
    at = pages_;
    at->usage->memory_charged.store(charged, std::memory_order_relaxed);
    if (asked_ == taken_ || wanted_ != wanted) {
      wanted_ = wanted;
      at->usage->memory_wanted.store(wanted, std::memory_order_relaxed);
      at->usage->memory_asked.store(++asked_, std::memory_order_release);
    }
    Calls(clock_.Now());
  }
  at->bell.Ring();
  for (;;) {
    const uint32_t wake = at->limits->wake.load(std::memory_order_acquire);
    TakeAnswer();
    {
      const std::lock_guard lock(lock_);
      if (pages_ != at) return false;
      if (taken_ == asked_) return true;
      if (lost_) return false;
    }
    if (clock_.Now() >= until) return false;
    clock_.WaitShared(at->limits->wake, wake, until);
  }
}

void GpuSession::TakeAnswer() {
  const base::ClockLock limiting(clock_, limiting_);
  uint64_t granted;
  {
    const std::lock_guard lock(lock_);
    const ipc::LimitsPage& limits = *pages_->limits;
    if (lost_ || taken_ == asked_ ||
        limits.memory_answered.load(std::memory_order_acquire) != asked_) {
      return;
    }
    taken_ = asked_;
    granted = granted_ = limits.memory_granted.load();
  }
  Limit(granted);
}

// Whatever was agreed, the page's word is the most that may be held.
void GpuSession::LowerToPage() {
  const base::ClockLock limiting(clock_, limiting_);
  uint64_t granted;
  {
    const std::lock_guard lock(lock_);
    granted = pages_->limits->memory_granted.load();
    if (lost_ || granted >= granted_) return;
    granted_ = granted;
  }
  Limit(granted);
}

void GpuSession::AnswerRecall() {
  const base::ClockLock limiting(clock_, limiting_);
  std::shared_ptr<const Pages> at;
  uint32_t recall;
  uint64_t granted, kept;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    recall = at->limits->memory_recall.load(std::memory_order_acquire);
    if (lost_ || recall == recall_seen_) return;
    recall_seen_ = recall;
    granted = granted_;
    kept = at->limits->memory_recall_to.load();
  }
  kept = std::min(std::max(kept, ChargedNow()), granted);
  if (kept < granted) {
    Limit(kept);
    // What was reserved at the last moment stays: nothing is after that.
    const uint64_t charged = ChargedNow();
    if (charged > kept) Limit(kept = std::min(charged, granted));
  }
  {
    const std::lock_guard lock(lock_);
    if (pages_ != at) return;
    granted_ = kept;
    at->usage->memory_charged.store(ChargedNow(), std::memory_order_relaxed);
    at->usage->memory_kept.store(kept, std::memory_order_relaxed);
    at->usage->memory_recalled.store(recall, std::memory_order_release);
    // An answer that the broker gives without having seen this is not taken: the request has another number now.
    if (asked_ != taken_) {
      at->usage->memory_wanted.store(wanted_, std::memory_order_relaxed);
      at->usage->memory_asked.store(++asked_, std::memory_order_release);
    }
  }
  at->bell.Ring();
}

// ---- The service thread.

// What all engines and holders have counted, those that are gone included.
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

// Whether anything has changed.
bool GpuSession::Publish() {
  const Published now = Count();
  const std::lock_guard lock(lock_);
  // Also what has not changed: the page may be a new one.
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

// While it is silent it is called again and again: what it comes to first then is the beat.
void GpuSession::Listen(Time now) {
  std::shared_ptr<const Pages> at;
  bool silent, changed;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    silent = silence_.Look(at->limits->beat.load(std::memory_order_relaxed), now);
    if (lost_ && !silent_) return;  // the session has lost it, and knows better
    changed = silent != silent_;
  }
  if (changed) {
    if (silent) TakeAnswer();  // what it has said before counts
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
  bool lost, for_good;
  {
    const std::lock_guard lock(lock_);
    looked_at_ = pages_;
    lost = lost_;
    for_good = for_good_;
  }
  wake_seen_ = looked_at_->limits->wake.load(std::memory_order_acquire);
  if (!lost) {
    TimeShare::Limits limits = ReadLimits(*looked_at_->limits);
    limits.in_line = false;  // nothing can be handed out for it
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
  return lost && !for_good ? std::min(publish_at_, After(now, kLookForBroker)) : publish_at_;
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
  TakeAnswer();  // what it has said before counts
  {
    const std::lock_guard lock(lock_);
    if (!std::exchange(lost_, true) || silent_) at_loss_ = published_;
    silent_ = false;
    for_good_ = for_good;
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
  // Who sleeps on the old page looks at the new one.
  clock_.WakeShared(before->limits->wake, kEverybody);
  const Time until = After(clock_.Now(), kLongestAnswer);
  {
    const base::ClockLock asking(clock_, asking_, until);
    LowerToPage();
    const uint64_t charged = Charged();
    if (asking && charged > 0) Ask(charged, charged, until);
  }
  CallOnTime();
}

}  // namespace gpushare::client
