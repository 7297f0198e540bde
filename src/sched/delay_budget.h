// SPDX-License-Identifier: Apache-2.0
// By how much others may delay a tenant of the high band: a part of the device time that it uses.
//
//   DelayBudget budget(0.02);
//   if (delay <= budget.Left(now)) budget.Reserve(delay, until, now);  // a command of another's beside it, as is foreseen
//   budget.Ran(used, late);                                       // a batch of its own, as was measured
//
// What is foreseen is kept aside until it can have been seen; what counts in the end is by how much the tenant's own work
// was late. So whoever is let in by a prediction that does not hold is let in no more once the budget is used up, and debt is
// not forgiven: of all that the tenant has used others have had no more than this part, what is saved up at most (the part
// of kSavedOver), and what those in flight did when it ran out.
#ifndef GPUSHARE_SCHED_DELAY_BUDGET_H_
#define GPUSHARE_SCHED_DELAY_BUDGET_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/time.h"

namespace gpushare::sched {

class DelayBudget {
 public:
  // Saved up is the part of so much device time at most.
  static constexpr Nanos kSavedOver = Millis(50);

  explicit DelayBudget(double part = 0) : part_(part) {}

  double part() const { return part_; }
  // What was saved up stays, as far as there is room for it.
  void SetPart(double part) {
    part_ = part;
    level_ = std::min(level_, Depth());
  }

  // The most by which one command more may delay it now; below zero: debt.
  Nanos Left(Time now) const {
    double left = level_;
    for (const Reserved& r : reserved_) {
      if (r.until > now) left -= r.delay;
    }
    return Nanos(static_cast<int64_t>(left));
  }
  // How full it is, from 0 to 1: with much in hand others are let in for less.
  double Fill(Time now) const {
    return Depth() > 0 ? std::clamp(static_cast<double>(Left(now).count()) / Depth(), 0.0, 1.0) : 0;
  }
  // `delay` is to be seen by `until`. Of more than there is room for, the one that is seen last is kept aside together with
  // the next: as much, for as long or longer.
  void Reserve(Nanos delay, Time until, Time now) {
    if (delay <= Nanos(0)) return;
    Reserved* last = &reserved_.front();
    for (Reserved& r : reserved_) {
      if (r.until <= now) {
        r = {static_cast<double>(delay.count()), until};
        return;
      }
      if (r.until > last->until) last = &r;
    }
    last->delay += static_cast<double>(delay.count());
    last->until = std::max(last->until, until);
  }
  // Work of its own has used so much of the device, and was later by so much than predicted while a command that was let
  // in was beside it (negative: earlier). Predictions are off to both sides: what was earlier pays for what was late, but
  // is not saved up.
  void Ran(Nanos used, Nanos late) {
    level_ =
        std::min(level_ + part_ * static_cast<double>(std::max(used, Nanos(0)).count()), Depth());
    const double before = late_;
    late_ = std::max(late_ + static_cast<double>(late.count()), 0.0);
    level_ = std::min(level_ - (late_ - before), Depth());
  }

 private:
  struct Reserved {
    double delay = 0;
    Time until{};
  };

  double Depth() const { return part_ * static_cast<double>(kSavedOver.count()); }

  double part_;
  double level_ = 0;
  double late_ = 0;  // of what was late, what nothing earlier has paid for
  std::array<Reserved, 16> reserved_{};
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_DELAY_BUDGET_H_
