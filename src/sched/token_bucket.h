// SPDX-License-Identifier: Apache-2.0
// A token bucket in wall time whose debt is never forgiven: the cap of a tenant.
//
//   TokenBucket bucket(/*rate=*/0.3, /*depth=*/5e6, now);  // 30 % of the device, 5 ms saved up at most
//   bucket.Advance(now);
//   if (bucket.level() > 0) bucket.Take(cost_ns);          // may go below zero: debt
//   else wake_at = bucket.PositiveAt();
//
// Levels are nanoseconds of device time. A tenant whose level is above 0, however little, may start one
// command of any length. The debt that this leaves delays the next command.
#ifndef GPUSHARE_SCHED_TOKEN_BUCKET_H_
#define GPUSHARE_SCHED_TOKEN_BUCKET_H_

#include <algorithm>
#include <cmath>

#include "base/time.h"

namespace gpushare::sched {

class TokenBucket {
 public:
  TokenBucket() = default;
  TokenBucket(double rate, double depth, double level, Time now)
      : rate_(rate), depth_(depth), level_(std::min(level, depth)), at_(now) {}

  double rate() const { return rate_; }
  double depth() const { return depth_; }
  double level() const { return level_; }  // as of the last Advance
  double most() const { return depth_ + room_; }

  void Advance(Time now) {
    if (now <= at_) return;
    level_ = LevelAt(now);
    at_ = now;
  }
  double LevelAt(Time now) const { return now <= at_ ? level_ : std::min(most(), Filled(now)); }
  void Take(double tokens) {
    level_ = std::min(most(), level_ - tokens);
    if (level_ <= depth_) room_ = 0;
  }

  // Keeps tokens that come until `until` even beyond the depth, because the owner would take them but is made to wait.
  void KeepUntil(Time until) {
    if (until > at_) room_ = std::max(room_, Filled(until) - depth_);
  }

  // The owner waits no more, or has not taken the tokens. Drops what is beyond the depth.
  void KeepNoMore(Time now) {
    if (room_ <= 0) return;
    Advance(now);
    room_ = 0;
    level_ = std::min(level_, depth_);
  }

  // Keeps the level (a debt stays a debt); a smaller depth cuts what was saved up.
  void Reshape(double rate, double depth, Time now) {
    Advance(now);
    rate_ = rate;
    depth_ = depth;
    room_ = 0;
    level_ = std::min(level_, depth_);
  }

  // The first instant at which level() > 0; kNever if there is none.
  Time PositiveAt() const { return ExceedsAt(0); }

  // The first instant at which level() > `level`; kNever if there is none.
  Time ExceedsAt(double level) const {
    if (level_ > level) return at_;
    if (rate_ <= 0 || depth_ <= level) return kNever;
    const double wait = std::floor((level - level_) / rate_) + 1;
    // Beyond a century the sum could overflow, so such a wait counts as endless.
    return wait > 3e18 ? kNever : at_ + Nanos(static_cast<int64_t>(wait));
  }

 private:
  double Filled(Time now) const {
    return level_ + rate_ * static_cast<double>((now - at_).count());
  }

  double rate_ = 0;
  double depth_ = 0;
  double room_ = 0;  // room beyond the depth, until the level is within the depth again
  double level_ = 0;
  Time at_{};
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_TOKEN_BUCKET_H_
