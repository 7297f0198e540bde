// SPDX-License-Identifier: Apache-2.0
// The part of the device's time that those below a high priority keep beside it, however much it wants.
//
// What they use is paid from a bucket that fills by that part, whenever they use it: a service that leaves them more is never held
// for it. When there is a turn in it and they are shut out, they get the device for that long.
//
//   Floor floor;
//   floor.SetPart(0.1);
//   floor.Pass(now, /*used=*/Micros(300));   // they have used so much since the last time
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
  // Two changes of contexts are a fifth of it; so long a service waits for it, at most once in kTurn ÷ part.
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
  // When there will be one, if nothing is used meanwhile.
  Time TurnAt() const {
    if (part_ <= 0) return kNever;
    const double missing = std::max(static_cast<double>(kTurn.count()) - level_, 0.0);
    return at_ + Nanos(static_cast<int64_t>(missing / part_) + 1);
  }

 private:
  // What they had of more than that ago is forgotten: they get their part of each second.
  static constexpr Nanos kRemembered = Seconds(1);

  double part_ = 0;
  double level_ = 0;  // ns
  Time at_{};
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_FLOOR_H_
