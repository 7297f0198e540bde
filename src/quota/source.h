// SPDX-License-Identifier: Apache-2.0
// Where an account gets more from than it may hold now: a share that several processes have in common is handed to
// them in pieces.
#ifndef GPUSHARE_QUOTA_SOURCE_H_
#define GPUSHARE_QUOTA_SOURCE_H_

#include <cstdint>

#include "base/time.h"

namespace gpushare::quota {

class Account;

class Source {
 public:
  virtual ~Source() = default;

  // `account` has no room for `bytes`: raises its limit so that it has, if that can be had by `deadline` at the
  // latest. False: it cannot. Called without a lock; may wait.
  virtual bool GetRoom(Account& account, uint64_t bytes, Time deadline) = 0;
  // What may be held at most, if all goes well; what is left of that, now.
  virtual uint64_t Limit() const = 0;
  virtual uint64_t Left() const = 0;
  // Of what is left, what the device may not have back yet from processes that have ended: GetRoom() waits for it.
  virtual uint64_t Reclaiming() const { return 0; }
};

// Who spends what a source gives: an account, or several that have one limit in common.
class Holder {
 public:
  virtual ~Holder() = default;

  // What is charged or promised; of what was charged before a limit was lowered nothing is missing afterwards, and
  // nothing is granted that would go beyond it.
  virtual uint64_t Charged() const = 0;
  virtual void SetLimit(uint64_t limit) = 0;
  // For those who look at figures.
  struct Figures {
    uint64_t charged = 0, peak = 0, denied = 0;
    bool operator==(const Figures&) const = default;
  };
  virtual Figures figures() const = 0;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_SOURCE_H_
