// SPDX-License-Identifier: Apache-2.0
// The device time of one GPU, among the tenants of several processes.
//
// The arbiter is the one that divides a GPU within a process (sched/arbiter.h), with larger pieces: a grant is some
// milliseconds of device time, which the process's own engine divides further. Grants follow one another: contexts of
// several processes do not run at the same time, and what a process measures is its own only while nobody else's
// kernels come between. So the next is given when the last is nearly done, by the clock and by when its process predicts
// that. What a process reports corrects the books, and can do no more than spend what it was granted.
//
// A process asks for its next grant when half of the last is left, and returns what it does not need. What it neither
// uses nor returns while the device waits for it lapses: in the books it is the tenant's again, and whoever spends it
// later is charged then.
//
// Pure but for the pages: time is an argument, nothing blocks. One caller at a time.
#ifndef GPUSHARE_BROKER_TIME_BOOK_H_
#define GPUSHARE_BROKER_TIME_BOOK_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "base/time.h"
#include "broker/collective.h"
#include "broker/floor.h"
#include "broker/pauses.h"
#include "broker/seat.h"
#include "broker/wait_histogram.h"
#include "sched/arbiter.h"

namespace gpushare::broker {

class TimeBook {
 public:
  // What an operator may change.
  struct Settings {
    Nanos slice = Millis(4);  // a grant
    double floor = 0;         // part of the device that those below a high priority keep beside it
  };
  struct Options {
    Nanos overlap = Micros(20);  // the next is given when so much of the last is left
    Nanos look = Micros(250);    // while somebody waits, pages are read so often
    int most_charged = 4;        // grants that a process may have had and not reported as used
    // After the time in which a grant should have been used: so long what its process predicts is believed, and so much is
    // charged of a command as it begins; and so long what it says is in flight is waited for.
    Nanos believed = Millis(100), waited_for = Seconds(1);
    // The same where its process cannot say when that ends: so long others have less in flight, and so long it is charged.
    Nanos guessed = Millis(50), guess_charged = Millis(10);
  };
  struct Tenant;
  struct Member {
    Tenant* tenant = nullptr;
    Seat* seat = nullptr;
    sched::Phase phase = sched::Phase::kWeight;  // of its latest grant
    int64_t bypassed_ns = 0;                     // of what it used, without a grant
    int64_t granted_ns = 0;                      // all in all
    int64_t used_ns = 0, returned_ns = 0;        // as it says, which goes one way
    int64_t charged_ns = 0;  // outstanding in the arbiter: granted or charged, not used or returned
    int64_t ahead_ns = 0;    // of it: of commands that are longer than what it was granted
    // Of those so much was neither used nor in flight in the end, less what it has used since. While that is more than is
    // ever believed at once, what it says of an end is not.
    int64_t untrue_ns = 0;
    bool waiting = false;     // in its tenant's line
    bool closed = false;      // somebody of a higher priority has the device
    bool in_the_way = false;  // at the last look it had the device, and others waited
    bool held = false;        // of one that bypasses: it was, and what it wants is to begin
    Time waits_since{};
    Time until{};      // when what it was granted should have been used
    Time looked_at{};  // last
  };
  struct Tenant {
    sched::TenantId id = 0;
    sched::TenantLimits limits;
    bool suspended = false;
    std::deque<Member*> line;  // its processes that want a grant, in order
    bool blocked = false;      // the arbiter knows that it waits
    int64_t used_ns = 0;       // of processes that are gone included
    Time used_at{};            // the last of it
    int64_t unused_ns = 0;     // for so long it kept the device from others and used none of it
    int members = 0;
    WaitHistogram waits;  // of its processes in the line
    uint64_t preempted =
        0;  // grants that were kept back, or could not be had, for a higher priority
    // With its processes on other GPUs; null: there are none.
    Collective* collective = nullptr;
    Collective::Side* side = nullptr;
    bool held = false;     // nothing of it begins, for its cap here or on another GPU
    bool passing = false;  // something of it has passed its cap, which is not paid yet
  };

  TimeBook() : TimeBook(Options()) {}
  explicit TimeBook(const Options& options);

  void Configure(const Settings& settings);

  // Addresses are stable. A tenant is removed when it has no members.
  // `collective`: of the same tenant's on all GPUs; lives longer.
  Tenant* AddTenant(const sched::TenantLimits& limits, Time now, Collective* collective = nullptr);
  void Update(Tenant* tenant, const sched::TenantLimits& limits, Time now, Changed& changed);
  void RemoveTenant(Tenant* tenant, Time now);
  // Of one without members: from when on one that is made anew would get the same. `now`: its cap is whole, and no debt
  // against its weight is remembered.
  Time ClearAt(const Tenant& tenant, Time now) const;
  // Nothing more is granted; what was granted and is not spent is to be kept.
  void Suspend(Tenant* tenant, bool suspended, Time now, Changed& changed);

  Member* Join(Tenant* tenant, Seat& seat, Time now, Changed& changed);
  // Its process has ended: what it had not used is the tenant's again at once.
  void Leave(Member* member, Time now, Changed& changed);

  // Reads what the members say, grants what is due, and says when to look again at the latest.
  Time Look(Time now, Changed& changed);

  const std::list<Member>& members() const { return members_; }
  const char* CheckInvariants() const;

 private:
  void Extend(Member& member, int64_t ns, Changed& changed);
  void Settle(Member& member, int64_t used, Time now, Time ended = kNever);
  void KeepCharged(Member& member, int64_t ns, Time now);
  void ChargeAhead(Member& member, int64_t in_flight, Time now);
  void CountHeld(Member& member, int64_t used, Time now);
  void ChargeHeld(Member& member, Time now);
  // Of what is charged to it, what it says is in flight.
  static int64_t ChargedInFlight(const Member& member);
  std::optional<int64_t> Left(const Member& member, Time now) const;
  void Foresee(Time now);
  Time HighDone(Time now) const;
  void SetWaiting(Member& member, bool waiting, Time now);
  bool SetClosed(Member& member, bool closed, Changed& changed);
  void Read(Member& member, Time now, Changed& changed);
  void ReadBypass(Member& member, Time now);
  void LearnPause(Time now);
  // The floor's turn: begins it, goes on with it, ends it. Answers when to look again.
  Time TakeFloorTurn(Time now, Changed& changed);
  void HoldHigh(bool held, Changed& changed);
  void Ask(Tenant& tenant, Time now);
  void Give(Tenant& tenant, const sched::Grant& grant, Time now, Changed& changed);
  std::optional<bool> LateInFlight(const Member& member, Time now) const;
  bool HasInFlight(const Tenant& tenant, bool late, Time now) const;
  // It was charged so much that it was not granted.
  void CountBeyond(Tenant& tenant, int64_t ns, Time now);
  void Say(Tenant& tenant, Time now);
  // What a cap holds of it, and others of a collective wait for. Answers when to look again.
  Time PassHeld(Tenant& tenant, Time now, Changed& changed);
  void Lapse(Member& member, Time now);
  void SetLimits(Member& member, Changed& changed);
  // What each is to go on with if the broker ends: of its tenant's guarantee and, by weight, of what nobody is
  // guaranteed.
  void PublishParts();
  static bool Bypasses(const Tenant& tenant) {
    return tenant.limits.band == sched::Band::kHigh && tenant.limits.cap >= 1;
  }

  const Options options_;
  Settings settings_;
  sched::Arbiter arbiter_;
  Floor floor_;
  int64_t used_below_ns_ = 0;  // since the last look, of those who are not of high priority
  struct Turn {
    Time since{};
    Time until{};         // at the latest
    int64_t used_ns = 0;  // of it
    bool over = false;    // nothing more begins; what has is waited for
  };
  std::optional<Turn> turn_;  // of the floor
  std::list<Tenant> tenants_;
  std::map<sched::TenantId, Tenant*> by_id_;
  std::list<Member> members_;
  // Of those that need no grant.
  Pauses pauses_;
  bool bypassing_ = false;            // one has something in flight
  Time bypassed_until_{};             // when the last of it was done
  std::vector<sched::Grant> grants_;  // scratch
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TIME_BOOK_H_
