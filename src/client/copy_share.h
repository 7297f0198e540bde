// SPDX-License-Identifier: Apache-2.0
// What a process may copy in one direction: what the broker grants it, and without a broker its part of the limit by the
// clock, if it may go on then.
//
// Pure: time is passed in, no I/O, no locks.
#ifndef GPUSHARE_CLIENT_COPY_SHARE_H_
#define GPUSHARE_CLIENT_COPY_SHARE_H_

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace gpushare::client {

class CopyShare {
 public:
  // Without a broker no more is saved up than comes in this time.
  static constexpr Nanos kSavedUp = Millis(10);
  static constexpr Nanos kAskAgain = Millis(100);
  static constexpr uint64_t kMost = uint64_t{1} << 60;  // that comes at once

  // What the broker says, as it was read last. Any value is one.
  struct Limits {
    uint64_t granted = 0, rate = 0;
  };

  // Bytes that have come since it was last called.
  uint64_t Take(const Limits& limits, Time now) {
    if (!lost_) {
      const uint64_t more = limits.granted > taken_ ? limits.granted - taken_ : 0;
      taken_ += more;
      return std::min(more, kMost);
    }
    if (!goes_on_ || now <= flowed_until_) return 0;
    const double time = static_cast<double>(std::min(now - flowed_until_, kSavedUp).count());
    const double bytes = time * 1e-9 * static_cast<double>(limits.rate) + part_;
    const auto more = static_cast<uint64_t>(std::min(bytes, static_cast<double>(kMost)));
    part_ = bytes - static_cast<double>(more);
    flowed_until_ = now;
    return more;
  }
  // What the page is to say when so many are missing.
  uint64_t Want(uint64_t bytes) const {
    return bytes > UINT64_MAX - taken_ ? UINT64_MAX : taken_ + bytes;
  }
  // When to look whether they have come.
  Time LookBy(const Limits& limits, uint64_t bytes, Time now) const {
    if (!lost_) return After(now, kAskAgain);
    if (!goes_on_ || limits.rate == 0) return kNever;
    const double takes = static_cast<double>(bytes) / static_cast<double>(limits.rate) * 1e9 + 1;
    // Never longer than what is saved up, or some of it would be lost.
    return After(now, std::min(Nanos(static_cast<int64_t>(std::min(takes, 1e18))), kSavedUp));
  }

  // The broker has gone. `goes_on`: by the clock.
  void Lose(bool goes_on, Time now) {
    lost_ = true;
    goes_on_ = goes_on;
    flowed_until_ = now;
    part_ = 0;
  }
  // A new session, of whose grants none has been taken.
  void Begin() {
    lost_ = goes_on_ = false;
    taken_ = 0;
  }

 private:
  uint64_t taken_ = 0;
  bool lost_ = false, goes_on_ = false;
  Time flowed_until_{};
  double part_ = 0;  // of a byte
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_COPY_SHARE_H_
