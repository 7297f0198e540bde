// SPDX-License-Identifier: Apache-2.0
// Reports what keeps the clock from going on.
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "sim/clock/clock.h"
#include "sim/processes/turn.h"

namespace gpushare::sim {

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

// What keeps the clock from going on; empty if nothing known does. Any thread may call it.
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

// Call with the registry locked. The thread lives as long as the process, because the library is linked so that it is never
// unloaded.
void Clock::StartWatchdog() {
  if (watchdog_running_ || watchdog_ns_ == 0) return;
  watchdog_running_ = StartThread(&WatchdogMain, this);
}

}  // namespace gpushare::sim
