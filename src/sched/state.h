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

// Where a tenant is filed. Only waiting and running tenants contend, that is, their tags count when a least tag is taken.
enum class Place : uint8_t {
  kInactive,  // nothing blocked, nothing outstanding, no sign of life within the grace
  kWaiting,   // blocked, and not held by its cap
  kRunning,   // active but not blocked, or stalled
  kCapped,    // active, but its cap is used up
};

struct Peers;
struct Group;

struct TenantState {
  TenantLimits limits;
  bool live = false;
  bool blocked = false;
  bool exclusive = false;  // the blocked request is exclusive
  bool synced = false;     // it has announced not to launch before its next sign of life
  bool open = false;       // it holds a grant under which no launch was reported yet
  bool leaves = false;     // its commands leave a part of the device to others
  bool on_floor = false;   // its last grant was paid from the floor of a closed band
  bool in_grace_list = false;
  Place place = Place::kInactive;
  Time released = kNever;  // when its cap let it go, while it has waited since without a grant
  int commands = 0;        // launched and not settled
  uint32_t grace_prev = kNobody, grace_next = kNobody;
  TenantId group_id = kNobody;  // for a member of a family: the entry of its group
  Peers* peers = nullptr;       // the tenants that it is ordered among: its band, or its group
  double f = 0;                 // weight tag: ns of device time / weight
  double r = 0;                 // guarantee tag: ns of wall time on the reserve clock
  double forgiven_f = 0;  // what the debt horizon cut off the tags, while that work is outstanding
  double forgiven_r = 0;
  Nanos outstanding{0};
  Nanos stale{0};     // part of `outstanding` that is overdue and not counted as in flight any more
  bool moves = true;  // something was settled since stale work was found
  bool is_group = false;  // the entry stands for a group and is not a tenant
  Nanos room{0};          // while it is stalled: how much work it may still add
  // A stream of it waits for the host, so what is behind that is stale at once.
  bool held_up = false;
  Nanos predicted{0};  // cost of the blocked request
  int at_once = 1;     // commands like it that a grant is to hold
  bool known = true;   // its prediction is no guess
  Nanos grant{0};      // largest grant beyond one command
  Nanos charged{0};
  TokenBucket bucket;
  double gap_ns = 5'000;         // mean time from one sign of life of its host to the next
  Time last_act{};               // last sign of life or settlement
  Time last_life{};              // last sign of life of its host, or its last grant
  Time blocked_since{};          // valid while it is blocked
  Time idle_since = kNever;      // since when nothing is blocked or outstanding; kNever: not idle
  std::unique_ptr<Group> group;  // the group that the entry stands for, if it does
  bool capped() const { return limits.cap < 1; }
  bool stalled() const { return held_up || (stale > Nanos(0) && !moves); }
  bool asks() const { return blocked && !(stalled() && room <= Nanos(0)); }
  bool guaranteed() const { return limits.guarantee > 0; }
};

// Tenants that divide something among them: a band, or the members of a group.
struct Peers {
  explicit Peers(IndexedHeap::Positions* by_f, IndexedHeap::Positions* by_r)
      : waiting_f(by_f), running_f(by_f), waiting_r(by_r), running_r(by_r) {}
  IndexedHeap waiting_f, running_f;  // contending tenants by F
  IndexedHeap waiting_r, running_r;  // contending tenants with a guarantee, by R
  int active = 0;
  double active_weight = 0;  // W
  double virtual_time = 0;   // V: greatest F at which service began
  double lent_f = -1e300;    // greatest F and R that were served out of turn, because tenants
  double lent_r = -1e300;    //   before them did not ask
  double reserve_lag = 0;    // how far a group's reserve clock is behind the common one

  void Reserve(size_t n) {
    for (IndexedHeap* h : {&waiting_f, &running_f, &waiting_r, &running_r}) h->Reserve(n);
  }
};

struct BandState : Peers {
  using Peers::Peers;
  int registered = 0;       // tenants without a parent, and groups
  double floor_tokens = 0;  // device time that the band may use even while it is closed
  Nanos outstanding{0};
};

// A tenant with children, and its children. The parent's limits are those of the family. What the parent launches itself is the
// work of a member too, which has the weight 1.
struct Family {
  TenantLimits limits;
  TokenBucket bucket;                                         // for the cap of the whole family
  TenantId parent = kNobody;                                  // kNobody: the parent was removed
  std::array<TenantId, 3> groups{kNobody, kNobody, kNobody};  // by band
  bool empty() const { return groups == std::array{kNobody, kNobody, kNobody}; }
};

// The members of a family that are in one band. To others the group is one tenant, whose entry in State::tenants has its own
// tags. The entry waits while a member waits, runs while a member runs, and is charged what its members are charged.
struct Group : Peers {
  using Peers::Peers;
  Family* family = nullptr;
  size_t members = 0;
  size_t room = 0;  // members for which memory is reserved, so that decisions need none
};

// What a tenant needs to join a family: allocated beforehand, so that it does not fail half-way.
struct Places {
  std::unique_ptr<Family> family;                // for a parent without one
  std::array<std::unique_ptr<Group>, 3> groups;  // by band: those that the family lacks
};
inline constexpr size_t kMostGroups =
    2;  // new ones at a time: of the parent's band and of the child's

struct Arbiter::State {
  explicit State(const ArbiterOptions& o) : options(o) {
    for (BandState& band : bands) band.floor_tokens = 0;
    idle_budget = static_cast<double>(o.idle_budget_depth.count());
  }

  TenantState& at(TenantId id) { return tenants[id]; }
  BandState& band(const TenantState& t) { return bands[static_cast<size_t>(t.limits.band)]; }
  // The bucket of the entry's cap.
  TokenBucket& bucket(TenantState& t) { return t.is_group ? t.group->family->bucket : t.bucket; }
  const TokenBucket& bucket(const TenantState& t) const {
    return t.is_group ? t.group->family->bucket : t.bucket;
  }
  // Whether nothing of the entry asks or is in flight.
  bool Idle(const TenantState& t) const {
    const bool asks = t.is_group ? !t.group->waiting_f.empty() : t.blocked;
    return !asks && t.outstanding == Nanos(0);
  }
  bool gated(const TenantState& t) const { return t.limits.band != Band::kHigh; }
  Time Observe(Time t);  // moves `now` to `t`, but never back
  double Since(Time t) const { return static_cast<double>((t - epoch).count()); }
  double ReserveClock() const { return Since(now) - reserve_lag; }
  double ReserveClock(const TenantState& t) const { return ReserveClock() - t.peers->reserve_lag; }
  bool Known(TenantId id) const {
    return id < tenants.size() && tenants[id].live && !tenants[id].is_group;
  }

  // ---- filing.cc: where each tenant is filed
  void File(TenantId id);  // files a tenant where its state says it belongs
  void Unfile(TenantId id);
  void Rekey(TenantId id);  // call it after F or R changed
  void LeaveGraceList(TenantId id);
  void JoinGraceList(TenantId id);
  void ExpireGrace();
  double CapQuantum(const TenantState& t) const;
  void ReleaseCapped();  // files tenants anew whose cap has filled again
  void Move(TenantId id, Place want);
  void FileGroup(TenantId id);            // call it after a member of the group was filed
  void FileFamily(const TenantState& t);  // call it after the member `t` was filed

  // ---- families.cc: budgets inside budgets
  // Reserves memory everywhere for so many more entries, so that NewEntry() and decisions never allocate.
  void MakeRoom(size_t entries);
  TenantId NewEntry(const TenantLimits& limits);  // call MakeRoom() before
  Family* FamilyOf(const TenantState& t) const {  // null: without parent and children
    return t.group_id == kNobody ? nullptr : tenants[t.group_id].group->family;
  }
  // For a tenant that joins `member`'s family, or makes one of it, in `band`.
  Places MakePlaces(TenantId member, Band band);
  // A tenant that is not filed joins or leaves the group of a family in its band. Leave() may end the group, but not the family.
  void Enter(TenantId id, Family& family, Places& places);
  void Leave(TenantId id);
  Family* MakeFamily(TenantId parent, Places& places);
  void SetFamilyLimits(Family& family, const TenantLimits& limits);

  // ---- virtual_time.cc: F and R
  void Wakes(TenantId id, Place was);  // the tenant contends (again): clamps what it saved up
  void EndIdle(TenantId id);
  bool ClampToLent(TenantState& t);      // returns whether it changed a tag
  double LeastOther(TenantId id) const;  // least F of the other contenders; V if there is none
  // Least R of the other contenders; the reserve clock if there is none.
  double LeastOtherReserve(TenantId id) const;
  void SignOfLife(TenantState& t, Time ended = kNever);
  // Charges (or pays back) F or R of the tenant and of its group.
  void Tag(TenantId id, Phase phase, double ns);
  void TagAlone(TenantId id, bool guarantee, double ns);

  // ---- outstanding.cc: what is in flight
  void AddOutstanding(TenantState& t, Nanos amount);
  void FindStale();
  void DropOutstanding(TenantState& t, Nanos amount, bool unused);
  void AddCommands(TenantState& t, int n);
  void CloseOpen(TenantState& t);
  void LearnEarly(Nanos predicted, Nanos measured);
  void CountGated(const TenantState& t, int n);  // `n` commands more in flight
  Nanos GatedOutstanding(Time when) const;
  Time Drops(Nanos level) const;
  bool Drained(Time* stale_at) const;

  // ---- decide.cc: the decision
  struct Choice {
    bool admit = false;
    TenantId tenant = kNobody;
    Phase phase = Phase::kWeight;
    bool lent = false;         // served out of turn
    bool lent_inside = false;  // served out of turn within its group
    bool on_floor = false;     // one command of a closed band, paid from the floor
    bool beside = false;       // one command of a closed band, beside the work that closes it
    Time again = kNever;       // if not admitted: when to look again
  };
  void CountIdle();
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
  bool Follows(const TenantState& t, Nanos window, Time* again) const;
  Grant Admit(const Choice& choice);
  double LeastRunning(Peers& b);  // least F of the running tenants; infinity if there are none
  double LeastRunningReserve(Peers& b);
  bool Covers(const TenantState& t, Time* until) const;
  void Serve(TenantId id, bool guarantee, bool lent, bool alone);
  bool HighBusy(Time* until, Time when) const;
  bool ClosedByHigh(Time* until, Time when) const;
  bool Above(const TenantState& t) const;  // whether there is a band above the tenant's
  bool WaitsForOthers(TenantState& t, Time* until);
  bool Sole(const TenantState& t) const;
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
  size_t room = 0;  // for so many there is memory everywhere
  std::vector<TenantId> free_ids;
  size_t unchecked = 0;  // calls since the last check of the books
  int live = 0;
  int gated_active = 0;  // tenants of the lower bands that are not inactive
  std::vector<std::unique_ptr<Family>> families;
  IndexedHeap::Positions position_f, position_r, position_capped;
  std::array<BandState, 3> bands{BandState(&position_f, &position_r),
                                 BandState(&position_f, &position_r),
                                 BandState(&position_f, &position_r)};
  IndexedHeap capped{&position_capped};  // by the time at which the cap lets a tenant go
  // List of running tenants with nothing outstanding, oldest first.
  uint32_t grace_head = kNobody, grace_tail = kNobody;

  bool started = false;
  Time epoch{}, now{};
  double reserve_lag = 0;       // how far the reserve clock is behind the wall clock
  Nanos charged{0};             // sum over all tenants, including removed ones
  Nanos gated_outstanding{0};   // of the normal and the low band, less what is stale
  Time stalled_until = kNever;  // when stalled tenants may add to their work again
  int gated_commands = 0;       // commands launched or granted, and not settled
  int leaving_commands = 0;     // those of tenants that leave a part of the device to others
  // By which part of its prediction work ended early, averaged over some 20 ms of predicted time.
  double early = 0;
  Time waits_again{};         // until then, tenants released by their cap wait for no others
  Time foreseen_at = kNever;  // when Foresee() was last called
  Time awaited_at = kNever;   // when Await() was last called
  Time horizon{};             // when the device is predicted to have done what is outstanding
  Time high_last{};           // last sign of life of the high band
  Nanos wake_latency{0};      // shortest time from a grant to a sleeping tenant to its launch
  bool high_seen = false;
  bool high_held = false;  // see HoldHighBand()
  Time high_horizon{};
  TenantId exclusive = kNobody;  // the tenant that has the device to itself
  Time exclusive_until{};        // it keeps the device until then, even if its work is overdue
  bool below = false;            // another arbiter has a high band on this device
  bool draining = false;         // a tenant waits for the device to drain
  bool held = false;             // the last Run() left a tenant waiting
  double idle_budget = 0;
  Time budget_at{};
};

// The limits of a family's parent as a member of its own family.
TenantLimits AsMember(const TenantLimits& limits);

// Used at the end of a public call. Checks the books in debug builds. A check costs O(tenants), so with many
// tenants only some calls check.
#ifndef NDEBUG
void AbortIfBroken(const char* broken);
#define GPUSHARE_SCHED_CHECK_BOOKS(state) \
  if ((state).CheckIsDue()) ::gpushare::sched::AbortIfBroken((state).Broken())
#else
#define GPUSHARE_SCHED_CHECK_BOOKS(state) static_cast<void>(0)
#endif

}  // namespace gpushare::sched

#endif  // GPUSHARE_SCHED_STATE_H_
