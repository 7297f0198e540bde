// SPDX-License-Identifier: Apache-2.0
#include "sim/clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "sim/shared_turn.h"

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

uint64_t MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool Earlier(const Thread* a, const Thread* b) {
  return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

void SetState(Thread* thread, ThreadState state) {
  thread->state.store(state, std::memory_order_relaxed);
}

}  // namespace

bool StartThread(void* (*body)(void*), void* arg) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, body, arg) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

Clock::Clock(RunEvents run_events) : run_events_(run_events) { heap_.reserve(64); }

uint64_t Clock::Read() const {
  if (!is_virtual()) return MonotonicNow();
  const SharedTurn* const turn = shared_.load(std::memory_order_acquire);
  return turn == nullptr ? now() : std::max(now(), turn->now());
}

void Clock::Configure(bool is_virtual, bool pin, uint64_t wake_spin, uint64_t wake_sleep,
                      uint64_t watchdog_ns) {
  if (is_virtual != virtual_.load(std::memory_order_relaxed)) {
    // The caller has entered by the one clock and will leave by the other.
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
  wake_spin_ = wake_spin;
  wake_sleep_ = wake_sleep;
  const std::lock_guard lock(registry_mutex_);
  pin_ = pin;
  watchdog_ns_ = watchdog_ns;
}

// ---- The queue of runnable threads: a binary heap that knows where each thread stands.

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

// ---- Waiting lists.

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
  SetState(thread, ThreadState::kRunnable);
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
  SetState(self, ThreadState::kWaiting);
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
    Wake(thread, now() + (spinning ? wake_spin_ : wake_sleep_));
    --count;
  }
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

// The next thread to run, off the queue and with the clock at its time; null when there is nothing to
// do. Time passes only while a thread that is no service waits or is to run: with nobody in the driver it
// stands still, and a service runs when its moment has come already.
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

// Hands the turn on. When it goes to `self`, through `self->turn` as to anybody.
void Clock::ScheduleFrom(Thread* self) {
  for (;;) {
    Thread* const next = PickNext();
    if (next != nullptr) {
      if (next == self) {
        running_ = self;
        self->turn.store(1,
                         std::memory_order_relaxed);  // seen by AwaitTurn() without a system call
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
  SetState(self, ThreadState::kRunning);
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
  SetState(self, ThreadState::kRunnable);
  Queue(self, target);
  SwitchAway(self, /*stays=*/true);
}

void Clock::Arrive(Thread* self) {
  SetState(self, ThreadState::kArriving);
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
  SetState(self, ThreadState::kRunning);
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
    SetState(self, ThreadState::kOutside);
    SwitchAway(self, /*stays=*/false);
    return;
  }
  running_ = nullptr;
  wall_mutex_.unlock();
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

// Sleeps until what is the next event now; SetNextEvent() wakes the sleepers when an earlier one
// comes.
bool Clock::WaitWall(Thread* self, uint64_t deadline) {
  while (!self->woken) {
    RunDueWallEvents();
    if (self->woken) break;
    if (now() >= deadline) {
      Remove(self);
      self->timed_out = true;
      break;
    }
    std::unique_lock lock(wall_mutex_, std::adopt_lock);
    constexpr uint64_t kLookEvery = 50'000;
    uint64_t until = std::min(next_event_, deadline);
    if (blocked()) until = std::min(until, now() + kLookEvery);
    if (until == kForever) {
      wall_changed_.wait(lock);
    } else {
      wall_changed_.wait_for(lock, std::chrono::nanoseconds(until - now()));
    }
    lock.release();
    running_ = self;
  }
  SetState(self, ThreadState::kRunning);
  return !self->timed_out;
}

// ---- Among processes. The thread that gives the turn away does not wait for it; one of the clock's own
// does, and wakes whose turn it is here.

void Clock::RefreshLimit() {
  limit_ = shared_.load(std::memory_order_relaxed)->Limit(now(), &others_drive_);
  horizon_ = 0;  // every call looks: what this process does changes when others are due
  HeapTopChanged();
}

// True: another process has the turn, or none. Nothing here may be touched afterwards.
bool Clock::GiveAway() {
  away_.store(true);
  // A thread that arrived before that did not ask for the turn.
  if (inbox_.load() == nullptr && shared_.load(std::memory_order_relaxed)
                                      ->Pass({.now = now(),
                                              .thread = queued_ > 0 ? next_thread_ : kForever,
                                              .event = std::min(next_event_, next_thread_),
                                              .waits = waiting_ > 0})) {
    return true;
  }
  away_.store(false);
  RefreshLimit();
  return false;
}

void Clock::TurnCame(uint64_t at) {
  away_.store(false);
  AdvanceTo(at);
  RefreshLimit();
  run_events_();
}

void Clock::Share(SharedTurn* turn) {
  away_.store(true);
  shared_.store(turn);
  {
    const std::lock_guard lock(registry_mutex_);
    StartWatchdog();
  }
  int cpu = -1;
  const uint64_t at = turn->Join(now(), &cpu);
  {
    const std::lock_guard lock(registry_mutex_);
    if (cpu_ < 0 && sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0) cpu_ = cpu;
  }
  away_.store(false);
  AdvanceTo(at);
  RefreshLimit();
  StartTurnThread();
}

void Clock::Unshare() {
  shared_.store(nullptr);
  if (away_.exchange(false) && running_ == nullptr) idle_.store(1);
  limit_ = horizon_ = kForever;
  others_drive_ = false;
  HeapTopChanged();
}

void* TurnMain(void* arg) {
  Clock* const clock = static_cast<Clock*>(arg);
  SharedTurn* const turn = clock->shared_.load();
  uint64_t at;
  while (turn != nullptr && turn->Await(&at)) {
    clock->TurnCame(at);
    clock->ScheduleFrom(nullptr);
  }
  return nullptr;
}

void Clock::StartTurnThread() { StartThread(&TurnMain, this); }

// ---- Registration.

Thread* Clock::NewThread() {
  auto thread = std::make_unique<Thread>();
  const std::lock_guard lock(registry_mutex_);
  threads_.push_back(thread.get());
  return thread.release();
}

void Clock::DeleteThread(Thread* thread) {
  {
    const std::lock_guard lock(registry_mutex_);
    threads_.erase(std::find(threads_.begin(), threads_.end(), thread));
  }
  delete thread;
}

void Clock::Register(Thread* self, const char* name, bool has_turn) {
  {
    const std::lock_guard lock(registry_mutex_);
    std::snprintf(self->name, sizeof(self->name), "%s", name);
    self->registered = true;
    if (!self->internal) registered_.fetch_add(1, std::memory_order_relaxed);
    if (is_virtual()) {
      Pin(self);
      StartWatchdog();
    }
  }
  if (is_virtual() && !has_turn) Arrive(self);
}

void Clock::Unregister(Thread* self) {
  {
    const std::lock_guard lock(registry_mutex_);
    self->registered = false;
    if (!self->internal) registered_.fetch_sub(1, std::memory_order_relaxed);
    Unpin(self);
  }
  if (is_virtual()) {
    SetState(self, ThreadState::kOutside);
    SwitchAway(self, /*stays=*/false);
  }
}

Thread* Clock::Announce(const char* name, Kind kind) {
  Thread* const thread = NewThread();
  {
    const std::lock_guard lock(registry_mutex_);
    thread->announced = ++announced_;
    std::snprintf(thread->name, sizeof(thread->name), "%s", name);
    thread->registered = true;
    thread->internal = kind == Kind::kInternal;
    thread->service = kind == Kind::kService;
    if (!thread->internal) registered_.fetch_add(1, std::memory_order_relaxed);
  }
  if (is_virtual()) {
    SetState(thread, ThreadState::kAnnounced);
    Queue(thread, now());
  }
  return thread;
}

void Clock::Withdraw(Thread* announced) {
  if (announced->heap_index >= 0) Unqueue(announced);
  if (!announced->internal) registered_.fetch_sub(1, std::memory_order_relaxed);
  DeleteThread(announced);
}

Thread* Clock::FindAnnounced(uint64_t number) {
  const std::lock_guard lock(registry_mutex_);
  return FindAnnouncedLocked(number);
}

Thread* Clock::FindAnnouncedLocked(uint64_t number) {
  for (Thread* thread : threads_) {
    if (number != 0 && thread->announced == number) return thread;
  }
  return nullptr;
}

Thread* Clock::EnterAnnounced(uint64_t number) {
  Thread* self = nullptr;
  {
    const std::lock_guard lock(registry_mutex_);
    self = FindAnnouncedLocked(number);
    if (self == nullptr) return nullptr;
    self->announced = 0;
    if (is_virtual()) {
      Pin(self);
      StartWatchdog();
    }
  }
  if (is_virtual()) {
    AwaitTurn(self);
    SetState(self, ThreadState::kRunning);
  }
  return self;
}

void Clock::BeginExternal(Thread* self) {
  self->external = true;
  if (is_virtual()) Leave(self);
}

void Clock::EndExternal(Thread* self) {
  self->external = false;
  if (is_virtual()) Enter(self);
}

// ---- One processor for all registered threads. A hand-over between two processors costs an
// interrupt and a wake from idle; on one it is a context switch.

void Clock::Pin(Thread* self) {
  if (!pin_) return;
  if (cpu_ < 0) {
    if (sched_getaffinity(0, sizeof(allowed_), &allowed_) != 0) {
      pin_ = false;
      return;
    }
    cpu_ = sched_getcpu();
  }
  if (cpu_ < 0) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(cpu_), &one);
  self->pinned = sched_setaffinity(0, sizeof(one), &one) == 0;
}

void Clock::Unpin(Thread* self) {
  if (!self->pinned) return;
  sched_setaffinity(0, sizeof(allowed_), &allowed_);
  self->pinned = false;
}

// ---- Watchdog.

void Clock::SetLog(Log log, void* context) {
  const std::lock_guard lock(registry_mutex_);
  log_ = log;
  log_context_ = context;
}

void Clock::Report(const std::string& line) {
  Log log;
  void* context;
  {
    const std::lock_guard lock(registry_mutex_);
    log = log_;
    context = log_context_;
  }
  if (log != nullptr) log(line.c_str(), context);
}

// What keeps the clock from going on; empty when nothing that we know of. Any thread.
std::string Clock::Describe() {
  if (const SharedTurn* const turn = shared_.load(); turn != nullptr && away_) {
    const std::string elsewhere = turn->Describe();
    return elsewhere.empty() ? elsewhere
                             : "the virtual clock of several processes stands: " + elsewhere;
  }
  const std::lock_guard lock(registry_mutex_);
  char text[256];
  std::string waiting;
  for (const Thread* thread : threads_) {
    const char* const name = thread->name[0] != 0 ? thread->name : "(not registered)";
    switch (thread->state.load(std::memory_order_relaxed)) {
      case ThreadState::kRunning:
        std::snprintf(text, sizeof(text),
                      "the virtual clock stands at %.6f s: thread '%s' holds the turn and neither "
                      "calls the driver nor waits through the clock",
                      static_cast<double>(now()) / 1e9, name);
        return text;
      case ThreadState::kAnnounced:
        if (thread->turn.load(std::memory_order_relaxed) == 0) break;
        std::snprintf(
            text, sizeof(text),
            "the virtual clock stands at %.6f s: thread '%s' was announced and never came",
            static_cast<double>(now()) / 1e9, name);
        return text;
      case ThreadState::kWaiting:
        if (thread->idle || thread->service) break;
        std::snprintf(text, sizeof(text), "%s'%s' (%s)", waiting.empty() ? "" : ", ", name,
                      thread->doing.load(std::memory_order_relaxed));
        waiting += text;
        break;
      default:
        if (thread->external) return std::string();
        break;
    }
  }
  if (waiting.empty()) return waiting;
  std::snprintf(text, sizeof(text),
                "the virtual clock stands at %.6f s: no thread can run, and the device has nothing "
                "to do; waiting: ",
                static_cast<double>(now()) / 1e9);
  if (const int blocked = blocked_.load(std::memory_order_relaxed); blocked > 0) {
    waiting += "; " + std::to_string(blocked) + " stream(s) wait for a value in memory";
  }
  return text + waiting;
}

void* WatchdogMain(void* arg) {
  Clock* const clock = static_cast<Clock*>(arg);
  uint64_t seen_now = 0, seen_switches = 0, since = MonotonicNow();
  bool reported = false;
  for (;;) {
    uint64_t limit;
    {
      const std::lock_guard lock(clock->registry_mutex_);
      limit = clock->watchdog_ns_;
    }
    const uint64_t nap =
        limit == 0 ? 1'000'000'000 : std::clamp<uint64_t>(limit / 4, 1'000'000, 1'000'000'000);
    const timespec pause{static_cast<time_t>(nap / 1'000'000'000),
                         static_cast<long>(nap % 1'000'000'000)};
    nanosleep(&pause, nullptr);
    const uint64_t now = clock->Read();
    const uint64_t switches = clock->switches_.load(std::memory_order_relaxed);
    if (now != seen_now || switches != seen_switches || !clock->is_virtual() || limit == 0) {
      seen_now = now;
      seen_switches = switches;
      since = MonotonicNow();
      reported = false;
      continue;
    }
    if (reported || MonotonicNow() - since < limit) continue;
    const std::string line = clock->Describe();
    if (line.empty()) continue;
    reported = true;
    clock->Report(line);
  }
  return nullptr;
}

// Called with the registry locked. The thread stays for the life of the process: the library is
// linked so that it is never unloaded.
void Clock::StartWatchdog() {
  if (watchdog_running_ || watchdog_ns_ == 0) return;
  watchdog_running_ = StartThread(&WatchdogMain, this);
}

}  // namespace gpushare::sim
