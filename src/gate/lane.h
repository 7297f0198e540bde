// SPDX-License-Identifier: Apache-2.0
// The path of nearly every launch through the gate: a kernel whose cost is settled, paid from credit in hand.
//
//   const Lane lane = gate->LaneOf(stream);                 // once
//   uint32_t launch;
//   if (lane.Take(KernelKey(function, shape), &launch)) {
//     if (driver->Launch(...) != driver::Result::kSuccess) gate->Complete({&stream, launch}, false);
//   } else {
//     ... gate->Admit(stream, work) ...
//   }
//
// A Lane holds what a launch needs of the tenant and of the stream, so a launch needs neither a call nor a lock. If the credit
// is in the thread's pocket (pocket.h), it needs no atomic operation either. An atomic operation on the page waits for all
// stores before it, so this path avoids unnecessary stores.
//
// Threading: thread-safe. A lane is valid until the stream is removed.
#ifndef GPUSHARE_GATE_LANE_H_
#define GPUSHARE_GATE_LANE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "gate/habits.h"
#include "gate/pocket.h"
#include "gate/tenant_page.h"
#include "meter/cost_model.h"

namespace gpushare::gate {

struct Lane {
  TenantPage* page = nullptr;  // null: this path is not available, use Gate::Admit()
  LaunchRing* ring = nullptr;
  const meter::CostModel* costs = nullptr;
  // The keys of the stream's last launches. A race between threads that launch on the same stream costs only
  // a prediction.
  std::atomic<uint64_t>* context = nullptr;
  uint64_t record = 0;  // a LaunchRecord with nothing but the stream set
  int levels = 0;       // as in StreamPlace

  // How far the next kernel's CUDA priority has to be above the stream's own.
  int Level() const {
    return levels == 0 ? 0 : std::min(levels, page->level.load(std::memory_order_relaxed));
  }

  // Pays for a launch of the kernel and numbers it. False, and nothing has changed: its cost is not settled, or there is not
  // enough credit. `pocket` is the calling thread's, or `no_pocket`.
  [[gnu::always_inline]] bool Take(uint64_t key, Pocket& pocket, uint32_t* launch) const {
    const uint64_t before = context->load(std::memory_order_relaxed);
    const meter::CostModel::Settled cost = costs->FindSettled(key, before);
    if (cost.cost_ns == 0) [[unlikely]]
      return false;
    return Pay(key, before, cost, /*graph=*/false, pocket, launch);
  }
  // The same, from the page alone.
  [[gnu::always_inline]] bool Take(uint64_t key, uint32_t* launch) const {
    const uint64_t before = context->load(std::memory_order_relaxed);
    const meter::CostModel::Settled cost = costs->FindSettled(key, before);
    uint64_t word;
    if (cost.cost_ns == 0 || !page->SpendCharge(page->ChargeOf(cost.cost_ns), &word)) [[unlikely]]
      return false;
    Put(key, before, cost, /*graph=*/false, word, launch);
    return true;
  }

  // The same for a launch that equals `habit`, from a pocket alone.
  [[gnu::always_inline]] bool TakeAgain(Habit& habit, Pocket& pocket, uint32_t* launch) const {
    uint64_t word;
    if (!habit.Price(*page, pocket) || !pocket.Spend(habit.charge, &word)) [[unlikely]]
      return false;
    *launch = TenantPage::LaunchOf(word);
    ring->Put(*launch, record | habit.record | uint64_t{*launch} << LaunchRecord::kLaunchAt);
    context->store(habit.context_after, std::memory_order_relaxed);
    return true;
  }

  // Spends credit on a launch of settled cost and numbers it. False: there is not enough credit.
  [[gnu::always_inline]] bool Pay(uint64_t key, uint64_t before, meter::CostModel::Settled cost,
                                  bool graph, Pocket& pocket, uint32_t* launch) const {
    const uint64_t charge = page->ChargeOf(cost.cost_ns);
    uint64_t word;
    if (!pocket.Spend(charge, &word) && !page->SpendCharge(charge, &word)) return false;
    Put(key, before, cost, graph, word, launch);
    return true;
  }

 private:
  // Records a launch that was paid for. `word` is the value of the credit word before.
  [[gnu::always_inline]] void Put(uint64_t key, uint64_t before, meter::CostModel::Settled cost,
                                  bool graph, uint64_t word, uint32_t* launch) const {
    *launch = TenantPage::LaunchOf(word);
    const LaunchRecord more = {.launch = *launch, .stream = 0, .entry = cost.entry, .graph = graph};
    ring->Put(*launch, record | more.Pack());
    context->store(meter::CostModel::Next(before, key), std::memory_order_relaxed);
  }
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_LANE_H_
