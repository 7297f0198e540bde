// SPDX-License-Identifier: Apache-2.0
// The turn: which thread has it, which is next, and how it is passed on.
#include "sim/clock/clock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "sim/processes/turn.h"

namespace gpushare::sim {
namespace {

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected,
          nullptr, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr,
          nullptr, 0);
}

bool Earlier(const Thread* a, const Thread* b) {
  return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

}  // namespace

Clock::Clock(RunEvents run_events) : run_events_(run_events) { heap_.reserve(64); }

uint64_t Clock::Read() const {
  if (!is_virtual()) return MonotonicNow();
  const SharedTurn* const turn = shared_.load(std::memory_order_acquire);
  return turn == nullptr ? now() : std::max(now(), turn->now());
}

void Clock::Configure(bool is_virtual, bool pin, const Lateness& late, uint64_t watchdog_ns) {
  if (is_virtual != virtual_.load(std::memory_order_relaxed)) {
    // The caller entered under one clock and will leave under the other.
    Thread* const self = running_;
    if (is_virtual) {
      idle_.store(0);
      wall_mutex_.unlock();
    } else {
      wall_mutex_.lock();
      idle_.store(1);
    }
    running_ = self;
    virtual_.store(is_virtual, std::memory_order_relaxed);
  }
  if (!is_virtual) now_.store(MonotonicNow(), std::memory_order_relaxed);
  late_ = late;
  const std::lock_guard lock(registry_mutex_);
  pin_ = pin;
  watchdog_ns_ = watchdog_ns;
}

// ---- The queue of runnable threads: a binary heap in which each thread knows its index.

void Clock::HeapUp(size_t i) {
  Thread* const thread = heap_[i];
  while (i > 0) {
    const size_t parent = (i - 1) / 2;
    if (!Earlier(thread, heap_[parent])) break;
    heap_[i] = heap_[parent];
    heap_[i]->heap_index = static_cast<int>(i);
    i = parent;
  }
  heap_[i] = thread;
  thread->heap_index = static_cast<int>(i);
}

void Clock::HeapDown(size_t i) {
  Thread* const thread = heap_[i];
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && Earlier(heap_[child + 1], heap_[child])) ++child;
    if (!Earlier(heap_[child], thread)) break;
    heap_[i] = heap_[child];
    heap_[i]->heap_index = static_cast<int>(i);
    i = child;
  }
  heap_[i] = thread;
  thread->heap_index = static_cast<int>(i);
}

void Clock::Queue(Thread* thread, uint64_t at) {
  thread->at = at;
  thread->seq = ++seq_;
  if (!thread->service) ++queued_;
  heap_.push_back(thread);
  HeapUp(heap_.size() - 1);
  HeapTopChanged();
}

void Clock::Unqueue(Thread* thread) {
  const auto i = static_cast<size_t>(thread->heap_index);
  Thread* const last = heap_.back();
  heap_.pop_back();
  thread->heap_index = -1;
  if (!thread->service) --queued_;
  if (last != thread) {
    heap_[i] = last;
    last->heap_index = static_cast<int>(i);
    HeapDown(i);
    HeapUp(static_cast<size_t>(last->heap_index));
  }
  HeapTopChanged();
}

// ---- The turn.

void Clock::DrainInbox() {
  Thread* arrived = inbox_.exchange(nullptr, std::memory_order_acquire);
  Thread* in_order = nullptr;
  while (arrived != nullptr) {
    Thread* const next = arrived->next_arrival;
    arrived->next_arrival = in_order;
    in_order = arrived;
    arrived = next;
  }
  for (; in_order != nullptr; in_order = in_order->next_arrival) Queue(in_order, now());
}

// Takes the next thread to run off the queue, with the clock at its time; null when there is nothing to do. Time passes only
// while a thread other than a service waits or is to run. If there is none, time stands still, and a service runs only when its
// moment has already come.
Thread* Clock::PickNext() {
  if (blocked()) run_events_();
  for (;;) {
    if (inbox_.load(std::memory_order_relaxed) != nullptr) DrainInbox();
    if (shared_.load(std::memory_order_relaxed) != nullptr) RefreshLimit();
    const bool device_first = next_event_ != kForever && next_event_ <= next_thread_ && driven();
    const uint64_t at = device_first ? next_event_ : next_thread_;
    if (at >= limit_ || at == kForever || (at > now() && !driven())) return nullptr;
    if (device_first) {
      AdvanceTo(next_event_);
      run_events_();
      continue;
    }
    Thread* const next = heap_[0];
    Unqueue(next);
    AdvanceTo(next->at);
    if (next->waiting_on != nullptr) {
      Remove(next);
      next->timed_out = true;
    }
    return next;
  }
}

void Clock::PassTurn(Thread* next) {
  running_ = next;
  switches_.fetch_add(1, std::memory_order_relaxed);
  next->turn.store(1, std::memory_order_release);
  FutexWake(&next->turn);
}

void Clock::AwaitTurn(Thread* self) {
  while (self->turn.load(std::memory_order_acquire) == 0) FutexWait(&self->turn, 0);
  self->turn.store(0, std::memory_order_relaxed);
}

// Hands the turn on. If `self` is next, it gets the turn through `self->turn`, as any other thread does.
void Clock::ScheduleFrom(Thread* self) {
  for (;;) {
    Thread* const next = PickNext();
    if (next != nullptr) {
      if (next == self) {
        running_ = self;
        self->turn.store(1,
                         std::memory_order_relaxed);  // AwaitTurn() sees it without a system call
      } else {
        PassTurn(next);
      }
      return;
    }
    running_ = nullptr;
    if (shared_.load(std::memory_order_relaxed) != nullptr) {
      if (GiveAway()) return;
      continue;
    }
    idle_.store(1);
    // A thread that arrived after PickNext() looked may have seen the turn still taken.
    if (inbox_.load() == nullptr || idle_.exchange(0) == 0) return;
  }
}

void Clock::SwitchAway(Thread* self, bool stays) {
  ScheduleFrom(self);
  if (!stays) return;
  AwaitTurn(self);
  self->SetState(ThreadState::kRunning);
  self->doing.store("", std::memory_order_relaxed);
}

void Clock::SpendSlow(uint64_t target) {
  if (!is_virtual()) return;
  if (blocked()) run_events_();
  for (;;) {
    if (inbox_.load(std::memory_order_relaxed) != nullptr) DrainInbox();
    if (shared_.load(std::memory_order_relaxed) != nullptr) [[unlikely]]
      RefreshLimit();
    if (next_event_ <= target && next_event_ <= next_thread_ && next_event_ < limit_) {
      AdvanceTo(next_event_);
      run_events_();
      continue;
    }
    if (next_thread_ > target && target < limit_) {
      AdvanceTo(target);
      return;
    }
    break;
  }
  Thread* const self = running_;
  self->SetState(ThreadState::kRunnable);
  Queue(self, target);
  SwitchAway(self, /*stays=*/true);
}

void Clock::Arrive(Thread* self) {
  self->SetState(ThreadState::kArriving);
  Thread* head = inbox_.load(std::memory_order_relaxed);
  do {
    self->next_arrival = head;
  } while (!inbox_.compare_exchange_weak(head, self));
  if (SharedTurn* const turn = shared_.load(); turn != nullptr && away_.load()) {
    turn->Request();
  } else if (idle_.load() == 1 && idle_.exchange(0) == 1) {
    ScheduleFrom(self);
  }
  AwaitTurn(self);
  self->SetState(ThreadState::kRunning);
}

void Clock::Enter(Thread* self) {
  if (is_virtual()) {
    Arrive(self);
    return;
  }
  wall_mutex_.lock();
  running_ = self;
  RunDueWallEvents();
}

void Clock::Leave(Thread* self) {
  if (is_virtual()) {
    self->SetState(ThreadState::kOutside);
    SwitchAway(self, /*stays=*/false);
    return;
  }
  running_ = nullptr;
  wall_mutex_.unlock();
}

}  // namespace gpushare::sim
