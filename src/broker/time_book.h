// SPDX-License-Identifier: Apache-2.0
// Divides the device time of one GPU among tenants whose processes are separate.
//
// It uses the arbiter that divides a GPU within a process (sched/arbiter.h), with larger pieces: a grant is some
// milliseconds of device time, which the process's own engine divides further. Grants follow one another, because contexts
// of different processes do not run at the same time, and because a process measures its own time correctly only while no
// kernels of other processes come between. So the next grant is given when the last is nearly used up, by the clock and by
// the end that its process predicts. What a process reports corrects the books, but can only spend what was granted.
//
// A process asks for its next grant when half of the last is left, and returns what it does not need. What it neither
// uses nor returns while the device waits for it lapses: in the books it is the tenant's again. If the process uses it later,
// that is charged then, and as long as it goes on using it, it holds the device again.
//
// Pure except for the pages: time is an argument, nothing blocks. Threading: one caller at a time.
#ifndef GPUSHARE_BROKER_TIME_BOOK_H_
#define GPUSHARE_BROKER_TIME_BOOK_H_

#include <algorithm>
#include <array>
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
  // The settings that an operator may change.
  struct Settings {
    Nanos slice = Millis(4);  // length of a grant
    double floor = 0;         // the part of the device's time that tenants below high priority keep
  };
  struct Options {
    Nanos overlap = Micros(20);  // the next grant is given when this much of the last is left
    Nanos look = Micros(250);    // how often pages are read while a process waits
    int most_charged = 4;  // grants that a process may have without having reported them as used
    // Times after a grant should have been used up. `believed`: how long the process's prediction is believed, and the most
    // that is charged for a command as it begins. `waited_for`: how long work is waited for that it says is in flight.
    Nanos believed = Millis(100), waited_for = Seconds(1);
    // The same for a process that cannot predict when its work ends. `guessed`: how long nothing below high priority is
    // granted beside that work. `guess_charged`: how long its commands are charged as they begin.
    Nanos guessed = Millis(50), guess_charged = Millis(10);
  };
  struct Tenant;
  struct Member {
    Tenant* tenant = nullptr;
    Seat* seat = nullptr;
    sched::Phase phase = sched::Phase::kWeight;  // phase of its latest grant
    int64_t bypassed_ns = 0;                     // the part of its use that needed no grant
    int64_t granted_ns = 0;                      // all grants so far
    int64_t used_ns = 0, returned_ns = 0;        // as the process reports; they only grow
    int64_t charged_ns = 0;  // outstanding in the arbiter: granted or charged, not used or returned
    std::array<int64_t, 4> charged_in{};  // the same by sched::Phase
    int64_t ahead_ns = 0;  // the part of it charged ahead, for commands longer than their grant
    // The part charged ahead that was in the end neither used nor in flight, less what the process has used since. While it
    // exceeds Options::believed, the process's predictions are not believed.
    int64_t untrue_ns = 0;
    bool waiting = false;  // in its tenant's line
    // It may begin nothing: a higher priority has the device, or its tenant is held.
    bool closed = false;
    bool in_the_way = false;  // at the last look it had the device while others waited
    bool to_report = false;   // it had, and has reported no use since it has not
    // For a bypassing member: the floor has held it, and its work is about to begin.
    bool held = false;
    Time waits_since{};
    Time until{};      // when its grants should have been used up
    Time looked_at{};  // the last look
  };
  struct Tenant {
    sched::TenantId id = 0;
    sched::TenantLimits limits;
    Tenant* parent =
        nullptr;  // whose share bounds this one's and its siblings' together; null: none
    bool suspended = false;
    std::deque<Member*> line;  // its processes that want a grant, in order
    bool blocked = false;      // the arbiter knows that it waits
    int64_t used_ns = 0;       // includes processes that are gone
    Time used_at{};            // when it last used device time, or was charged for keeping it
    int64_t unused_ns = 0;     // how long it kept the device from others without using it
    int64_t paid_ns = 0;       // what it was charged for that
    bool ended = false;        // since the last look some of its work ended, or is not waited for
    sched::Phase phase = sched::Phase::kWeight;  // phase of its latest grant
    int members = 0;
    WaitHistogram waits;     // the waits of its processes in the line
    uint64_t preempted = 0;  // how often its grants were held back or refused for a higher priority
    // Coordinates it with its processes on other GPUs; null: none.
    Collective* collective = nullptr;
    Collective::Side* side = nullptr;
    bool held = false;     // nothing of it begins, because of its cap here or on another GPU
    bool passing = false;  // some work has passed its cap, and the cap is not paid yet
  };

  TimeBook() : TimeBook(Options()) {}
  explicit TimeBook(const Options& options);

  void Configure(const Settings& settings);

  // Addresses are stable. A tenant must have no members and no children when it is removed.
  // `collective` is shared by the same tenant on all GPUs, and must outlive the book's tenant. A `parent` is a tenant of this
  // book without a parent: Arbiter::Add() says how its children divide its share.
  Tenant* AddTenant(const sched::TenantLimits& limits, Time now, Collective* collective = nullptr,
                    Tenant* parent = nullptr);
  void Update(Tenant* tenant, const sched::TenantLimits& limits, Time now, Changed& changed);
  void RemoveTenant(Tenant* tenant, Time now);
  // For a tenant without members: when a newly made tenant would get the same. `now` if its cap is full and no debt against
  // its weight is remembered.
  Time ClearAt(const Tenant& tenant, Time now) const;
  // Grants nothing more while suspended. The process must not spend grants that it has left, but keeps them.
  void Suspend(Tenant* tenant, bool suspended, Time now, Changed& changed);

  Member* Join(Tenant* tenant, Seat& seat, Time now, Changed& changed);
  // The process has ended: what it had not used is the tenant's again at once.
  void Leave(Member* member, Time now, Changed& changed);

  // Reads what the members say, grants what is due, and says when to look again at the latest.
  Time Look(Time now, Changed& changed);

  const std::list<Member>& members() const { return members_; }
  const char* CheckInvariants() const;

 private:
  void Extend(Member& member, int64_t ns, Changed& changed);
  void Charge(Member& member, int64_t ns, Time now, Time ended = kNever);
  void Settle(Member& member, int64_t used, Time now, Time ended = kNever);
  void KeepCharged(Member& member, int64_t ns, Time now);
  void ChargeAhead(Member& member, int64_t in_flight, Time now);
  void ChargeAgain(Member& member, int64_t used, int64_t unused, Time now);
  void CountHeld(Member& member, int64_t used, Time now);
  void ChargeHeld(Tenant& tenant, Time now);
  // The part of its charge that the process says is in flight.
  static int64_t ChargedInFlight(const Member& member);
  std::optional<int64_t> Left(const Member& member, Time now) const;
  void Foresee(Time now);
  Time HighDone(Time now) const;
  void SetWaiting(Member& member, bool waiting, Time now);
  bool SetClosed(Member& member, bool closed, Changed& changed);
  void Read(Member& member, Time now, Changed& changed);
  void ReadBypass(Member& member, Time now);
  void LearnPause(Time now);
  // Begins, continues or ends the floor's turn. Returns when to look again.
  Time TakeFloorTurn(Time now, Changed& changed);
  void HoldHigh(bool held, Changed& changed);
  void Ask(Tenant& tenant, Time now);
  void Give(Tenant& tenant, const sched::Grant& grant, Time now, Changed& changed);
  std::optional<bool> LateInFlight(const Member& member, Time now) const;
  bool HasInFlight(const Tenant& tenant, bool late, Time now) const;
  // Counts `ns` that the tenant was charged beyond its grants.
  void CountBeyond(Tenant& tenant, int64_t ns, Time now);
  void Say(Tenant& tenant, Time now);
  // Lets work pass the tenant's cap if its work on other GPUs may be waiting for it. Returns when to look again.
  Time PassHeld(Tenant& tenant, Time now, Changed& changed);
  void Lapse(Member& member, Time now);
  void SetLimits(Member& member, Changed& changed);
  // Publishes the part of the device that each process may use if the broker ends: its part of its tenant's guarantee and,
  // by weight, of the time that is not guaranteed. Children divide their parent's part in the same way.
  void PublishParts();
  // The least of the caps that bound the tenant.
  static double CapOf(const Tenant& tenant) {
    return tenant.parent == nullptr ? tenant.limits.cap
                                    : std::min(tenant.limits.cap, tenant.parent->limits.cap);
  }
  static bool Bypasses(const Tenant& tenant) {
    return tenant.limits.band == sched::Band::kHigh && CapOf(tenant) >= 1;
  }

  const Options options_;
  Settings settings_;
  sched::Arbiter arbiter_;
  Floor floor_;
  int64_t used_below_ns_ = 0;  // used by tenants below high priority since the last look
  struct Turn {
    Time since{};
    Time until{};         // the latest end
    int64_t used_ns = 0;  // used in the turn
    bool over = false;    // nothing more begins; the turn waits for what has begun
  };
  std::optional<Turn> turn_;  // the floor's turn
  std::list<Tenant> tenants_;
  std::map<sched::TenantId, Tenant*> by_id_;
  std::list<Member> members_;
  // For members that need no grant.
  Pauses pauses_;
  bool bypassing_ = false;            // one of them has work in flight
  Time bypassed_until_{};             // when the last of their work was done
  std::vector<sched::Grant> grants_;  // scratch
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_TIME_BOOK_H_
