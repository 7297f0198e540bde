// SPDX-License-Identifier: Apache-2.0
// A process's memory grants: asking for them, taking them, and giving them back when the broker recalls them.
#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/clock_lock.h"
#include "client/gpu_session.h"

namespace gpushare::client {
namespace {

constexpr uint64_t kLeastChunk = uint64_t{2} << 20;
constexpr uint64_t kChunksOfAShare = 64;

using quota::Minus;

}  // namespace

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

uint64_t GpuSession::Reclaiming() const {
  return fork_mark_->InChild() ? 0 : pages()->limits->memory_reclaiming.load();
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

// Rounds up to chunks, so that small allocations do not each ask the broker.
uint64_t GpuSession::InChunks(uint64_t needed, uint64_t limit) const {
  const uint64_t share = device_memory_ == 0 ? limit : std::min(limit, device_memory_);
  const uint64_t chunk = std::max(kLeastChunk, share / kChunksOfAShare);
  const uint64_t more = (chunk - needed % chunk) % chunk;
  return more > Minus(limit, needed) ? limit : needed + more;
}

Time GpuSession::AnswerBy(Question* question, Time deadline) const {
  // After the reclaiming, the broker may still have to ask other processes, so kLongestAnswer begins anew.
  if (pages()->limits->memory_reclaiming.load(std::memory_order_acquire) > 0) {
    question->last_reclaimed = clock_.Now();
    return std::min(deadline, After(question->begun, kLongestReclaim));
  }
  return std::min(deadline, After(question->last_reclaimed, kLongestAnswer));
}

bool GpuSession::GetRoom(quota::Account& account, uint64_t bytes, Time deadline) {
  if (fork_mark_->InChild()) return false;
  Question question{clock_.Now(), clock_.Now()};
  const base::ClockLock asking(clock_, asking_, AnswerBy(&question, deadline));
  if (!asking) return false;
  const auto has_room = [&] { return Minus(account.limit(), account.charged()) >= bytes; };
  bool in_chunks = true, again = true;
  for (;;) {
    if (has_room()) return true;  // another thread's request may have brought enough
    const std::shared_ptr<const Pages> at = pages();
    if ((at->limits->flags.load() & ipc::LimitsPage::kDraining) != 0) return false;
    const uint64_t limit = at->limits->memory_limit.load(), charged = Charged();
    if (bytes > Minus(limit, charged)) return false;
    const uint64_t needed = charged + bytes, chunks = InChunks(needed, limit);
    // After a refusal in chunks, ask once more for exactly what is needed.
    if (!in_chunks && chunks == needed) return false;
    if (Ask(charged, in_chunks ? chunks : needed, &question, deadline)) {
      if (!std::exchange(in_chunks, false)) return has_room();
    } else if (pages() == at || clock_.Now() >= AnswerBy(&question, deadline) ||
               !std::exchange(again, false)) {
      return false;  // otherwise there is a new broker: ask that one
    }
  }
}

// With asking_. Whether the answer came in time; Look() takes a later answer.
bool GpuSession::Ask(uint64_t charged, uint64_t wanted, Question* question, Time deadline) {
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
    // Read before looking for the answer: the broker publishes the end of the reclaiming after the answer.
    const Time until = AnswerBy(question, deadline);
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

// The grant on the page is the most that may be held, whatever was agreed before.
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
    // Memory that was reserved just before the limit was lowered stays; after that nothing more can be reserved.
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
    // The request gets another number, so that an answer which the broker gives before it has seen this is not taken.
    if (asked_ != taken_) {
      at->usage->memory_wanted.store(wanted_, std::memory_order_relaxed);
      at->usage->memory_asked.store(++asked_, std::memory_order_release);
    }
  }
  at->bell.Ring();
}

}  // namespace gpushare::client
