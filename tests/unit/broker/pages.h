// SPDX-License-Identifier: Apache-2.0
// The pages of a process that does not exist: the test writes what the process would write.
#ifndef GPUSHARE_TESTS_UNIT_BROKER_PAGES_H_
#define GPUSHARE_TESTS_UNIT_BROKER_PAGES_H_

#include <algorithm>
#include <cstdint>

#include "broker/seat.h"
#include "ipc/page.h"

namespace gpushare::broker {

struct Pages {
  ipc::LimitsPage limits;
  ipc::UsagePage usage;
  Seat seat{.limits = &limits, .usage = &usage};

  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // Asks for a grant of `bytes` in total.
  void Ask(uint64_t bytes) {
    usage.memory_wanted = bytes;
    ++usage.memory_asked;
  }
  bool answered() const { return limits.memory_answered.load() == usage.memory_asked.load(); }
  uint64_t granted() const { return limits.memory_granted.load(); }
  // Answers a recall: gives back the memory that is asked for and not in use.
  void AnswerRecall() {
    const uint32_t recall = limits.memory_recall.load();
    if (recall == usage.memory_recalled.load()) return;
    usage.memory_kept = std::max(usage.memory_charged.load(), limits.memory_recall_to.load());
    usage.memory_recalled = recall;
  }
  int64_t time_left() const {
    return limits.time_granted_ns.load() - usage.time_used_ns.load() -
           usage.time_returned_ns.load() - usage.time_in_flight_ns.load();
  }
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_TESTS_UNIT_BROKER_PAGES_H_
