// SPDX-License-Identifier: Apache-2.0
// The books of an Arbiter. filing.cc, virtual_time.cc and outstanding.cc keep them, decide.cc decides from them,
// invariants.cc checks them; docs/arbiter.md defines the symbols used here (F, R, W, V, D).
#ifndef GPUSHARE_SCHED_STATE_H_
#define GPUSHARE_SCHED_STATE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/time.h"
#include "sched/arbiter.h"
#include "sched/indexed_heap.h"
#include "sched/token_bucket.h"

namespace gpushare::sched {

inline constexpr uint32_t kNobody = UINT32_MAX;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline double Ns(Nanos n) { return static_cast<double>(n.count()); }

// Where a tenant is filed. Only waiting and running tenants contend: their tags count as "least".
enum class Place : uint8_t {
  kInactive,  // nothing blocked, nothing outstanding, no sign of life within the grace
  kWaiting,   // blocked, and its cap lets it go
  kRunning,   // active but not blocked, or stalled
  kCapped,    // active, but its cap is used up
};

struct TenantState {
  TenantLimits limits;
  bool live = false;
  bool blocked = false;
  bool exclusive = false;  // of the blocked request
  bool synced = false;     // said that it will not launch before its next sign of life
  bool open = false;       // holds a grant under which no launch was reported yet
  bool on_floor = false;   // its last grant was paid from the floor of a closed band
  bool in_grace_list = false;
  Time released = kNever;  // when its cap let it go: it has waited since, and not been granted
  Place place = Place::kInactive;
  int commands = 0;  // launched, not settled
  uint32_t grace_prev = kNobody, grace_next = kNobody;
  double f = 0;           // weight tag: ns of device time / weight
  double r = 0;           // guarantee tag: ns of wall time on the reserve clock
  double forgiven_f = 0;  // what the debt horizon cut off the tags, while that work is outstanding
  double forgiven_r = 0;
  Nanos outstanding{0};
  Nanos stale{0};  // part of it that was unsettled for so long that it is not counted as in flight
  bool moves = true;  // something was settled since that was found
  Nanos room{0};      // what it may add before something does
  bool held_up =
      false;  // a stream of it waits for the host: what stands behind that is stale at once
  Nanos predicted{0};  // of the blocked request
  Nanos grant{0};      // most that a grant is beyond one command
  Nanos charged{0};
  TokenBucket bucket;
  double gap_ns = 5'000;     // how long its host takes from one sign of life to the next
  Time last_act{};           // last sign of life or settlement
  Time last_life{};          // last sign of life of its host, or its last grant
  Time blocked_since{};      // while it is blocked
  Time idle_since = kNever;  // since when neither blocked nor outstanding; kNever: it is not

  bool capped() const { return limits.cap < 1; }
  bool stalled() const { return held_up || (stale > Nanos(0) && !moves); }
  bool asks() const { return blocked && !(stalled() && room <= Nanos(0)); }
  bool guaranteed() const { return limits.guarantee > 0; }
};

struct BandState {
  explicit BandState(IndexedHeap::Positions* by_f, IndexedHeap::Positions* by_r)
      : waiting_f(by_f), running_f(by_f), waiting_r(by_r), running_r(by_r) {}
  IndexedHeap waiting_f, running_f;  // contending tenants by F
  IndexedHeap waiting_r, running_r;  // those of them with a guarantee, by R
  int registered = 0;
  int active = 0;
  double active_weight = 0;  // W
  double virtual_time = 0;   // V: greatest F at which service began
  double lent_f = -1e300;    // greatest F and R that were served out of turn, because those before
  double lent_r = -1e300;    //   them did not ask
  double floor_tokens = 0;   // device time that the closed band may use all the same
  Nanos outstanding{0};
};

struct Arbiter::State {
  explicit State(const ArbiterOptions& o) : options(o) {
    for (BandState& band : bands) band.floor_tokens = 0;
    idle_budget = static_cast<double>(o.idle_budget_depth.count());
  }

  TenantState& at(TenantId id) { return tenants[id]; }
  BandState& band(const TenantState& t) { return bands[static_cast<size_t>(t.limits.band)]; }
  bool gated(const TenantState& t) const { return t.limits.band != Band::kHigh; }
  Time Observe(Time t);  // time never goes back
  double Since(Time t) const { return static_cast<double>((t - epoch).count()); }
  double ReserveClock() const { return Since(now) - reserve_lag; }
  bool Known(TenantId id) const { return id < tenants.size() && tenants[id].live; }

  // ---- filing.cc: who is where
  void File(TenantId id);  // puts a tenant where its state says it belongs
  void Unfile(TenantId id);
  void Rekey(TenantId id);  // after F or R changed
  void LeaveGraceList(TenantId id);
  void JoinGraceList(TenantId id);
  void ExpireGrace();
  double CapQuantum(const TenantState& t) const;
  void ReleaseCapped();  // those whose cap has filled again

  // ---- virtual_time.cc: F and R
  void Wakes(TenantId id, Place was);  // contends (again): clamps what it saved up
  void EndIdle(TenantId id);
  bool ClampToLent(TenantState& t);      // true when it changed a tag
  double LeastOther(TenantId id) const;  // least F of the other contenders; V if there is none
  double LeastOtherReserve(TenantId id) const;  // the same of R; the reserve clock if there is none
  void SignOfLife(TenantState& t);
  void Tag(TenantId id, Phase phase, double ns);  // charges (or pays back) F or R

  // ---- outstanding.cc: what is in flight
  void AddOutstanding(TenantState& t, Nanos amount);
  void FindStale();
  void DropOutstanding(TenantState& t, Nanos amount, bool unused);
  void AddCommands(TenantState& t, int n);
  void CloseOpen(TenantState& t);
  Nanos GatedOutstanding(Time when) const;
  Time Drops(Nanos level) const;  // when the above is below `level`, if nothing is settled before
  bool Drained(Time* stale_at) const;

  // ---- decide.cc: the decision
  struct Choice {
    bool admit = false;
    TenantId tenant = kNobody;
    Phase phase = Phase::kWeight;
    bool lent = false;      // served out of turn
    bool on_floor = false;  // one command for a closed band
    bool beside = false;    // the same, beside what closes it
    Time again = kNever;    // when not admitted: when to look again
  };
  Time Run(std::vector<Grant>& grants, Beside* beside);
  Choice Choose(Beside* beside);
  Choice ChooseClosed(Time again, Beside* beside);
  bool ChooseBeside(Beside* beside, Choice* choice);
  Choice Judge(TenantId id, Phase phase, Time again);
  bool PickFrom(BandState& b, TenantId* id, Phase* phase);
  Grant Admit(const Choice& choice);
  double LeastRunning(BandState& b);  // least F of the running; infinity if nobody runs
  double LeastRunningReserve(BandState& b);
  bool Covers(const TenantState& t, Time* until) const;
  bool HighBusy(Time* until, Time when) const;
  bool ClosedByHigh(Time* until, Time when) const;
  bool Above(const TenantState& t) const;  // whether there is a band above it
  bool WaitsForOthers(TenantState& t, Time* until);
  Nanos Window(const TenantState& t) const;
  int MinCommands(const TenantState& t) const;

  // ---- invariants.cc
  const char* Broken() const;
  bool CheckIsDue() {
    if (++unchecked < tenants.size() / 32) return false;
    unchecked = 0;
    return true;
  }

  ArbiterOptions options;
  std::vector<TenantState> tenants;
  std::vector<TenantId> free_ids;
  size_t unchecked = 0;  // calls since the books were checked
  int live = 0;
  IndexedHeap::Positions position_f, position_r, position_capped;
  std::array<BandState, 3> bands{BandState(&position_f, &position_r),
                                 BandState(&position_f, &position_r),
                                 BandState(&position_f, &position_r)};
  IndexedHeap capped{&position_capped};  // by the time at which the cap lets them go
  uint32_t grace_head = kNobody,
           grace_tail = kNobody;  // running with nothing outstanding, oldest first

  bool started = false;
  Time epoch{}, now{};
  double reserve_lag = 0;       // by how much the reserve clock is behind the wall clock
  Nanos charged{0};             // of all tenants, also those that are gone
  Nanos gated_outstanding{0};   // normal and low together, less what is stale
  Time stalled_until = kNever;  // when stalled tenants may add to their work again
  int gated_commands = 0;       // launched or granted, not settled
  Time waits_again{};           // one that its cap has let go does not wait for others before
  Time foreseen_at = kNever;    // when the horizon was last said to be known
  Time awaited_at = kNever;     // and when nobody knew it
  Time horizon{};               // when the device is predicted to have done what is outstanding
  Time high_last{};             // last sign of life of the high band
  Nanos wake_latency{0};  // what passes at least from a grant to a sleeping tenant to its launch
  bool high_seen = false;
  Time high_horizon{};
  TenantId exclusive = kNobody;  // has the device to itself
  Time exclusive_until{};        // not before, even if its work is overdue
  bool below = false;            // another arbiter has a high band on this device
  bool draining = false;         // somebody waits for the device to drain
  bool held = false;             // the last Run() left somebody waiting
  double idle_budget = 0;
  Time budget_at{};
};

// Ends a public call: in debug builds the books are checked. That costs O(tenants), so with many of them
// it is done every so many calls.
#ifndef NDEBUG
void AbortIfBroken(const char* broken);
#define GPUSHARE_SCHED_CHECK_BOOKS(state) \
  if ((state).CheckIsDue()) ::gpushare::sched::AbortIfBroken((state).Broken())
#else
#define GPUSHARE_SCHED_CHECK_BOOKS(state) static_cast<void>(0)
#endif

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_STATE_H_
