// SPDX-License-Identifier: Apache-2.0
// Waiting for a thing or for a word of memory, and waking the waiters.
#include <algorithm>

#include "sim/clock/clock.h"

namespace gpushare::sim {

void Clock::Append(WaitList& list, Thread* thread) {
  thread->waiting_on = &list;
  thread->wait_next = nullptr;
  thread->wait_previous = list.tail;
  (list.tail != nullptr ? list.tail->wait_next : list.head) = thread;
  list.tail = thread;
  if (!thread->idle && !thread->service) ++waiting_;
}

void Clock::Remove(Thread* thread) {
  WaitList& list = *thread->waiting_on;
  (thread->wait_previous != nullptr ? thread->wait_previous->wait_next : list.head) =
      thread->wait_next;
  (thread->wait_next != nullptr ? thread->wait_next->wait_previous : list.tail) =
      thread->wait_previous;
  thread->waiting_on = nullptr;
  if (!thread->idle && !thread->service) --waiting_;
}

void Clock::Wake(Thread* thread, uint64_t at) {
  Remove(thread);
  if (!is_virtual()) {
    thread->woken = true;
    wall_changed_.notify_all();
    return;
  }
  if (thread->heap_index >= 0) Unqueue(thread);
  thread->SetState(ThreadState::kRunnable);
  Queue(thread, at);
}

void Clock::WakeAll(WaitList& list, uint64_t delay) {
  while (list.head != nullptr) Wake(list.head, now() + delay);
}

void Clock::WakeOne(WaitList& list, uint64_t delay) {
  if (list.head != nullptr) Wake(list.head, now() + delay);
}

bool Clock::Wait(WaitList& list, const char* doing, uint64_t deadline) {
  Thread* const self = running_;
  self->timed_out = false;
  self->woken = false;
  self->doing.store(doing, std::memory_order_relaxed);
  Append(list, self);
  self->SetState(ThreadState::kWaiting);
  if (!is_virtual()) return WaitWall(self, deadline);
  if (deadline != kForever) Queue(self, std::max(deadline, now()));
  SwitchAway(self, /*stays=*/true);
  return !self->timed_out;
}

int Clock::WaitWord(const uint32_t* word, uint32_t expected, uint64_t deadline, uint64_t spin) {
  if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != expected) return 0;
  if (deadline <= now()) return 1;
  Thread* const self = running_;
  self->word = word;
  self->wait_since = now();
  self->wait_spin = spin;
  if (is_virtual() && deadline != kForever && deadline - now() > spin) {  // it sleeps
    deadline = std::max(deadline, deadline + late_.timer);
  }
  const bool woken =
      Wait(words_[(reinterpret_cast<uintptr_t>(word) >> 2) % kWordBuckets], "wait_word", deadline);
  self->word = nullptr;
  return woken ? 0 : 1;
}

void Clock::WakeWord(const uint32_t* word, int count) {
  WaitList& list = words_[(reinterpret_cast<uintptr_t>(word) >> 2) % kWordBuckets];
  for (Thread *thread = list.head, *next; thread != nullptr && count > 0; thread = next) {
    next = thread->wait_next;
    if (thread->word != word) continue;
    const bool spinning = now() - thread->wait_since <= thread->wait_spin;
    Wake(thread, now() + (spinning ? late_.spin : late_.sleep));
    --count;
  }
}

}  // namespace gpushare::sim
