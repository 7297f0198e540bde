// SPDX-License-Identifier: Apache-2.0
// The wall clock: the machine's clock in place of the virtual one.
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "sim/clock/clock.h"

namespace gpushare::sim {

uint64_t MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void Clock::RunDueWallEvents() {
  const uint64_t wall = MonotonicNow();
  while (next_event_ <= wall) {
    AdvanceTo(next_event_);
    run_events_();
  }
  AdvanceTo(wall);
  if (blocked()) run_events_();
}

// Sleeps until the next event known now; SetNextEvent() wakes the sleepers when an earlier one is added.
bool Clock::WaitWall(Thread* self, uint64_t deadline) {
  // A thread that is cancelled while it sleeps would stay in the lists. If a wait is to be a cancellation point, the thread is
  // cancelled between two sleeps, while it holds the clock, as if the call had returned: then no list contains it.
  int cancels = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
  const bool cancellable = cancellable_ && self->word == nullptr && !self->internal;
  while (!self->woken) {
    RunDueWallEvents();
    if (self->woken) break;
    if (now() >= deadline) {
      Remove(self);
      self->timed_out = true;
      break;
    }
    if (cancellable) LeaveIfCancelled(self, cancels);
    std::unique_lock lock(wall_mutex_, std::adopt_lock);
    constexpr uint64_t kLookEvery = 50'000, kShort = 10'000;
    uint64_t until = std::min(next_event_, deadline);
    if (blocked() || cancellable) until = std::min(until, now() + kLookEvery);
    if (until == kForever) {
      wall_changed_.wait(lock);
    } else if (self->internal && until - now() <= kShort) {
      // A sleep would take longer than the time until the device's next event.
      lock.unlock();
      while (MonotonicNow() < until) sched_yield();
      lock.lock();
    } else {
      wall_changed_.wait_for(lock, std::chrono::nanoseconds(until - now()));
    }
    lock.release();
    running_ = self;
  }
  self->SetState(ThreadState::kRunning);
  pthread_setcancelstate(cancels, nullptr);
  return !self->timed_out;
}

void Clock::LeaveIfCancelled(Thread* self, int cancels) {
  struct Left {
    Clock* clock;
    Thread* self;
    bool cancelled;
    ~Left() {
      if (!cancelled) return;
      clock->Remove(self);
      self->SetState(ThreadState::kRunning);
    }
  } left{this, self, /*cancelled=*/true};
  pthread_setcancelstate(cancels, nullptr);
  pthread_testcancel();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  left.cancelled = false;
}

}  // namespace gpushare::sim
