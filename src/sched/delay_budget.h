// SPDX-License-Identifier: Apache-2.0
// By how much other tenants may delay a tenant of the high band, as a part of the device time that it uses.
//
//   DelayBudget budget(0.02);
//   if (delay <= budget.Left(now)) budget.Reserve(delay, until, now);  // the predicted delay by a command beside it
//   budget.Ran(used, late);                                       // the measured delay of one of its own batches
//
// A predicted delay is reserved until it can be measured. What counts in the end is by how much the tenant's own work was
// late. So if predictions do not hold, commands are let in no more once the budget is used up, and debt is not forgiven. The
// total delay is at most this part of what the tenant has used, plus what can be saved up (the part of kSavedOver), plus what
// the commands in flight caused when the budget ran out.
#ifndef GPUSHARE_SCHED_DELAY_BUDGET_H_
#define GPUSHARE_SCHED_DELAY_BUDGET_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/time.h"

namespace gpushare::sched {

class DelayBudget {
 public:
  // At most the part of this much device time is saved up.
  static constexpr Nanos kSavedOver = Millis(50);

  explicit DelayBudget(double part = 0) : part_(part) {}

  double part() const { return part_; }
  // Savings are kept, up to the new limit.
  void SetPart(double part) {
    part_ = part;
    level_ = std::min(level_, Depth());
  }

  // By how much one more command may delay the tenant now at most; negative: debt.
  Nanos Left(Time now) const {
    double left = level_;
    for (const Reserved& r : reserved_) {
      if (r.until > now) left -= r.delay;
    }
    return Nanos(static_cast<int64_t>(left));
  }
  // How full the budget is, from 0 to 1. The fuller it is, the more delay for its length a command may cost.
  double Fill(Time now) const {
    return Depth() > 0 ? std::clamp(static_cast<double>(Left(now).count()) / Depth(), 0.0, 1.0) : 0;
  }
  // Reserves `delay` until `until`, when it will have been measured. If all places are in use, it is added to the reservation
  // that ends last, which then ends no earlier than `until`.
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
  // The tenant's own work has used `used` of the device, and was `late` later than predicted while a command that was let in
  // ran beside it (negative: earlier). Predictions are wrong in both directions, so earlier work makes up for late work, but is
  // not saved up.
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
  double late_ = 0;  // lateness that earlier work has not made up for
  std::array<Reserved, 16> reserved_{};
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_DELAY_BUDGET_H_
