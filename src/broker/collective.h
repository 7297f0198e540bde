// SPDX-License-Identifier: Apache-2.0
// Coordinates the caps of one tenant on several GPUs.
//
// A kernel of a collective (an all-reduce) runs on its GPU until the kernels on the other GPUs have run too. If one of them
// is held because its cap is used up, the others spin, and are charged for that device time. Their debt then holds the next
// kernel, for which the first GPU spins. With caps of half of the device or less the debt grows with each step, without
// bound. So for a tenant that has processes on several GPUs:
//
//   1. When its work on one GPU has been late for `patience`, work that a cap holds on another GPU passes the cap. It is
//      charged: debt against a cap is never forgiven.
//   2. For `remembered` after that, its caps hold in step: while one cap is used up, nothing begins on the other GPUs
//      either, not even with grants given before, and all go on together. So the debts are paid while no kernel spins, and
//      rule 1 is seldom needed.
//   3. A tenant may make work late on purpose, to pass a cap with other work. Until all caps are paid, no more than
//      `at_once` and one command passes, and after that only one part in `hold_per_use` of the time, so that in the long
//      run only a burst passes a cap. What commands take beyond their grants counts too (Passed()).
//
// Pure: time is an argument. Threading: one caller at a time.
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
  // The state of the tenant on one GPU.
  struct Side {
    Time late_since = kNever;  // since when work in flight has been late; kNever: none is late
    bool in_debt = false;      // its cap is used up, and does not cover a grant again yet
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

  // Takes what the GPU's time book sees at each look.
  void Say(Side& side, bool late, bool in_debt, Time now);
  // When work held on that GPU may pass its cap; kNever: no work that could be waiting for it is late.
  Time PassesAt(const Side& side) const;
  // Whether nothing may begin on that GPU because its cap or another GPU's cap is used up.
  bool HeldInStep(const Side& side, Time now) const;
  // Counts device time that has passed a cap.
  void Passed(Nanos amount, Time now);

 private:
  // When work on other GPUs has been late for `patience`, so that it may be waiting for work held on this one.
  Time WaitedForAt(const Side& side) const;

  const Options options_;
  std::list<Side> sides_;
  Nanos passed_{0};    // since all caps were paid
  Time held_until_{};  // nothing passes a cap before
  Time remembered_until_{};
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_COLLECTIVE_H_
