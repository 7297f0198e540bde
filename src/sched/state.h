// SPDX-License-Identifier: Apache-2.0
// The books of an Arbiter. filing.cc, virtual_time.cc and outstanding.cc keep them, decide.cc decides from them,
// invariants.cc checks them; docs/arbiter.md defines the symbols used here (F, R, W, V, D).
#ifndef GPUSHARE_SCHED_STATE_H_
#define GPUSHARE_SCHED_STATE_H_

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "base/time.h"
#include "sched/arbiter.h"
#include "sched/indexed_heap.h"
#include "sched/token_bucket.h"

namespace gpushare::sched {

inline constexpr uint32_t kNobody = kNoTenant;
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline bool OfGuarantee(Phase phase) { return (static_cast<uint8_t>(phase) & 1) != 0; }
inline bool OfParentsGuarantee(Phase phase) { return (static_cast<uint8_t>(phase) & 2) != 0; }
inline Phase PhaseOf(bool guarantee, bool parents_guarantee) {
  return static_cast<Phase>((guarantee ? 1 : 0) | (parents_guarantee ? 2 : 0));
}

inline double Ns(Nanos n) { return static_cast<double>(n.count()); }

// Where a tenant is filed. Only waiting and running tenants contend: their tags count as "least".
enum class Place : uint8_t {
  kInactive,  // nothing blocked, nothing outstanding, no sign of life within the grace
  kWaiting,   // blocked, and its cap lets it go
  kRunning,   // active but not blocked, or stalled
  kCapped,    // active, but its cap is used up
};

struct Peers;
struct Group;

struct TenantState {
  TenantLimits limits;
  bool live = false;
  bool blocked = false;
  bool exclusive = false;  // of the blocked request
  bool synced = false;     // said that it will not launch before its next sign of life
  bool open = false;       // holds a grant under which no launch was reported yet
  bool leaves = false;     // its commands leave a part of the device to others'
  bool on_floor = false;   // its last grant was paid from the floor of a closed band
  bool in_grace_list = false;
  Place place = Place::kInactive;
  Time released = kNever;  // when its cap let it go: it has waited since, and not been granted
  int commands = 0;        // launched, not settled
  uint32_t grace_prev = kNobody, grace_next = kNobody;
  TenantId group_id = kNobody;  // of a member of a family: the entry of its group
  Peers* peers = nullptr;       // those among whom it has its turn: its band, or its group
  double f = 0;                 // weight tag: ns of device time / weight
  double r = 0;                 // guarantee tag: ns of wall time on the reserve clock
  double forgiven_f = 0;  // what the debt horizon cut off the tags, while that work is outstanding
  double forgiven_r = 0;
  Nanos outstanding{0};
  Nanos stale{0};  // part of it that was unsettled for so long that it is not counted as in flight
  bool moves = true;      // something was settled since that was found
  bool is_group = false;  // it stands for a group, and is no tenant
  Nanos room{0};          // what it may add before something does
  bool held_up =
      false;  // a stream of it waits for the host: what stands behind that is stale at once
  Nanos predicted{0};  // of the blocked request
  Nanos grant{0};      // most that a grant is beyond one command
  Nanos charged{0};
  TokenBucket bucket;
  double gap_ns = 5'000;         // how long its host takes from one sign of life to the next
  Time last_act{};               // last sign of life or settlement
  Time last_life{};              // last sign of life of its host, or its last grant
  Time blocked_since{};          // while it is blocked
  Time idle_since = kNever;      // since when neither blocked nor outstanding; kNever: it is not
  std::unique_ptr<Group> group;  // of an entry that stands for one
  bool capped() const { return limits.cap < 1; }
  bool stalled() const { return held_up || (stale > Nanos(0) && !moves); }
  bool asks() const { return blocked && !(stalled() && room <= Nanos(0)); }
  bool guaranteed() const { return limits.guarantee > 0; }
};

// Those who divide something among them: a band, or the members of a group.
struct Peers {
  explicit Peers(IndexedHeap::Positions* by_f, IndexedHeap::Positions* by_r)
      : waiting_f(by_f), running_f(by_f), waiting_r(by_r), running_r(by_r) {}
  IndexedHeap waiting_f, running_f;  // contending tenants by F
  IndexedHeap waiting_r, running_r;  // those of them with a guarantee, by R
  int active = 0;
  double active_weight = 0;  // W
  double virtual_time = 0;   // V: greatest F at which service began
  double lent_f = -1e300;    // greatest F and R that were served out of turn, because those before
  double lent_r = -1e300;    //   them did not ask
  double reserve_lag = 0;    // of a group's reserve clock, behind that of all

  void Reserve(size_t n) {
    for (IndexedHeap* h : {&waiting_f, &running_f, &waiting_r, &running_r}) h->Reserve(n);
  }
};

struct BandState : Peers {
  using Peers::Peers;
  int registered = 0;       // tenants without a parent, and groups
  double floor_tokens = 0;  // device time that the closed band may use all the same
  Nanos outstanding{0};
};

// A tenant with children, and these. What it launches itself is a member's as well: its limits are the family's, and as a member
// it has the weight 1.
struct Family {
  TenantLimits limits;
  TokenBucket bucket;                                         // the cap of them all
  TenantId parent = kNobody;                                  // kNobody: it is gone
  std::array<TenantId, 3> groups{kNobody, kNobody, kNobody};  // by band
  bool empty() const { return groups == std::array{kNobody, kNobody, kNobody}; }
};

// The members of a family that are in one band. Towards others it is one tenant, whose entry in State::tenants has tags of its
// own: it waits while a member waits, runs while one runs, and is charged what each of them is.
struct Group : Peers {
  using Peers::Peers;
  Family* family = nullptr;
  size_t members = 0, room = 0;
};

struct Arbiter::State {
  explicit State(const ArbiterOptions& o) : options(o) {
    for (BandState& band : bands) band.floor_tokens = 0;
    idle_budget = static_cast<double>(o.idle_budget_depth.count());
  }

  TenantState& at(TenantId id) { return tenants[id]; }
  BandState& band(const TenantState& t) { return bands[static_cast<size_t>(t.limits.band)]; }
  // Its cap's.
  TokenBucket& bucket(TenantState& t) { return t.is_group ? t.group->family->bucket : t.bucket; }
  const TokenBucket& bucket(const TenantState& t) const {
    return t.is_group ? t.group->family->bucket : t.bucket;
  }
  // Nothing of it asks or is in flight.
  bool Idle(const TenantState& t) const {
    const bool asks = t.is_group ? !t.group->waiting_f.empty() : t.blocked;
    return !asks && t.outstanding == Nanos(0);
  }
  bool gated(const TenantState& t) const { return t.limits.band != Band::kHigh; }
  Time Observe(Time t);  // time never goes back
  double Since(Time t) const { return static_cast<double>((t - epoch).count()); }
  double ReserveClock() const { return Since(now) - reserve_lag; }
  double ReserveClock(const TenantState& t) const { return ReserveClock() - t.peers->reserve_lag; }
  bool Known(TenantId id) const {
    return id < tenants.size() && tenants[id].live && !tenants[id].is_group;
  }

  // ---- filing.cc: who is where
  void File(TenantId id);  // puts a tenant where its state says it belongs
  void Unfile(TenantId id);
  void Rekey(TenantId id);  // after F or R changed
  void LeaveGraceList(TenantId id);
  void JoinGraceList(TenantId id);
  void ExpireGrace();
  double CapQuantum(const TenantState& t) const;
  void ReleaseCapped();  // those whose cap has filled again
  void Move(TenantId id, Place want);
  void FileGroup(TenantId id);            // after one of its members was filed
  void FileFamily(const TenantState& t);  // the same, of a member

  // ---- families.cc: budgets inside budgets
  TenantId NewEntry(const TenantLimits& limits);
  Family* FamilyOf(const TenantState& t) const {  // null: it has neither a parent nor children
    return t.group_id == kNobody ? nullptr : tenants[t.group_id].group->family;
  }
  // Of one that is not filed: the group of a family in its band. Leave() may end the group, but not the family.
  void Enter(TenantId id, Family& family);
  void Leave(TenantId id);
  Family* MakeFamily(TenantId parent);
  void SetFamilyLimits(Family& family, const TenantLimits& limits);

  // ---- virtual_time.cc: F and R
  void Wakes(TenantId id, Place was);  // contends (again): clamps what it saved up
  void EndIdle(TenantId id);
  bool ClampToLent(TenantState& t);      // true when it changed a tag
  double LeastOther(TenantId id) const;  // least F of the other contenders; V if there is none
  double LeastOtherReserve(TenantId id) const;  // the same of R; the reserve clock if there is none
  void SignOfLife(TenantState& t);
  void Tag(TenantId id, Phase phase,
           double ns);  // charges (or pays back) F or R, also of its group
  void TagAlone(TenantId id, bool guarantee, double ns);

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
    bool lent = false;         // served out of turn
    bool lent_inside = false;  // the same, in its group
    bool on_floor = false;     // one command for a closed band
    bool beside = false;       // the same, beside what closes it
    Time again = kNever;       // when not admitted: when to look again
  };
  Time Run(std::vector<Grant>& grants, Beside* beside);
  Choice Choose(Beside* beside);
  Choice ChooseClosed(Time again, Beside* beside);
  bool ChooseBeside(Beside* beside, Choice* choice);
  Choice Judge(TenantId id, Phase phase, Time again);
  bool PickFrom(BandState& b, TenantId* id, Phase* phase);
  TenantId PickPeer(Peers& peers, double* lag, bool* guarantee);
  struct Ahead {
    double by = 0, limit_f = -kInfinity, limit_r = -kInfinity;
  };
  Ahead AheadOf(const TenantState& t, bool guarantee);
  Grant Admit(const Choice& choice);
  double LeastRunning(Peers& b);  // least F of the running; infinity if nobody runs
  double LeastRunningReserve(Peers& b);
  bool Covers(const TenantState& t, Time* until) const;
  void Serve(TenantId id, bool guarantee, bool lent, bool alone);
  bool HighBusy(Time* until, Time when) const;
  bool ClosedByHigh(Time* until, Time when) const;
  bool Above(const TenantState& t) const;  // whether there is a band above it
  bool WaitsForOthers(TenantState& t, Time* until);
  Nanos Window(const TenantState& t) const;
  int MinCommands(const TenantState& t) const;

  // ---- invariants.cc
  const char* Broken() const;
  const char* BrokenPeers(const Peers& b) const;
  const char* BrokenFamily(const Family& family) const;
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
  int gated_active = 0;  // tenants of the lower bands that are not inactive
  std::vector<std::unique_ptr<Family>> families;
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
  bool high_held = false;  // by whoever runs the arbiter
  Time high_horizon{};
  TenantId exclusive = kNobody;  // has the device to itself
  Time exclusive_until{};        // not before, even if its work is overdue
  bool below = false;            // another arbiter has a high band on this device
  bool draining = false;         // somebody waits for the device to drain
  bool held = false;             // the last Run() left somebody waiting
  double idle_budget = 0;
  Time budget_at{};
};

// The limits of a family's parent as a member of it.
TenantLimits AsMember(const TenantLimits& limits);

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
