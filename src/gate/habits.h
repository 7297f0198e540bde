// SPDX-License-Identifier: Apache-2.0
// Remembers which launch of a thread followed which, because programs repeat their launches.
//
//   Habit* habit = ...;                                         // the launch that came next the last time
//   if (habit->Is(function, shape, context) && habit->place.Cost() > 0) ...  // the same launch again, at this cost
//   else habit = habits.Learn(costs, function, shape, context, key, entry, last);  // another launch
//
// A launch that equals the expected one needs neither a key nor a look-up in the cost model. What remains is a comparison
// whose outcome the processor predicts. As in the cost model, a launch is identified together with the launches before it, so
// each position of a sequence with repetitions has its own place.
//
// The charge of a launch is kept here together with the number of the price list by which it was computed (Pocket::prices). A
// charge depends on the entry of the cost model and on the tenant's charge factor. Whoever changes one of these then
// calls Purse::PricesChanged(), and the next launch computes its charge anew. The number is read before the values that the
// charge is computed from: if these change in between, at most one launch pays the old charge, and that charge is not kept.
//
// Threading: used by one thread.
#ifndef GPUSHARE_GATE_HABITS_H_
#define GPUSHARE_GATE_HABITS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "driver/driver.h"
#include "gate/pocket.h"
#include "gate/tenant_page.h"
#include "meter/cost_model.h"

namespace gpushare::gate {

struct alignas(64) Habit {
  static constexpr uint64_t kAtNone = ~uint64_t{0};

  const void* function = nullptr;
  driver::LaunchShape shape{};
  uint64_t context = 0;  // context of the stream before the launch
  // What came next the last time; never null in a learnt habit.
  Habit* next = nullptr;
  uint64_t charged_at = kAtNone;  // the price list by which `charge` was computed
  uint64_t charge = 0;            // TenantPage::ChargeOf()
  uint64_t context_after = 0;
  uint64_t record = 0;            // a LaunchRecord with nothing but the entry set
  Habit* other = nullptr;         // the previous value of `next`; never null in a learnt habit
  meter::CostModel::Place place;  // where the cost model keeps its cost

  // Brings `charge` up to date. False: the cost is not settled.
  [[gnu::always_inline]] bool Price(const TenantPage& page, const Pocket& pocket) {
    const uint64_t prices = pocket.prices.load(std::memory_order_acquire);
    if (charged_at == prices) [[likely]]
      return true;
    const uint64_t cost_ns = place.Cost();
    if (cost_ns == 0) return false;
    charge = page.ChargeOf(cost_ns);
    charged_at = prices;
    return true;
  }

  [[gnu::always_inline]] bool Is(const void* of, const driver::LaunchShape& launched,
                                 uint64_t before) const {
    return context == before && function == of && shape.grid.x == launched.grid.x &&
           shape.grid.y == launched.grid.y && shape.grid.z == launched.grid.z &&
           shape.block.x == launched.block.x && shape.block.y == launched.block.y &&
           shape.block.z == launched.block.z && shape.shared_bytes == launched.shared_bytes;
  }
};

// Stands for "no habit": it equals no launch, since its cost is never settled and it has no price. Never written to.
extern constinit Habit no_habit;
inline constinit Habit no_habit{.next = &no_habit, .other = &no_habit, .place = {}};

class Habits {
 public:
  // Learns a launch that has a settled cost and was paid for. `last` is the habit of the stream's launch before; this one
  // becomes its `next` if no other launch came in between.
  Habit* Learn(const meter::CostModel& costs, const void* function,
               const driver::LaunchShape& shape, uint64_t context, uint64_t key, uint32_t entry,
               Habit* last) {
    Habit& habit = FindPlace(function, context, entry);
    // Habits that point here and expect the old launch find out when they compare.
    if (habit.function != function || habit.context != context || habit.next == nullptr) {
      habit.next = habit.other = &no_habit;
    }
    habit.function = function;
    habit.shape = shape;
    habit.place = costs.PlaceOf(key, context);
    habit.charged_at = Habit::kAtNone;
    habit.context = context;
    habit.context_after = meter::CostModel::Next(context, key);
    habit.record = LaunchRecord{.launch = 0, .stream = 0, .entry = entry}.Pack();
    if (last != &no_habit && last->context_after == context && last->next != &habit) {
      last->other = std::exchange(last->next, &habit);
    }
    return &habit;
  }

 private:
  static constexpr size_t kPlaces = 256;  // 32 KB

  // Chooses between two neighbouring places.
  Habit& FindPlace(const void* function, uint64_t context, uint32_t entry) {
    Habit &first = places_[entry % kPlaces], &second = places_[(entry ^ 1) % kPlaces];
    const auto is = [&](const Habit& habit) {
      return habit.function == function && habit.context == context;
    };
    if (is(first) || first.next == nullptr) return first;
    if (is(second) || second.next == nullptr) return second;
    return (++replaced_ & 1) != 0 ? first : second;
  }

  std::array<Habit, kPlaces> places_{};
  size_t replaced_ = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_HABITS_H_
