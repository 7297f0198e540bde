// SPDX-License-Identifier: Apache-2.0
// How a process spends its granted device time on one GPU, and when it asks for more.
//
//   granted     by the broker in total; if a grant took longer than predicted, the broker adds the excess
//   - returned  by this process because it did not need it
//   - spent     charged by the engine since the session began, measured or predicted, except time charged while no grant
//               was needed, and time used by the clock
//   = balance   while it is above zero, more may be handed out
//
// A grant is asked for when the balance is below half of the last grant, so that the next one is there when that ends. What
// is left when nothing has run for kIdle goes back. Without a broker, if the process may go on, time flows in by the clock
// at the rate guarantee_ppm, at most kDepth ahead.
//
// Pure: time is passed in, no I/O, no locks.
#ifndef GPUSHARE_CLIENT_TIME_SHARE_H_
#define GPUSHARE_CLIENT_TIME_SHARE_H_

#include <cstdint>

#include "base/time.h"
#include "gate/supply.h"

namespace gpushare::client {

class TimeShare {
 public:
  static constexpr Nanos kIdle = Millis(1);
  static constexpr Nanos kDepth = Millis(5);

  // The broker's page as last read. Any value must be handled.
  struct Limits {
    bool closed = false, suspended = false, bypass = false;
    bool in_line = false;  // the broker knows that a grant is wanted
    bool below = false;    // a tenant of higher priority is on the GPU
    bool held = false;     // held for a turn of the lower priorities (floor.h)
    Nanos granted{0}, grant{0};
    uint32_t guarantee_ppm = 0;
    bool operator==(const Limits&) const = default;
  };
  struct Told {
    gate::Supply::Answer answer;
    Nanos used{0}, returned{0}, wanted{0}, in_flight{0};  // for the usage page
    Time ends{};                                          // when the work in flight is done
    bool ring = false;                                    // the broker has to look at the page
    // The broker is not called because its page shows this process in line.
    bool relies_on_line = false;
  };
  Told Tell(const Limits& limits, const gate::Supply::Report& report, Time now);

  // The broker has gone. `goes_on`: time flows in by the clock; otherwise the process stops when the balance is used up.
  void Lose(const Limits& last, bool goes_on, Time now);
  // The broker is there after all, with the same session. Time used by the clock meanwhile does not count as its grants.
  void Find();
  // A new session: what was charged before does not count.
  void Begin();

 private:
  Nanos Balance(const Limits& limits, const gate::Supply::Report& report, Time now);
  void FlowIn(const Limits& limits, Nanos balance, Time now);
  bool MustRing(const Limits& limits, const gate::Supply::Report& report, Nanos balance);

  gate::Supply::Report last_;
  Nanos begin_{0};     // charged before the session
  Nanos bypassed_{0};  // charged in the session while no grant was needed
  Nanos used_{0}, returned_{0};
  Time idle_since_ = kNever;  // kNever: the engine is not idle

  // The reasons for which the broker was called.
  bool busy_ = false;     // as last reported while no grant is needed
  bool waiting_ = false;  // a command waited at the last look
  bool unsure_ = false;   // at the last look the end of the work in flight was a guess
  bool asking_ = false;   // it has asked for a grant since it was last idle
  Nanos last_wanted_{0};
  Nanos asked_at_ = Nanos::min(), used_up_at_ = Nanos::min();  // Limits::granted at that time
  Time rung_at_{};                                             // when the broker was last called

  // The state without a broker.
  bool lost_ = false, goes_on_ = false;
  Limits kept_;
  Nanos flowed_{0};   // flowed in and not used yet
  Nanos owed_{0};     // debt to the broker beyond its grants, which time that flows in does not pay
  int64_t part_ = 0;  // fraction of a nanosecond, in millionths
  Time flowed_until_{};
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_TIME_SHARE_H_
