// SPDX-License-Identifier: Apache-2.0
// The part of the device's time that tenants below high priority keep, however much the high priority wants.
//
// What the lower tenants use is paid from a bucket that fills at the rate of that part, whenever they use it: a service that
// leaves them more time is never held for their sake. When the bucket holds a turn while they are shut out, they get the
// device for that long.
//
//   Floor floor;
//   floor.SetPart(0.1);
//   floor.Pass(now, /*used=*/Micros(300));   // what they have used since the last call
//   if (floor.has_turn()) ...
//
// Pure: time is passed in.
#ifndef GPUSHARE_BROKER_FLOOR_H_
#define GPUSHARE_BROKER_FLOOR_H_

#include <algorithm>

#include "base/time.h"

namespace gpushare::broker {

class Floor {
 public:
  // Two context switches take a fifth of a turn. A service waits this long for a turn, at most once in kTurn ÷ part.
  static constexpr Nanos kTurn = Millis(1);

  double part() const { return part_; }
  void SetPart(double part) {
    if (part_ <= 0) level_ = 0;
    part_ = part;
  }

  void Pass(Time now, Nanos used) {
    const Nanos elapsed = at_ == Time{} ? Nanos(0) : std::max(now - at_, Nanos(0));
    at_ = std::max(at_, now);
    if (part_ <= 0) return;
    level_ += part_ * static_cast<double>(elapsed.count()) - static_cast<double>(used.count());
    level_ = std::clamp(level_, -static_cast<double>(kRemembered.count()) * part_,
                        static_cast<double>(kTurn.count()));
  }
  bool has_turn() const { return part_ > 0 && level_ >= static_cast<double>(kTurn.count()); }
  // When there will be a turn if nothing is used meanwhile.
  Time TurnAt() const {
    if (part_ <= 0) return kNever;
    const double missing = std::max(static_cast<double>(kTurn.count()) - level_, 0.0);
    return at_ + Nanos(static_cast<int64_t>(missing / part_) + 1);
  }

 private:
  // Use longer ago than this is forgotten, so that the lower tenants get their part of each second.
  static constexpr Nanos kRemembered = Seconds(1);

  double part_ = 0;
  double level_ = 0;  // ns
  Time at_{};
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_FLOOR_H_
