// SPDX-License-Identifier: Apache-2.0
// How a process spends the device time that it was granted of one GPU, and when it asks for more.
//
//   granted     by the broker, in all: what was used beyond a grant, because it took longer than predicted, it adds
//   - returned  by this process, of what it did not need
//   - spent     what the engine has charged since the session began, measured or predicted; what was charged while no
//               grant was needed is not of it, nor what was used by the clock
//   = balance   while it is above zero, more may be handed out
//
// A grant is asked for when the balance is below half of the last one, so that the next is there when it ends; what is
// left when nothing has run for kIdle goes back. Without a broker, and if the process may go on then, time flows in by
// the clock: guarantee_ppm of it, at most kDepth ahead.
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

  // What the broker says, as it was read last. Any value is one.
  struct Limits {
    bool closed = false, suspended = false, bypass = false;
    bool in_line = false;  // the broker knows that a grant is wanted
    bool below = false;    // somebody of a higher priority is on the GPU
    bool held = false;     // those below have their turn
    Nanos granted{0}, grant{0};
    uint32_t guarantee_ppm = 0;
    bool operator==(const Limits&) const = default;
  };
  struct Told {
    gate::Supply::Answer answer;
    Nanos used{0}, returned{0}, wanted{0}, in_flight{0};  // for the usage page
    Time ends{};                                          // when what is in flight is done
    bool ring = false;                                    // the broker is to look at it
    bool relies_on_line = false;  // it is not called, because it said that this process is in line
  };
  Told Tell(const Limits& limits, const gate::Supply::Report& report, Time now);

  // The broker has gone. `goes_on`: by the clock; else until the balance ends.
  void Lose(const Limits& last, bool goes_on, Time now);
  // It is there after all, with the session of before: what was used by the clock meanwhile is not of its grants.
  void Find();
  // A new session: whatever was charged before is not of it.
  void Begin();

 private:
  Nanos Balance(const Limits& limits, const gate::Supply::Report& report, Time now);
  void FlowIn(const Limits& limits, Nanos balance, Time now);
  bool MustRing(const Limits& limits, const gate::Supply::Report& report, Nanos balance);

  gate::Supply::Report last_;
  Nanos begin_{0};     // charged before the session
  Nanos bypassed_{0};  // and while no grant was needed
  Nanos used_{0}, returned_{0};
  Time idle_since_ = kNever;  // kNever: it is not

  // What the broker was called for.
  bool busy_ = false;     // told in bypass
  bool waiting_ = false;  // a command waited at the last look
  bool unsure_ = false;   // at the last look there was a guess in what is in flight
  bool asking_ = false;   // since it was idle last
  Nanos last_wanted_{0};
  Nanos asked_at_ = Nanos::min(), used_up_at_ = Nanos::min();  // what was granted then
  Time rung_at_{};                                             // when the broker was last called

  // Without a broker.
  bool lost_ = false, goes_on_ = false;
  Limits kept_;
  Nanos flowed_{0};   // and not used
  Nanos owed_{0};     // to the broker, beyond its grants: not paid by what flows in
  int64_t part_ = 0;  // of a nanosecond, in millionths
  Time flowed_until_{};
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_TIME_SHARE_H_
