// SPDX-License-Identifier: Apache-2.0
// What the caps of one tenant on several GPUs do to one another.
//
// A kernel of a collective (an all-reduce) runs on its GPU until those on the others have run too. Where one of them is
// held because a cap is used up, the rest spin, which is device time and is charged; their debt then holds the next one,
// for which the first spins. Under caps of half of the device and less that grows with each step, without bound. So, of a
// tenant that has processes on several GPUs:
//
//   1. While work of it on one GPU has not ended when it should have, for `patience`, what a cap holds on another passes,
//      and is charged: debt against a cap is never forgiven.
//   2. For `remembered` after that its caps hold in step: while one is used up nothing begins on the others either, of what
//      they were granted before too, and all go on together. So they pay while nobody spins, and seldom need 1.
//   3. Work may be late on purpose, to let other work pass. Until all caps are paid no more than `at_once` and a command
//      passes, and from there on a `hold_per_use`th of the time, so what passes a cap in the long run is a burst. What
//      commands take beyond their grants counts (Passed()).
//
// Pure: time is an argument. One caller at a time.
#ifndef GPUSHARE_BROKER_COLLECTIVE_H_
#define GPUSHARE_BROKER_COLLECTIVE_H_

#include <algorithm>
#include <cstddef>
#include <list>

#include "base/time.h"

namespace gpushare::broker {

class Collective {
 public:
  struct Options {
    Nanos patience = Millis(2);
    Nanos at_once = Millis(20);
    int hold_per_use = 10;
    Nanos remembered = Seconds(1);
  };
  // The tenant on one GPU.
  struct Side {
    Time late_since = kNever;  // it has in flight what should have ended; kNever: it has not
    bool in_debt = false;      // its cap is used up, and not worth a grant again yet
  };

  Collective() : Collective(Options()) {}
  explicit Collective(const Options& options) : options_(options) {}
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;

  // Addresses are stable.
  Side* Enter() { return &sides_.emplace_back(); }
  void Leave(Side* side) {
    sides_.remove_if([side](const Side& other) { return &other == side; });
  }

  size_t sides() const { return sides_.size(); }

  // What its time book sees at each look.
  void Say(Side& side, bool late, bool in_debt, Time now);
  // From when on what is held there passes; kNever: nothing that may wait for it is late.
  Time PassesAt(const Side& side) const;
  // Whether nothing may begin there, for its own cap or another one's.
  bool HeldInStep(const Side& side, Time now) const;
  void Passed(Nanos amount, Time now);

 private:
  // From when on others may be waiting for what is held there: their work is late for long enough.
  Time WaitedForAt(const Side& side) const;

  const Options options_;
  std::list<Side> sides_;
  Nanos passed_{0};    // since all were paid
  Time held_until_{};  // nothing passes before
  Time remembered_until_{};
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_COLLECTIVE_H_
