// SPDX-License-Identifier: Apache-2.0
#include "client/time_share.h"

#include <algorithm>
#include <utility>

namespace gpushare::client {
namespace {

constexpr int64_t kMillion = 1'000'000;
// How often to ask again for a grant, not being and being in the broker's line.
constexpr Nanos kAskAgain = Millis(5), kAskAgainInLine = Millis(100);
// What a busy engine is assumed to want next if it has not told.
constexpr Nanos kSomething = Micros(1);
// Time that flows in is handed out in pieces of this size, since otherwise every command would wait separately.
constexpr Nanos kPiece = Micros(50);
// Keeps sums from overflow, whatever the broker says.
constexpr Nanos kMost = Nanos(INT64_MAX / 4);

Nanos Bounded(Nanos value) { return std::clamp(value, -kMost, kMost); }

// How long it takes until `amount` has flowed in.
Nanos FlowsIn(Nanos amount, uint32_t ppm) {
  const auto takes = static_cast<unsigned __int128>(std::max(amount, Nanos(0)).count()) * kMillion /
                         std::min<uint32_t>(ppm, kMillion) +
                     1;
  return Nanos(static_cast<int64_t>(std::min<unsigned __int128>(takes, INT64_MAX)));
}

}  // namespace

Nanos TimeShare::Balance(const Limits& limits, const gate::Supply::Report& report, Time now) {
  const auto of = [&](const Limits& said) {
    return Bounded(said.granted) - returned_ - (report.charged - begin_ - bypassed_);
  };
  if (lost_) FlowIn(limits, of(limits) + flowed_, now);
  if (flowed_ > Nanos(0)) {
    // Time used by the clock must not count against the broker's grants, since the broker may return with the same page.
    const Nanos used = std::clamp(owed_ - of(kept_), Nanos(0), flowed_);
    begin_ += used;
    flowed_ = lost_ ? flowed_ - used : Nanos(0);
  }
  return of(limits) + flowed_;
}

void TimeShare::FlowIn(const Limits& limits, Nanos balance, Time now) {
  if (!goes_on_ || now <= flowed_until_) return;
  const auto flow = static_cast<unsigned __int128>((now - flowed_until_).count()) *
                        std::min<uint32_t>(limits.guarantee_ppm, kMillion) +
                    static_cast<unsigned __int128>(part_);
  flowed_until_ = now;
  part_ = static_cast<int64_t>(flow % kMillion);
  // At most a century, so it fits.
  const Nanos more = std::clamp(Nanos(static_cast<int64_t>(flow / kMillion)), Nanos(0),
                                std::max(Nanos(0), kDepth - balance));
  flowed_ += more;
}

bool TimeShare::MustRing(const Limits& limits, const gate::Supply::Report& report, Nanos balance) {
  const bool busy = report.wanted > Nanos(0) || report.outstanding > Nanos(0);
  const bool waits = report.wanted > Nanos(0);
  const bool begins_to_wait = waits && !waiting_;
  waiting_ = waits;
  if (limits.bypass) {
    asking_ = false;
    // Work that waits at the gate has not begun. The broker is called when work in flight begins or ends, after it is on
    // the page.
    const bool in_flight = report.outstanding > Nanos(0);
    return std::exchange(busy_, in_flight) != in_flight;
  }
  busy_ = busy;
  bool ring = false;
  const Nanos grant = Bounded(limits.grant);
  if (busy &&
      (balance <= Nanos(0) || balance < grant / 2 || balance < std::min(report.wanted, grant))) {
    asking_ = true;
    // Ring once for each grant, and whenever a command begins to wait: the process may have looked idle to the broker since,
    // which then took it out of the line.
    ring = asked_at_ != limits.granted || (begins_to_wait && !limits.in_line);
    asked_at_ = limits.granted;
  }
  // If the rest is too little for another command, another process may have the device next.
  const Nanos next = report.wanted > Nanos(0) ? report.wanted : last_wanted_;
  const bool used_up = balance < std::clamp(std::min(next, grant), Nanos(1), kMost);
  if (used_up && limits.granted > Nanos(0) && used_up_at_ != limits.granted) {
    used_up_at_ = limits.granted;
    ring = true;
  }
  // While the end of the work in flight was unknown, the broker waited for it. Ring now that it is known, so that another
  // process can have the device.
  const bool unsure = report.ends == kNever;
  if (std::exchange(unsure_, unsure) && !unsure && (used_up || limits.closed)) ring = true;
  return ring;
}

TimeShare::Told TimeShare::Tell(const Limits& said, const gate::Supply::Report& report, Time now) {
  const Limits& limits = lost_ ? kept_ : said;
  if (limits.bypass) bypassed_ += report.charged - last_.charged;
  last_ = report;
  Nanos balance = Balance(limits, report, now);
  Told told;

  const bool busy = report.wanted > Nanos(0) || report.outstanding > Nanos(0);
  if (busy) {
    idle_since_ = kNever;
  } else if (idle_since_ == kNever) {
    idle_since_ = now;
  }
  if (report.wanted > Nanos(0)) last_wanted_ = report.wanted;
  const bool ring = MustRing(limits, report, balance);
  const Time idle_at = After(idle_since_, kIdle);
  if (!busy && now >= idle_at) {
    asking_ = false;
    asked_at_ = Nanos::min();
    if (balance > Nanos(0) && !lost_) {
      returned_ += balance;
      balance = Nanos(0);
      used_up_at_ = limits.granted;
      told.ring = true;
    }
  } else if (!busy && (balance > Nanos(0) || asking_)) {
    told.answer.look_by = idle_at;
  }
  told.ring = !lost_ && (told.ring || ring);

  // A command that takes longer than the grant would take time of the next process.
  const Nanos enough =
      std::clamp(std::min(report.wanted, Bounded(limits.grant)), Nanos(1), lost_ ? kDepth : kMost);
  told.answer.bounded = !limits.bypass;
  told.answer.below = limits.below && !lost_;
  const bool held = limits.held && !lost_;
  if (limits.suspended || held) {
    told.answer.open = false;
  } else if (limits.bypass) {
    told.answer.open = !lost_ || goes_on_;
  } else {
    told.answer.open = balance >= enough && (lost_ || !limits.closed);
  }
  told.answer.revoke = limits.suspended || held || (limits.closed && !limits.bypass && !lost_);
  if (!told.answer.open && lost_ && goes_on_ && !limits.suspended && limits.guarantee_ppm > 0) {
    told.answer.look_by =
        After(now, FlowsIn(std::max(kPiece, enough) - balance, limits.guarantee_ppm));
  }

  // The broker may have seen an older state, so an unanswered request is repeated.
  if (report.wanted > Nanos(0) && !told.answer.open && !lost_) {
    const Nanos again = limits.in_line ? kAskAgainInLine : kAskAgain;
    if (now >= After(rung_at_, again)) told.ring = true;
    told.answer.look_by = std::min(told.answer.look_by, After(now, again));
  }
  if (told.ring) rung_at_ = now;

  used_ = std::max(used_, report.charged - begin_ - report.outstanding);
  told.used = used_;
  told.returned = returned_;
  told.in_flight = report.outstanding;
  told.ends = report.ends;
  told.wanted = report.wanted > Nanos(0) ? report.wanted
                : asking_                ? std::max(last_wanted_, kSomething)
                                         : Nanos(0);
  told.relies_on_line = told.wanted > Nanos(0) && limits.in_line && !told.ring && !lost_;
  return told;
}

void TimeShare::Lose(const Limits& last, bool goes_on, Time now) {
  if (!lost_) owed_ = std::min(Balance(last, last_, now), Nanos(0));
  lost_ = true;
  goes_on_ = goes_on;
  kept_ = last;
  kept_.granted = Bounded(last.granted);
  flowed_ = Nanos(0);
  part_ = 0;
  flowed_until_ = now;
}

// The next Tell() separates the time that was used by the clock (Balance()).
void TimeShare::Find() { lost_ = false; }

void TimeShare::Begin() {
  begin_ = last_.charged;
  bypassed_ = used_ = returned_ = flowed_ = Nanos(0);
  lost_ = false;
  busy_ = waiting_ = asking_ = unsure_ = false;
  asked_at_ = used_up_at_ = Nanos::min();
}

}  // namespace gpushare::client
