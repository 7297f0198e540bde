// SPDX-License-Identifier: Apache-2.0
// The arbiter of one GPU: who may hand the device its next commands, and how many.
//
// Start-time fair queueing with a window of outstanding device time and anticipation, guarantees and
// caps (docs/arbiter.md has the mathematics). Pure: time is an argument, there is no I/O, no lock, no
// thread and no randomness; one caller at a time.
//
//   Arbiter arbiter{ArbiterOptions{}};
//   TenantId a = arbiter.Add({.weight = 3}, now), b = arbiter.Add({.weight = 1}, now);
//   arbiter.Block(a, Micros(14), now);             // a's thread stands at the gate with a command
//   std::vector<Grant> grants;
//   Time wake = arbiter.Run(now, grants);          // grants: {a, 14 us or more}; call again at `wake`
//   ...                                            // a launches what the grant covers
//   arbiter.Settle(a, grants[0].phase, /*predicted=*/Micros(14), /*measured=*/Micros(15), now);
//
// All amounts are device time. A grant counts as outstanding from Run() until it is given back
// (Return) or its commands are known to be done (Settle).
#ifndef GPUSHARE_SCHED_ARBITER_H_
#define GPUSHARE_SCHED_ARBITER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"

namespace gpushare::sched {

enum class Band : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };

struct TenantLimits {
  double weight = 1;  // > 0: share of what is not reserved, among the backlogged of the band
  double guarantee =
      0;           // [0, 1]: part of the device that a backlogged tenant gets before the rest is
                   // divided by weight
  double cap = 1;  // (0, 1]: part of the device that it never exceeds; 1: none
  Nanos cap_depth = Millis(5);  // how much unused cap may be saved up
  Nanos burst = Millis(20);     // device time that a tenant back from idle may be ahead by
  Band band = Band::kNormal;
  // Of the high band: the part of the device time that it uses by which others' commands beside it may delay it. Not the
  // arbiter's to keep: see Beside.
  double delay = 0.03;
};

using TenantId = uint32_t;
inline constexpr TenantId kNoTenant = UINT32_MAX;

// What a grant was charged to; handed back with Settle and Return. Of a tenant with a parent its own share and the
// parent's are charged each by its own.
enum class Phase : uint8_t {
  kWeight = 0,
  kGuarantee = 1,
  kParentsGuarantee = 2,  // its own weight, its parent's guarantee
  kBothGuarantees = 3,
};

struct Grant {
  TenantId tenant;
  Nanos amount;
  Phase phase;
  bool stands =
      false;  // exclusive, from low_band_floor, or beside: not to be taken back when closed
  bool beside = false;  // one command, beside what closes its band: see Beside
};

struct ArbiterOptions {
  Nanos window = Micros(200);           // D: outstanding predicted device time
  Nanos low_window = Micros(40);        // below it the device counts as nearly idle
  Nanos high_band_window = Micros(50);  // D while a tenant of a higher band is registered
  int min_commands = 4;                 // always let at least so many be in flight
  int high_band_min_commands = 1;       // the same while a tenant of a higher band is registered
  Nanos grant = Micros(12);             // most that a grant is beyond one command, while contended
  int grant_commands = 8;               // and in predicted commands
  Nanos lone_grant = Micros(100);       // grant of a tenant that is alone
  Nanos high_grant = Micros(100);       // of one of the high band
  Nanos slack = Micros(500);            // virtual time by which a tenant may be ahead of the least
  Nanos active_grace = Micros(100);     // a tenant stays active so long after its last sign of life
  double idle_budget = 0.01;            // part of the time that may be idled away on purpose
  Nanos idle_budget_depth = Millis(2);
  Nanos anticipation = Micros(15);  // how long the next launch of a tenant is waited for
  Nanos high_grace =
      Micros(30);  // lower bands stay closed so long after a higher band's last command
  Nanos asleep_after =
      Micros(200);  // who has been blocked for longer has to be woken: SetWakeLatency()
  // One of the high band that its cap has let go again waits so long at most until what others have in flight is done: where
  // the device cuts the two into slices, and each is charged for the other's.
  Nanos high_waits = Nanos(0);
  // The same where it is known when that is done (Foresee): a command of theirs that is longer than the above.
  Nanos high_waits_foreseen = Nanos(0);
  double low_band_floor = 0;  // part of the device that a closed band gets all the same
  Nanos debt_horizon =
      Seconds(2);  // debt against a weight or credit of a guarantee older than this is forgotten
  Nanos stale = Millis(50);  // what is unsettled so long after its predicted end (a kernel that
                             // never ends, a lost marker) no longer keeps others waiting
};

// Who says what may run beside the high band's commands in flight: whoever knows what these are going to be.
class Beside {
 public:
  virtual ~Beside() = default;
  // Whether the command for which `tenant` is blocked may be launched now, alone of its tenant. False: `again` is when to
  // ask again, if nothing happens before.
  virtual bool Admits(TenantId tenant, Time now, Time* again) = 0;
};

class Arbiter {
 public:
  explicit Arbiter(const ArbiterOptions& options);
  ~Arbiter();
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;

  // Tenants. A new one starts at the least virtual time of the active ones. Ids are small and reused.
  // With a `parent` it is one of those who divide what that one is entitled to: the parent's weight and guarantee are
  // those of all of them together, by its own they divide what comes of it, and its cap bounds the sum. What the parent
  // launches itself counts as a child's of weight 1. In a band below the parent's its children have the parent's weight, and
  // no guarantee. One level: the parent of a child's child is the child's parent. A parent that is removed before its children
  // bounds them until the last is gone.
  TenantId Add(const TenantLimits& limits, Time now, TenantId parent = kNoTenant);
  void Update(TenantId tenant, const TenantLimits& limits, Time now);
  void Remove(TenantId tenant, Time now);  // drops its grants and commands from the books

  // A thread of `tenant` stands at the gate; its next command is predicted to take `predicted`.
  // `exclusive`: the command wants the device drained before and after (calibration, cooperative
  // launches). At most one request a tenant: a second Block replaces the first.
  void Block(TenantId tenant, Nanos predicted, bool exclusive, Time now);
  void Unblock(TenantId tenant, Time now);  // the thread gave up (deadline, cancelled)

  // Most that a grant of this tenant is beyond one command while it contends; options.grant until set.
  void SetGrant(TenantId tenant, Nanos grant);

  // Whether its commands leave a part of the device to others'. Such a tenant with nothing in flight does not wait for the
  // window: beside one long command of somebody else's what that leaves would stay idle.
  void SetLeaves(TenantId tenant, bool leaves);

  // What part of the device the tenant may count on beside those that are active now, by guarantee or weight; 1 where it is
  // alone.
  double Entitled(TenantId tenant) const;

  // Its host waits for the device (or for nothing we know): it will not launch before the next Touch,
  // Block or Charge.
  void Sync(TenantId tenant, Time now);
  // A stream of it waits for the host: what it has outstanding keeps nobody waiting until Resume(), and it may
  // have one window of that. Work of its other streams counts as little meanwhile.
  void HoldUp(TenantId tenant, Time now);
  void Resume(TenantId tenant, Time now);
  void Touch(TenantId tenant, Time now);  // sign of life: a launch was seen

  // Work that did not ask: a high-priority launch, or one that may not be held. Charged like a grant,
  // outstanding until settled; counts as one command, so no Launched for it.
  Phase Charge(TenantId tenant, Nanos predicted, Time now);

  // `commands` commands of `tenant`, charged with `predicted` in all, are done and took `measured`.
  // With neither, `measured` is charged for work that is overdue and has not ended. `ended`: when the device was done with
  // them, where that is known; the grace of the high band counts from there.
  void Settle(TenantId tenant, Phase phase, Nanos predicted, Nanos measured, int commands, Time now,
              Time ended = kNever);
  // Commands handed to the device within a grant (for min_commands); Settle takes them off.
  void Launched(TenantId tenant, int commands, Time now);
  // Whoever has the device to itself keeps it until then, however late its work is (a lease that is
  // held), and its own further requests pass. Called again with an earlier time to end it.
  void HoldExclusive(TenantId tenant, Time until);
  // What lies at least between a grant to a tenant that sleeps (options.asleep_after) and its launch. A band that the high
  // one has closed is opened to it so much before the grace ends, and what it launches comes when that is over. What the
  // high band begins meanwhile takes the grant back.
  void SetWakeLatency(Nanos least);
  // Others from now on. The grants of tenants that have one of their own (SetGrant) stay.
  const ArbiterOptions& options() const;
  void SetOptions(const ArbiterOptions& options);
  // While it is held back by whoever runs it, the high band does not count: the others have the device.
  void HoldHighBand(bool held);
  // Whether somebody else has a high band on this device: the bands of this arbiter have the window beside one then.
  void SetBelow(bool below);
  // The unspent rest of a grant comes back.
  void Return(TenantId tenant, Phase phase, Nanos unused, Time now);

  // From whoever runs it: all that is outstanding of the bands that are not high is done at `ends`. For a Run() at the
  // same time the clock is believed then; without it no further than two windows, until settlements arrive.
  void Foresee(Time ends, Time now);
  // The opposite: nobody knows when that is done, and a Run() at the same time lets no band that is not high add to it.
  void Await(Time now);

  // Decides until nothing more can be admitted; appends to `grants`. A tenant with a grant is no longer
  // blocked. The result says when to run again if nothing else happens before (kNever: not at all).
  // `beside`: who is asked for those that wait in a band that the high one's commands close; null: they wait.
  Time Run(Time now, std::vector<Grant>& grants, Beside* beside = nullptr);

  // Strict closing: true while tenants of `band` must launch nothing, because the high band has commands
  // in flight or had some within high_grace, or because an exclusive request waits for the device to
  // drain. The gate then takes open grants of that band back (Return) and blocks again.
  bool Closed(Band band, Time now) const;
  // True while an exclusive request, or one of the high band that waits for what is in flight, is what closes.
  bool Draining() const;

  // What the books say; for statistics, tests and benchmarks.
  struct TenantView {
    bool blocked, active;
    Nanos outstanding;       // granted or charged, and not settled
    double virtual_time_ns;  // F
    Nanos cap_tokens;        // what the cap's bucket holds (negative: debt)
    Nanos charged;           // device time charged in all, corrected by measurement
  };
  TenantView View(TenantId tenant) const;
  Nanos Outstanding(Time now) const;
  // Of all tenants since the start, those that are gone included: what was charged, corrected by measurement, and how
  // much of it is not settled.
  struct Totals {
    Nanos charged{0}, unsettled{0};
    Time ends{};  // when the device is predicted to have done what is not settled
  };
  Totals totals() const;
  int tenants() const;

  // Every invariant of the books, as one callable check; empty when they hold, else what is broken.
  const char* CheckInvariants() const;

  struct State;  // state.h; opaque outside this layer

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_ARBITER_H_
