// SPDX-License-Identifier: Apache-2.0
// Limits how often one peer may call the broker: a token bucket with a burst of kBurst calls.
//
// Pure: time is passed in.
#ifndef GPUSHARE_BROKER_CALL_LIMIT_H_
#define GPUSHARE_BROKER_CALL_LIMIT_H_

#include <algorithm>

#include "base/time.h"

namespace gpushare::broker {

class CallLimit {
 public:
  static constexpr int kBurst = 64;
  static constexpr Nanos kEvery = Micros(500);  // the bucket regains one call

  // Takes one call. kNever: the next may come at any time. Otherwise the next may come only at the returned time, when the
  // bucket has two calls again, since listening to the peer again may itself count as a call.
  Time Take(Time now, Nanos every = kEvery) {
    const auto back = (now - since_) / every;
    if (back >= kBurst - left_) {
      left_ = kBurst;
      since_ = now;
    } else if (back > 0) {
      left_ += static_cast<int>(back);
      since_ += back * every;
    }
    left_ = std::max(0, left_ - 1);
    return left_ > 0 ? kNever : since_ + 2 * every;
  }

 private:
  int left_ = kBurst;
  Time since_{};  // when the bucket last regained a call
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CALL_LIMIT_H_
