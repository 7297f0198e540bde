// SPDX-License-Identifier: Apache-2.0
// A supply of device time from outside. On a GPU that other processes use too, an engine hands its tenants no more than this
// process was granted.
#ifndef GPUSHARE_GATE_SUPPLY_H_
#define GPUSHARE_GATE_SUPPLY_H_

#include "base/time.h"

namespace gpushare::gate {

class Supply {
 public:
  virtual ~Supply() = default;

  // The engine's books, as totals since its start. `charged` is what was handed out or charged, corrected by measurements.
  // `outstanding` is the part of it that is not known to be done. `wanted` is the cost of the first waiting command; 0: none
  // waits.
  struct Report {
    Nanos charged{0}, outstanding{0}, wanted{0};
    Time ends{};   // when `outstanding` is predicted to be done; kNever: it includes a guess
    Time ended{};  // when the last measured work was done
  };
  struct Answer {
    bool open = true;       // more may be handed out
    bool bounded = true;    // what is handed out is counted, so work of unknown cost is limited
    bool below = false;     // another process goes first and waits for what is in flight here
    bool ended = false;     // nothing will come any more; waiters get Verdict::kEnded
    bool revoke = false;    // take back unspent credit: another process has the device
    Time look_by = kNever;  // report again no later than then
  };
  // Called under the engine's lock whenever the engine is about to hand out time or has settled some. Must not take a lock
  // that is held across a call of the engine, must not wait, and must not call back.
  virtual Answer Tell(const Report& report, Time now) = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_SUPPLY_H_
