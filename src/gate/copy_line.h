// SPDX-License-Identifier: Apache-2.0
// Whose copy begins next, of those of an engine that wait for bytes which its tenants have in common.
//
// Each of those that always have something to copy gets the same number of bytes: next comes who has had least since
// it was there. Who comes back from a pause begins where the others are, and saves nothing up. Copies of one tenant go
// in the order in which they came.
//
//   line.Join(&waiter);                                // any number of times: its place is that of the first
//   if (line.First() == &waiter && ...) { line.Leave(&waiter); line.Served(turn, bytes); }
//
// Pure: no I/O, no locks.
#ifndef GPUSHARE_GATE_COPY_LINE_H_
#define GPUSHARE_GATE_COPY_LINE_H_

#include <algorithm>
#include <utility>
#include <vector>

namespace gpushare::gate {

struct TenantState;

class CopyLine {
 public:
  // A tenant's.
  struct Turn {
    double had = 0;  // bytes
  };
  struct Waiter {
    TenantState* tenant = nullptr;
    Turn* turn = nullptr;
    bool waits = false;  // it is in the line
  };

  bool empty() const { return waiting_.empty(); }
  void Join(Waiter* waiter) {
    if (std::exchange(waiter->waits, true)) return;
    waiter->turn->had = std::max(waiter->turn->had, reached_);
    waiting_.push_back(waiter);
  }
  // Whether it was there.
  bool Leave(Waiter* waiter) {
    if (!waiter->waits) return false;
    waiter->waits = false;
    std::erase(waiting_, waiter);
    return true;
  }
  // Null: nobody waits.
  Waiter* First() const {
    const auto first = std::min_element(
        waiting_.begin(), waiting_.end(),
        [](const Waiter* a, const Waiter* b) { return a->turn->had < b->turn->had; });
    return first == waiting_.end() ? nullptr : *first;
  }
  // Less than 0: what it was served is given back.
  void Served(Turn& turn, double bytes) {
    if (bytes > 0) reached_ = std::max(reached_, turn.had);
    turn.had += bytes;
  }

 private:
  std::vector<Waiter*> waiting_;  // as they came
  double reached_ = 0;            // what who was served last had had before
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_COPY_LINE_H_
