// SPDX-License-Identifier: Apache-2.0
// What time it is, and how to wait for it to pass or for a word of memory to change.
//
// Everything in gpushare that can block does so through a Clock, so that the same code runs on the
// machine's clock (RealClock) and on the simulated GPU's virtual clock (driver/sim_clock.h), where one
// thread runs at a time and a wait costs no real time.
//
// Rule for callers: never hold a lock across Wait() or across a call of the driver. On the virtual
// clock both hand the turn to another thread, which may want that lock.
#ifndef GPUSHARE_BASE_CLOCK_H_
#define GPUSHARE_BASE_CLOCK_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/service_threads.h"
#include "base/time.h"

namespace gpushare::base {

enum class WaitResult { kWoken, kDeadline };

// A thread started through Clock::StartThread. Join() may be called once, from a thread of the same
// clock; the destructor joins when nobody has. Detach() leaves the thread to itself: its body has to keep the clock.
class ClockThread {
 public:
  virtual ~ClockThread() = default;
  virtual void Join() = 0;
  virtual void Detach() = 0;
};

class Clock {
 public:
  virtual ~Clock() = default;

  virtual Time Now() = 0;

  // Blocks while `word` holds `expected`, until a Wake() on it or `deadline`; a wake-up without a
  // change is possible, as with a futex, so callers loop. For the first `spin` the thread stays on its
  // processor, which makes waking it cheap.
  virtual WaitResult Wait(const std::atomic<uint32_t>& word, uint32_t expected, Time deadline,
                          Nanos spin) = 0;

  // Wakes up to `count` threads waiting on `word`. The caller has changed it before.
  virtual void Wake(const std::atomic<uint32_t>& word, int count) = 0;

  // Like Wait(), for a word in memory that other processes have mapped too, at other addresses and perhaps read-only. A
  // clock whose waiters other processes cannot wake polls the word every LookEvery().
  virtual WaitResult WaitShared(const std::atomic<uint32_t>& word, uint32_t expected,
                                Time deadline) {
    while (word.load(std::memory_order_acquire) == expected) {
      const Time now = Now();
      if (now >= deadline) return WaitResult::kDeadline;
      Wait(word, expected, std::min(deadline, After(now, LookEvery())), Nanos(0));
    }
    return WaitResult::kWoken;
  }
  virtual void WakeShared(const std::atomic<uint32_t>& word, int count) { Wake(word, count); }

  // How often a waiter must poll for what other processes do (shared memory, sockets). Zero: the kernel wakes it.
  virtual Nanos LookEvery() { return Micros(20); }

  // Runs `body` on a new thread that belongs to this clock.
  virtual std::unique_ptr<ClockThread> StartThread(std::string name,
                                                   std::function<void()> body) = 0;

  // Like StartThread(), for a thread that serves the program's threads. A virtual clock does not advance
  // for its sake: the deadline of a service's wait does not bring that moment on.
  virtual std::unique_ptr<ClockThread> StartService(std::string name, std::function<void()> body) {
    return StartThread(std::move(name), Service(std::move(body)));
  }

  // Blocks until `when`.
  void SleepUntil(Time when) {
    const std::atomic<uint32_t> nobody_wakes{0};
    while (Now() < when) Wait(nobody_wakes, 0, when, Nanos(0));
  }
};

// The machine's CLOCK_MONOTONIC, futexes and std::thread. One per process; never destroyed.
Clock& RealClock();

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_CLOCK_H_
