// SPDX-License-Identifier: Apache-2.0
// Where an account gets more bytes than its limit allows now. A share that several processes have in common is given to them in
// pieces.
#ifndef GPUSHARE_QUOTA_SOURCE_H_
#define GPUSHARE_QUOTA_SOURCE_H_

#include <cstdint>

#include "base/time.h"

namespace gpushare::quota {

class Account;

class Source {
 public:
  virtual ~Source() = default;

  // Raises the limit of `account`, which has no room for `bytes`, so that they fit. False if that is not possible by
  // `deadline`. Called without a lock; may wait.
  virtual bool GetRoom(Account& account, uint64_t bytes, Time deadline) = 0;
  // The most bytes that can be held, and how many of them are left now.
  virtual uint64_t Limit() const = 0;
  virtual uint64_t Left() const = 0;
  // The bytes of Left() that the device may not have reclaimed yet from ended processes. GetRoom() waits for them.
  virtual uint64_t Reclaiming() const { return 0; }
};

// The user of a source's bytes: an account, or several that have one limit in common.
class Holder {
 public:
  virtual ~Holder() = default;

  // The bytes charged or promised. After SetLimit() has lowered the limit, this includes everything that was granted before,
  // and nothing is granted beyond the new limit.
  virtual uint64_t Charged() const = 0;
  virtual void SetLimit(uint64_t limit) = 0;
  // Figures for reports.
  struct Figures {
    uint64_t charged = 0, peak = 0, denied = 0;
    bool operator==(const Figures&) const = default;
  };
  virtual Figures figures() const = 0;
};

}  // namespace gpushare::quota

#endif  // GPUSHARE_QUOTA_SOURCE_H_
