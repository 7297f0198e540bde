// SPDX-License-Identifier: Apache-2.0
// The registry of threads: registering, announcing, blocking elsewhere, and the processor that they run on.
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>

#include "sim/clock/clock.h"

namespace gpushare::sim {

void NameOwnThread() {
  char name[16];
  std::snprintf(name, sizeof(name), "%s%d", kThreadName, static_cast<int>(syscall(SYS_gettid)));
  pthread_setname_np(pthread_self(), name);
}

bool StartThread(void* (*body)(void*), void* arg) {
  struct Start {
    void* (*body)(void*);
    void* arg;
  };
  std::unique_ptr<Start> start(new (std::nothrow) Start{body, arg});
  if (start == nullptr) return false;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const auto main = [](void* given) -> void* {
    const Start own = *static_cast<Start*>(given);
    delete static_cast<Start*>(given);
    NameOwnThread();
    return own.body(own.arg);
  };
  const bool started = pthread_create(&thread, &attributes, main, start.get()) == 0;
  if (started) static_cast<void>(start.release());
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

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
    self->SetState(ThreadState::kOutside);
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
    thread->SetState(ThreadState::kAnnounced);
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
    self->SetState(ThreadState::kRunning);
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

// ---- All registered threads share one processor. A hand-over between two processors costs an interrupt and a wake-up from
// idle; on one processor it is a context switch.

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

}  // namespace gpushare::sim
