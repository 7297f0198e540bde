// SPDX-License-Identifier: Apache-2.0
// Waking threads, and the accuracy of elapsed times.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <thread>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void FutexWake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// The time from the store that a thread waits for until the thread sees it.
std::vector<double> WakeLatency(bool sleeping, std::vector<double>* cost_of_wake) {
  constexpr uint32_t kRounds = 300;
  std::atomic<uint32_t> turn{0}, seen{0};
  std::atomic<int64_t> when{0};
  std::vector<double> samples;
  std::thread waiter([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (turn.load(std::memory_order_acquire) < round) {
        if (sleeping) FutexWait(turn, round - 1);
      }
      samples.push_back(static_cast<double>(Now() - when.load(std::memory_order_relaxed)));
      seen.store(round, std::memory_order_release);
    }
  });
  for (uint32_t round = 1; round <= kRounds; ++round) {
    // Lets it fall asleep, or at least leave its processor.
    const int64_t until = Now() + 300'000;
    while (Now() < until) {
    }
    const int64_t now = Now();
    when.store(now, std::memory_order_relaxed);
    turn.store(round, std::memory_order_release);
    if (sleeping) {
      FutexWake(turn);
      if (cost_of_wake != nullptr) cost_of_wake->push_back(static_cast<double>(Now() - now));
    }
    while (seen.load(std::memory_order_acquire) < round) std::this_thread::yield();
  }
  waiter.join();
  return samples;
}

// The error of the time between two events when it is computed as the difference of their elapsed times since `origin`: the
// greatest error over consecutive records, against their elapsed times since the first of them.
double ElapsedError(const Gpu& gpu, CUstream stream, CUevent origin) {
  std::vector<CUevent> events;
  for (int i = 0; i < 500; ++i) {
    events.push_back(gpu.NewEvent());
    gpu.Record(events.back(), stream);
  }
  gpu.Sync(stream);
  const double first = gpu.ElapsedNs(origin, events[0]);
  double worst = 0;
  for (CUevent event : events) {
    const double by_origin = gpu.ElapsedNs(origin, event) - first;
    worst = std::max(worst, std::abs(by_origin - gpu.ElapsedNs(events[0], event)));
  }
  for (CUevent event : events) MUST(gpu.cu, cuEventDestroy, event);
  return worst;
}

}  // namespace

void MeasureWake() {
  std::vector<double> cost;
  Report("futex_wake", WakeLatency(true, &cost));
  Report("futex_wake_call", cost);
  if (std::thread::hardware_concurrency() < 2) StopUnsupported("spinning needs a second processor");
  Report("spin_wake", WakeLatency(false, nullptr));
}

void MeasureElapsedError() {
  const Gpu gpu = OpenGpu();
  CUstream stream = gpu.NewStream();
  CUevent origin = gpu.NewEvent();
  gpu.Record(origin, stream);
  ReportValue("elapsed_error_start", ElapsedError(gpu, stream, origin));
  gpu.Spin(stream, 1, 4'200 * kNsPerMs);
  gpu.Sync(stream);
  ReportValue("elapsed_error_4s", ElapsedError(gpu, stream, origin));
  gpu.Spin(stream, 1, 4'200 * kNsPerMs);
  gpu.Sync(stream);
  ReportValue("elapsed_error_8s", ElapsedError(gpu, stream, origin));
}

}  // namespace gpushare::facts
