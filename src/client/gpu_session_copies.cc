// SPDX-License-Identifier: Apache-2.0
// A process's copies: the turns that the broker grants of the tenant's limit, and the process's part of the link.
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "client/gpu_session.h"

namespace gpushare::client {

gate::CopyState GpuSession::Copies(gate::CopyDirection direction, Time now) {
  // The driver does not work in a child anyway.
  if (fork_mark_->InChild()) return gate::CopyState::kUnlimited;
  // Uses the state that the service thread last saw, not the page, since only that thread tells the engine of changes.
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
    // Repeated, so that a silent broker is noticed.
    const bool more = at->usage->copy_wanted[way].exchange(wanted) < wanted;
    ring = !lost_ && (more || now >= After(copies_asked_at_[way], CopyShare::kAskAgain));
    // The broker may have granted enough before it saw this wish; then it does not wake this process, so look here.
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

// ---- The link

// With lock_.
void GpuSession::SayWhatWasGiven(size_t way) {
  ipc::UsagePage& usage = *pages_->usage;
  usage.link_given[way].store(link_[way].given(), std::memory_order_release);
  usage.link_done[way].store(link_[way].done(), std::memory_order_release);
  usage.link_wanted[way].store(link_[way].wanted());
}

// Without a broker nobody divides the link.
gate::LinkState GpuSession::Link(gate::CopyDirection direction) const {
  if (!shares_link_.load(std::memory_order_relaxed)) return gate::LinkState::kFree;
  if (fork_mark_->InChild()) return gate::LinkState::kFree;
  const std::lock_guard lock(lock_);
  return LinkShare::Binds(Granted(static_cast<size_t>(direction))) ? gate::LinkState::kBound
                                                                   : gate::LinkState::kShared;
}

uint64_t GpuSession::LinkWindow(gate::CopyDirection direction) const {
  if (!shares_link_.load(std::memory_order_relaxed) || fork_mark_->InChild()) return 0;
  const std::lock_guard lock(lock_);
  return lost_ ? 0 : pages_->limits->link_window[static_cast<size_t>(direction)].load();
}

// With lock_.
uint64_t GpuSession::Granted(size_t way) const {
  return lost_ ? 0 : pages_->limits->link_granted[way].load();
}

bool GpuSession::TakeLink(gate::CopyDirection direction, uint64_t bytes, bool force, Time now) {
  if (fork_mark_->InChild()) return true;
  const auto way = static_cast<size_t>(direction);
  std::shared_ptr<const Pages> at;
  LinkShare::Answer answer;
  {
    const std::lock_guard lock(lock_);
    at = pages_;
    answer = link_[way].Take(bytes, Granted(way), force, now);
    SayWhatWasGiven(way);
    answer.ring &= !lost_;
    if (answer.ring) Calls(now);
  }
  if (answer.ring) at->bell.Ring();
  return answer.open;
}

void GpuSession::LinkDone(gate::CopyDirection direction, uint64_t bytes) {
  if (fork_mark_->InChild()) return;
  const auto way = static_cast<size_t>(direction);
  const std::lock_guard lock(lock_);
  link_[way].Done(bytes);
  SayWhatWasGiven(way);
}

}  // namespace gpushare::client
