// SPDX-License-Identifier: Apache-2.0
// The arbiter of one GPU: which tenant may hand the device its next commands, and how many.
//
// Start-time fair queueing with a window of outstanding device time and anticipation, guarantees and
// caps (docs/arbiter.md has the mathematics). Pure: time is an argument, and there is no I/O, no lock, no
// thread and no randomness. One caller at a time.
//
//   Arbiter arbiter{ArbiterOptions{}};
//   TenantId a = arbiter.Add({.weight = 3}, now), b = arbiter.Add({.weight = 1}, now);
//   arbiter.Block(a, Micros(14), now);             // a thread of a waits at the gate with a command
//   std::vector<Grant> grants;
//   Time wake = arbiter.Run(now, grants);          // grants: {a, 14 us or more}; call again at `wake`
//   ...                                            // a launches what the grant covers
//   arbiter.Settle(a, grants[0].phase, /*predicted=*/Micros(14), /*measured=*/Micros(15), now);
//
// All amounts are device time. A grant is outstanding from Run() until it is given back (Return) or its
// commands are known to be done (Settle).
#ifndef GPUSHARE_SCHED_ARBITER_H_
#define GPUSHARE_SCHED_ARBITER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"

namespace gpushare::sched {

enum class Band : uint8_t { kHigh = 0, kNormal = 1, kLow = 2 };

struct TenantLimits {
  // > 0: weight among the backlogged tenants of the band, which divide the device time that is not reserved.
  double weight = 1;
  // [0, 1]: part of the device that a backlogged tenant gets before the rest is divided by weight.
  double guarantee = 0;
  double cap = 1;               // (0, 1]: part of the device that it never exceeds; 1: no cap
  Nanos cap_depth = Millis(5);  // how much unused cap may be saved up
  Nanos burst = Millis(20);     // device time that a tenant back from idle may be ahead by
  Band band = Band::kNormal;
  // For the high band: by how much commands of others beside it may delay it, as a part of the device time that it uses. The
  // arbiter does not enforce this: see Beside.
  double delay = 0.03;
};

using TenantId = uint32_t;
inline constexpr TenantId kNoTenant = UINT32_MAX;

// What a grant was charged to; passed back with Settle and Return. For a tenant with a parent, its own share and the
// parent's share each have a phase.
enum class Phase : uint8_t {
  kWeight = 0,
  kGuarantee = 1,
  kParentsGuarantee = 2,  // by its own weight, and by its parent's guarantee
  kBothGuarantees = 3,
};

struct Grant {
  TenantId tenant;
  Nanos amount;
  Phase phase;
  // Not to be taken back when the band is closed: it is exclusive, from low_band_floor, or beside.
  bool stands = false;
  bool beside = false;  // one command beside the work that closes its band: see Beside
};

struct ArbiterOptions {
  Nanos window = Micros(200);           // D: outstanding predicted device time
  Nanos low_window = Micros(40);        // below it the device counts as nearly idle
  Nanos high_band_window = Micros(50);  // D while a tenant of a higher band is registered
  // At least this many commands may be in flight, the last of them when by the clock little is left of those before it.
  int min_commands = 4;
  int high_band_min_commands = 1;  // the same while a tenant of a higher band is registered
  Nanos grant = Micros(12);        // largest grant beyond one command, while contended
  int grant_commands = 8;          // the same limit in predicted commands
  Nanos lone_grant = Micros(150);  // grant of a tenant that is alone
  // Grant of a tenant without a cap while no other is registered, for commands of known cost; 0: none of its own. Nobody is kept
  // waiting, so such grants need not be short, nor does the window bound them, and each is closed by a marker.
  Nanos sole_grant = Millis(2);
  Nanos high_grant = Micros(100);    // grant of a tenant of the high band
  Nanos slack = Micros(500);         // virtual time by which a tenant may be ahead of the least
  Nanos active_grace = Micros(100);  // how long a tenant stays active after a sign of life
  double idle_budget = 0.01;         // part of the time that may be idled away on purpose
  Nanos idle_budget_depth = Millis(2);
  Nanos anticipation = Micros(15);  // how long the next launch of a tenant is waited for
  // How long lower bands stay closed after the high band's last command.
  Nanos high_grace = Micros(30);
  // A thread that has been blocked for longer than this sleeps and has to be woken: SetWakeLatency().
  Nanos asleep_after = Micros(200);
  // When its cap releases a tenant of the high band, it waits at most this long until what others have in flight is done. This
  // is for devices that time-slice the two, where each would be charged for the other's time.
  Nanos high_waits = Nanos(0);
  // The same limit if it is known when that is done (Foresee), for commands of others that are longer than `high_waits`.
  Nanos high_waits_foreseen = Nanos(0);
  double low_band_floor = 0;  // part of the device that a closed band gets nevertheless
  // Debt against a weight, or credit of a guarantee, that is older than this is forgotten.
  Nanos debt_horizon = Seconds(2);
  // Work that is unsettled this long after its predicted end (a kernel that never ends, a lost marker) no longer keeps others
  // waiting.
  Nanos stale = Millis(50);
};

// Decides what may run beside the high band's commands in flight. Implemented by the engine, which knows these commands.
class Beside {
 public:
  virtual ~Beside() = default;
  // Whether the command for which `tenant` is blocked may be launched now, as the only one of its tenant. If not, `again` is
  // when to ask again if nothing happens before.
  virtual bool Admits(TenantId tenant, Time now, Time* again) = 0;
};

class Arbiter {
 public:
  explicit Arbiter(const ArbiterOptions& options);
  ~Arbiter();
  Arbiter(const Arbiter&) = delete;
  Arbiter& operator=(const Arbiter&) = delete;

  // A new tenant starts at the least virtual time of the active ones. Ids are small and reused.
  // Children of a `parent` divide what the parent is entitled to: the parent's weight and guarantee are those of all of them
  // together, the children divide the result by their own weights and guarantees, and the parent's cap bounds the sum. What the
  // parent launches itself counts as the work of a child of weight 1. Children in a band below the parent's have the parent's
  // weight there together, and no guarantee. There is one level: a child of a child gets the same parent as the child. A parent
  // that is removed before its children bounds them until the last one is gone.
  TenantId Add(const TenantLimits& limits, Time now, TenantId parent = kNoTenant);
  void Update(TenantId tenant, const TenantLimits& limits, Time now);
  void Remove(TenantId tenant, Time now);  // drops its grants and commands from the books

  // A thread of `tenant` waits at the gate; its next command is predicted to take `predicted`.
  // `exclusive`: the command wants the device drained before and after (calibration, cooperative
  // launches). There is at most one request per tenant: a second Block replaces the first. `at_once`: a contended grant has
  // room for this many such commands, even if they are more than `grant`, if one is no more than `grant` and all of them are
  // no more than the tenant's part of the window.
  // `known`: the prediction is one, not a guess. The only tenant gets no long grant for a guess.
  void Block(TenantId tenant, Nanos predicted, bool exclusive, Time now, int at_once = 1,
             bool known = true);
  void Unblock(TenantId tenant, Time now);  // the thread gave up (deadline, cancelled)

  // Largest grant of this tenant beyond one command while it contends; options.grant until set.
  void SetGrant(TenantId tenant, Nanos grant);

  // Whether the tenant's commands leave a part of the device to others. Such a tenant with nothing in flight does not wait for
  // the window: otherwise what one long command of another tenant leaves would stay idle.
  void SetLeaves(TenantId tenant, bool leaves);

  // The part of the device that the tenant is entitled to beside the tenants that are active now, by guarantee or weight; 1 if
  // it is alone.
  double Entitled(TenantId tenant) const;

  // The tenant's host waits for the device (or for something unknown). It will not launch before the next
  // Touch, Block or Charge.
  void Sync(TenantId tenant, Time now);
  // A stream of the tenant waits for the host. What the tenant has outstanding keeps no other tenant waiting until Resume(),
  // and it may have one window of such work. Work of its other streams does not count either meanwhile.
  void HoldUp(TenantId tenant, Time now);
  void Resume(TenantId tenant, Time now);
  void Touch(TenantId tenant, Time now);  // sign of life: a launch was seen

  // Charges work that did not ask: a high-priority launch, or one that may not be held. It is charged like a grant
  // and outstanding until settled. It counts as one command, so Launched is not called for it. `ended` is for work that is charged
  // only when it is over: the grace of the high band counts from then.
  Phase Charge(TenantId tenant, Nanos predicted, Time now, Time ended = kNever);

  // `commands` commands of `tenant`, charged with `predicted` in all, are done and took `measured`.
  // If both are 0, `measured` is charged for work that is overdue and has not ended. `ended` is when the device was done with
  // the commands, if known; the grace of the high band counts from then.
  void Settle(TenantId tenant, Phase phase, Nanos predicted, Nanos measured, int commands, Time now,
              Time ended = kNever);
  // Commands handed to the device within a grant (for min_commands); Settle takes them off.
  void Launched(TenantId tenant, int commands, Time now);
  // The tenant that has the device to itself keeps it until `until`, however late its work is (a lease that is
  // held), and its own further requests pass. Call it again with an earlier time to end it.
  void HoldExclusive(TenantId tenant, Time until);
  // The shortest time from a grant to a sleeping tenant (options.asleep_after) until its launch. A band that the high band has
  // closed is opened to such a tenant this much before the grace ends, so that its launch comes when the grace is over. If the
  // high band begins something meanwhile, the grant is taken back.
  void SetWakeLatency(Nanos least);
  const ArbiterOptions& options() const;
  // Sets the options from now on. Tenants with a grant of their own (SetGrant) keep it.
  void SetOptions(const ArbiterOptions& options);
  // While the caller holds the high band back, that band does not count, and the others have the device.
  void HoldHighBand(bool held);
  // Whether another arbiter has a high band on this device. Then all bands of this arbiter use high_band_window.
  void SetBelow(bool below);
  // The unspent rest of a grant comes back.
  void Return(TenantId tenant, Phase phase, Nanos unused, Time now);

  // The caller knows that all outstanding work of the lower bands is done at `ends`. A Run() at the same time then believes the
  // clock fully; without this call it believes the clock for at most two windows, until settlements arrive.
  void Foresee(Time ends, Time now);
  // The opposite: nobody knows when that work is done, and a Run() at the same time lets the lower bands add nothing to it.
  void Await(Time now);

  // Decides until nothing more can be admitted, and appends to `grants`. A tenant with a grant is no longer
  // blocked. Returns when to run again if nothing else happens before (kNever: not at all).
  // `beside` is asked about tenants that wait in a band closed by the high band's commands; null: they wait.
  Time Run(Time now, std::vector<Grant>& grants, Beside* beside = nullptr);

  // Strict closing: true while tenants of `band` must launch nothing, because the high band has commands in flight
  // or had some within high_grace, or because an exclusive request waits for the device to drain. The gate then
  // takes open grants of that band back (Return) and blocks again.
  bool Closed(Band band, Time now) const;
  // True while the reason for closing is an exclusive request, or a high-band tenant that waits for what is in flight.
  bool Draining() const;

  // The state of the books, for statistics, tests and benchmarks.
  struct TenantView {
    bool blocked, active;
    Nanos outstanding;       // granted or charged, and not settled
    double virtual_time_ns;  // F
    Nanos cap_tokens;  // level of the cap's bucket (negative: debt), or of its family's if less
    Nanos charged;     // device time charged in all, corrected by measurement
  };
  TenantView View(TenantId tenant) const;
  Nanos Outstanding(Time now) const;
  // Sums over all tenants since the start, including removed ones: what was charged, corrected by measurement, and how much of
  // it is not settled.
  struct Totals {
    Nanos charged{0}, unsettled{0};
    Time ends{};  // when the device is predicted to have done what is not settled
  };
  Totals totals() const;
  int tenants() const;

  // Checks every invariant of the books. Returns an empty string if all hold, else what is broken.
  const char* CheckInvariants() const;

  struct State;  // state.h; opaque outside this layer

 private:
  std::unique_ptr<State> state_;
};

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_ARBITER_H_
