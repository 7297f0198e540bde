// SPDX-License-Identifier: Apache-2.0
// What a thread launches and what it launches next: programs do the same over and over.
//
//   Habit* habit = ...;                                         // what came next the last time
//   if (habit->Is(function, shape, context) && habit->place.Cost() > 0) ...  // it does so again, and that is what it costs
//   else habit = habits.Learn(costs, function, shape, context, key, entry, last);  // it does not
//
// A launch that is compared with the one that is expected needs no key, nor to look for its place in the cost model: what
// is left of both is whether anything differs, which a processor takes for no until it knows better. As in the cost model a launch is one *behind those before it*, so that of a sequence with repetitions each has its own place.
//
// What a launch is charged stands here as of the price list that the pocket names (Pocket::prices). Whoever changes what it is
// made of, the entry of the model or what the tenant is charged for a nanosecond of it, makes a new list behind that
// (Purse::PricesChanged()), and the next launch works it out anew. The list's number is read before what it is made of: what
// changes in between is charged once more as it was, at most, and not kept.
//
// Threading: one thread's.
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
  uint64_t context = 0;  // of the stream, before it
  // What came next the last time; not null of what was learnt.
  Habit* next = nullptr;
  uint64_t charged_at = kAtNone;  // the list of prices by which it was worked out
  uint64_t charge = 0;            // TenantPage::ChargeOf()
  uint64_t context_after = 0;
  uint64_t record = 0;            // a LaunchRecord in which only the entry stands
  Habit* other = nullptr;         // what came next before `next` did; not null of what was learnt
  meter::CostModel::Place place;  // where the model says what it costs

  // Sees to it that `charge` is that of now. False: the cost is not settled.
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

// Its place is nobody's, where nothing is settled, and it has no price. Nobody writes here.
extern constinit Habit no_habit;
inline constinit Habit no_habit{.next = &no_habit, .other = &no_habit, .place = {}};

class Habits {
 public:
  // A launch that is settled and was paid for. `last`: the stream's one before, which this one follows if there was none
  // between the two.
  Habit* Learn(const meter::CostModel& costs, const void* function,
               const driver::LaunchShape& shape, uint64_t context, uint64_t key, uint32_t entry,
               Habit* last) {
    Habit& habit = FindPlace(function, context, entry);
    // Who expects another one here finds out by itself.
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

  // One of two neighbours.
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
