// SPDX-License-Identifier: Apache-2.0
// What a process may copy in one direction: the broker's grants, or without a broker its part of the limit by the clock, if
// the process may go on then. All copies of the process share one balance; a negative balance is a debt.
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
  // The most that is saved up without a broker, as a time at the limit's rate.
  static constexpr Nanos kSavedUp = Millis(10);
  static constexpr Nanos kAskAgain = Millis(100);
  static constexpr int64_t kLeastSavedUp = 64 << 10;  // bytes, for slow limits
  // Bounds the balance, whatever the broker grants.
  static constexpr int64_t kMost = int64_t{1} << 60;

  // The broker's page as last read. Any value must be handled.
  struct Limits {
    uint64_t granted = 0, rate = 0;
  };

  // Takes the grants since the last look. Whether a copy may begin.
  bool Look(const Limits& limits, Time now) {
    const int64_t before = balance_;
    balance_ = std::min(balance_ + Comes(limits, now), kMost);
    // Bounds what is saved up while no copy waits.
    if (!awaited_) balance_ = std::min(balance_, std::max(before, SavedUp(limits)));
    return balance_ > 0;
  }
  void Charge(int64_t bytes) { balance_ -= bytes; }
  // The bytes copied, for the usage page; more than the grants if there is a debt.
  uint64_t used() const {
    if (balance_ > 0) return taken_ - std::min(taken_, static_cast<uint64_t>(balance_));
    const auto debt = static_cast<uint64_t>(-balance_);
    return debt > UINT64_MAX - taken_ ? UINT64_MAX : taken_ + debt;
  }
  // A copy waits. Returns the value for `copy_wanted` on the usage page.
  uint64_t Await() {
    awaited_ = true;
    const uint64_t missing = balance_ > 0 ? 0 : static_cast<uint64_t>(1 - balance_);
    return missing > UINT64_MAX - taken_ ? UINT64_MAX : taken_ + missing;
  }
  // No copy waits any more.
  void Unawait() { awaited_ = false; }
  // When to look again whether a copy may begin.
  Time LookBy(const Limits& limits, Time now) const {
    if (!lost_) return After(now, kAskAgain);
    if (!goes_on_ || limits.rate == 0) return kNever;
    const double missing = static_cast<double>(1 - std::min<int64_t>(balance_, 0));
    const double takes = missing / static_cast<double>(limits.rate) * 1e9 + 1;
    // At most kSavedUp, since what comes beyond that is lost.
    return After(now, std::min(Nanos(static_cast<int64_t>(std::min(takes, 1e18))), kSavedUp));
  }

  // There is no limit now: copies cause no debt, and nothing is saved up.
  void Lift(const Limits& limits) {
    balance_ = 0;
    if (!lost_) taken_ = std::max(taken_, limits.granted);
  }
  // The broker has gone; its grants remain usable. `goes_on`: after that the process copies by the clock.
  void Lose(const Limits& limits, bool goes_on, Time now) {
    Look(limits, now);
    lost_ = true;
    goes_on_ = goes_on;
    flowed_until_ = now;
    part_ = 0;
  }
  // The broker is there after all, with its former grants.
  void Find() { lost_ = goes_on_ = false; }
  // A new session, with no grants taken yet. A debt remains.
  void Begin() {
    lost_ = goes_on_ = false;
    taken_ = 0;
  }

 private:
  int64_t Comes(const Limits& limits, Time now) {
    if (!lost_) {
      const uint64_t more = limits.granted > taken_ ? limits.granted - taken_ : 0;
      taken_ += more;
      return static_cast<int64_t>(std::min(more, static_cast<uint64_t>(kMost)));
    }
    if (!goes_on_ || now <= flowed_until_) return 0;
    const double time = static_cast<double>(std::min(now - flowed_until_, kSavedUp).count());
    const double bytes = time * 1e-9 * static_cast<double>(limits.rate) + part_;
    const auto more = static_cast<int64_t>(std::min(bytes, static_cast<double>(kMost)));
    part_ = bytes - static_cast<double>(more);
    flowed_until_ = now;
    return more;
  }
  static int64_t SavedUp(const Limits& limits) {
    const double bytes =
        static_cast<double>(limits.rate) * 1e-9 * static_cast<double>(kSavedUp.count());
    return std::max(kLeastSavedUp,
                    static_cast<int64_t>(std::min(bytes, static_cast<double>(kMost))));
  }

  int64_t balance_ = 0;  // bytes that may be copied; negative: a debt
  uint64_t taken_ = 0;   // bytes taken of the broker's grants
  bool awaited_ = false;
  bool lost_ = false, goes_on_ = false;
  Time flowed_until_{};
  double part_ = 0;  // fraction of a byte
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_COPY_SHARE_H_
