// SPDX-License-Identifier: Apache-2.0
// How often one peer may call the broker: so often at once, and from then on as often as calls come back to it.
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
  static constexpr Nanos kEvery = Micros(500);  // one call comes back

  // One call has come. kNever: the next may come at any time; else: not before then, when two have come back, for whoever
  // is heard again may be called by that alone.
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
  Time since_{};  // when the last came back
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CALL_LIMIT_H_
