// SPDX-License-Identifier: Apache-2.0
// A book of a GPU's time, and processes that it grants time to.
#ifndef GPUSHARE_TESTS_UNIT_BROKER_TIME_BOOK_BENCH_H_
#define GPUSHARE_TESTS_UNIT_BROKER_TIME_BOOK_BENCH_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>

#include "broker/time_book.h"
#include "tests/unit/broker/pages.h"

namespace gpushare::broker {

// Processes that have work all the time, on a device that runs its work in order, a slice of 100 us at a time.
class TimeBookBench {
 public:
  struct Process {
    Pages pages;
    TimeBook::Member* member = nullptr;
    bool busy = true, gone = false;
    int64_t ran_ns = 0, bypassed_ns = 0;
    int64_t time_left() const { return pages.time_left() + bypassed_ns; }
    int64_t lies = 0;  // under-reports by this much for each slice
  };

  TimeBook::Tenant* Tenant(const sched::TenantLimits& limits, TimeBook::Tenant* parent = nullptr) {
    return book.AddTenant(limits, now, nullptr, parent);
  }
  Process& Start(TimeBook::Tenant* tenant) {
    Process& process = processes.emplace_back();
    process.member = book.Join(tenant, process.pages.seat, now, changed);
    return process;
  }
  void Run(Nanos span) {
    const Time end = now + span;
    size_t turn = 0;
    while (now < end) {
      // The device takes the next process that has work and may run.
      Process* runs = nullptr;
      for (size_t i = 0; i < processes.size() && runs == nullptr; ++i) {
        Process& process = processes[(turn + i) % processes.size()];
        const uint32_t flags = process.pages.limits.flags;
        const bool may = (flags & ipc::LimitsPage::kBypass) || process.time_left() > 0;
        if (process.gone || !process.busy || !may) continue;
        if (flags & (ipc::LimitsPage::kClosed | ipc::LimitsPage::kSuspended)) continue;
        if (flags & ipc::LimitsPage::kHeld) continue;
        runs = &process;
        turn += i;  // the process keeps its turn until it may not run
      }
      now += kSlice;
      if (runs != nullptr) {
        runs->ran_ns += kSlice.count();
        if (runs->pages.limits.flags & ipc::LimitsPage::kBypass)
          runs->bypassed_ns += kSlice.count();
        runs->pages.usage.time_used_ns += kSlice.count() - runs->lies;
        busy_ns += kSlice.count();
      }
      for (Process& process : processes) {
        if (process.gone) continue;
        process.pages.usage.time_wanted_ns = process.busy ? 100'000 : 0;
        process.pages.usage.time_in_flight_ns =
            process.busy && (process.pages.limits.flags & ipc::LimitsPage::kBypass) ? 100'000 : 0;
        if (!process.busy && process.time_left() > 0) {
          process.pages.usage.time_returned_ns += process.time_left();
        }
      }
      book.Look(now, changed);
      ASSERT_STREQ(book.CheckInvariants(), nullptr);
    }
  }
  Time Look() { return book.Look(now, changed); }
  double Part(const Process& process, Nanos of) const {
    return static_cast<double>(process.ran_ns) / static_cast<double>(of.count());
  }

  static constexpr Nanos kSlice = Micros(100);
  Changed changed;
  TimeBook book;
  std::deque<Process> processes;
  Time now{Seconds(1)};
  int64_t busy_ns = 0;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_TESTS_UNIT_BROKER_TIME_BOOK_BENCH_H_
