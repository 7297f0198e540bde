// SPDX-License-Identifier: Apache-2.0
// Device time that comes from outside: of a GPU that other processes use too, an engine hands its tenants no more than
// this process was granted.
#ifndef GPUSHARE_GATE_SUPPLY_H_
#define GPUSHARE_GATE_SUPPLY_H_

#include "base/time.h"

namespace gpushare::gate {

class Supply {
 public:
  virtual ~Supply() = default;

  // The engine's books, in all since its start: `charged` was handed out or charged, corrected by what was measured;
  // `outstanding` of it is not known to be done. `wanted` is what the command takes that waits first; 0: none waits.
  struct Report {
    Nanos charged{0}, outstanding{0}, wanted{0};
    Time ends{};   // when `outstanding` is predicted to be done; kNever: there is a guess in it
    Time ended{};  // when the last of what has been measured was done
  };
  struct Answer {
    bool open = true;  // more may be handed out
    bool bounded =
        true;  // what is handed out is counted: too much of unknown cost would be too much
    bool below = false;     // somebody elsewhere goes first: what is in flight keeps it waiting
    bool ended = false;     // nothing will be any more: who waits is refused (Verdict::kEnded)
    bool revoke = false;    // and what is not spent comes back: somebody elsewhere has the device
    Time look_by = kNever;  // report again no later than then
  };
  // Under the engine's lock, whenever it is about to hand out something or has settled something: takes no lock that
  // is held across a call of the engine, does not wait, and does not call back.
  virtual Answer Tell(const Report& report, Time now) = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_SUPPLY_H_
