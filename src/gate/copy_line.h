// SPDX-License-Identifier: Apache-2.0
// Decides whose copy begins next among copies that wait for a byte budget shared by tenants of an engine.
//
// Tenants that always have something to copy get equal numbers of bytes: the next copy is of the tenant that has had the
// fewest bytes. A tenant that comes back from a pause starts level with the others, so it saves nothing up. Copies of one
// tenant go in the order in which they came. Where tenants share a turn, the one that has had the fewest bytes by its turn
// among these comes first.
//
//   line.Join(&waiter);                                // may be repeated; the first call decides the place
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
  // How much a tenant has been served.
  struct Turn {
    double had = 0;  // bytes
  };
  struct Waiter {
    TenantState* tenant = nullptr;
    Turn* turn = nullptr;
    const Turn* among = nullptr;  // its turn among those that share `turn`; null: none share it
    bool waits = false;           // it is in the line
  };

  bool empty() const { return waiting_.empty(); }
  void Join(Waiter* waiter) {
    if (waiter->waits) return;
    waiting_.push_back(waiter);  // first, since there may be no memory for it
    waiter->waits = true;
    waiter->turn->had = std::max(waiter->turn->had, reached_);
  }
  // Returns whether it was in the line.
  bool Leave(Waiter* waiter) {
    if (!waiter->waits) return false;
    waiter->waits = false;
    std::erase(waiting_, waiter);
    return true;
  }
  // Null if nobody waits.
  Waiter* First() const {
    const auto least = std::min_element(
        waiting_.begin(), waiting_.end(),
        [](const Waiter* a, const Waiter* b) { return a->turn->had < b->turn->had; });
    if (least == waiting_.end()) return nullptr;
    Waiter* first = *least;
    for (Waiter* other : waiting_) {
      if (first->among == nullptr || other->turn != first->turn) continue;
      if (other->among->had < first->among->had) first = other;
    }
    return first;
  }
  // Counts `bytes` as served. A negative number returns bytes that were not used.
  void Served(Turn& turn, double bytes) {
    if (bytes > 0) reached_ = std::max(reached_, turn.had);
    turn.had += bytes;
  }

 private:
  std::vector<Waiter*> waiting_;  // in order of arrival
  double reached_ = 0;            // the greatest `had` at which service began
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_COPY_LINE_H_
