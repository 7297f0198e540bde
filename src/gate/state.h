// SPDX-License-Identifier: Apache-2.0
// What the parts of the engine share: the state of a tenant, of its streams, and of the engine.
#ifndef GPUSHARE_GATE_STATE_H_
#define GPUSHARE_GATE_STATE_H_

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "base/sync.h"
#include "gate/copy_line.h"
#include "gate/engine.h"
#include "gate/footprint.h"
#include "gate/graph_kernels.h"
#include "gate/graph_shapes.h"
#include "gate/lane.h"
#include "gate/purse.h"
#include "gate/tenant_page.h"
#include "meter/cost_model.h"
#include "meter/markers.h"
#include "meter/replay.h"
#include "sched/arbiter.h"
#include "sched/delay_budget.h"

namespace gpushare::gate {

struct TenantState;

// Identifies the calling thread among the threads that exist at the same time.
inline const void* ThisThread() {
  static thread_local char here;
  return &here;
}

// A tenant that has been silent for this long may never call the gate again, so the reconciler closes what it left open.
inline constexpr Nanos kSilence = Millis(1);
// At most this many commands in a row get a marker each to make up for earlier commands that got none (StreamGate::to_mark).
inline constexpr int kMostToMark = 256;
// After this many commands in batches of which only a bound is known, one command or a few get a marker each. Of a batch, at most
// kMostOfBatch count.
inline constexpr int kMostToldNothing = 16, kMostOfBatch = 4;
// A graph of this cost or more is not treated as one command that nothing interrupts, and its cost is learnt while it is
// alone on the device. A graph whose kernels fill the device, in the mean over their waves, is charged that cost, whichever
// kernels of other tenants came in between. Other graphs are replayed in equal parts, since their cost depends on who else
// held SMs.
inline constexpr float kLongGraphNs = 50e3f;
inline constexpr float kFillsAsGraph = 0.9f;
// A stream launches graphs of this total cost between two graphs that are measured alone.
inline constexpr uint64_t kCalibrateAfterNs = 16'000'000;
// If a graph was seen to take this many times its cost alone, that cost is no longer believed.
inline constexpr double kDisbelieved = 2;
inline bool IsOpaqueGraph(uint32_t parts, float footprint, float cost_ns) {
  return parts != 1 && cost_ns >= kLongGraphNs &&
         (!meter::CostModel::InParts(parts) || MeanWidth(footprint) >= kFillsAsGraph);
}

// A recorded event that has not yet been seen to complete.
struct Marker {
  uint64_t id = 0;
  driver::Event event = nullptr;
  StreamGate* stream = nullptr;
  int commands = 0;
  int unknown = 0;  // commands whose cost was a guess
  int64_t charged_ns = 0;
  sched::Phase phase = sched::Phase::kWeight;
  Time recording{};             // host time just before it was submitted
  Time recorded{};              // host time just after it was submitted
  int64_t accrued_ns = 0;       // already charged because the work is overdue
  bool lease = false;           // it closes a lease
  bool passed = false;          // it closes a command that was let through at the bound of holds
  bool behind_stall = false;    // a start marker recorded behind a wait of its stream
  bool waits_for_host = false;  // that wait is for the host and uses no device time
  bool after_silence = false;   // recorded by the reconciler because the tenant was silent
  bool ended_now = false;       // its command ended just before it was recorded
  bool failed = false;          // the driver refused to say when it completed
  bool told = false;            // the watchdog has been told that it is stuck
};

class StreamGate {
 public:
  driver::Stream handle = nullptr;
  TenantState* tenant = nullptr;
  meter::EventPool* events = nullptr;  // of its context
  StreamPlace place;
  const void* thread = nullptr;  // the only thread that can mark it; null: any thread can
  uint32_t index = 0;
  // The keys of its last launches, as the context of the next prediction.
  std::atomic<uint64_t> context{0};
  Lane lane;                                // constant while the stream is live
  std::atomic<uint64_t> long_graphs_ns{0};  // cost of long graphs launched: see Calibrates()

  // Under the engine's lock.
  bool live = false;     // it has a place in the replay
  bool leaving = false;  // it was removed: live until what is in flight has been measured
  bool ended = false;    // its context is ending: its markers are not queried any more
  meter::Replay::StreamId replay = 0;
  int unmarked = 0;              // commands known to the replay behind the last marker
  int unmarked_unknown = 0;      // how many of these had a guessed cost
  int64_t unmarked_ns = 0;       // device time charged for them
  bool unmarked_lease = false;   // a lease was released behind the last marker
  bool unmarked_passed = false;  // a command let through at the bound of holds is behind it
  std::deque<Marker> markers;    // recorded, not seen to complete, in stream order
  int markers_pending = 0;       // `markers`, and completed ones that are not settled yet
  bool marking = false;          // some thread is recording an event here
  // Launches by the slow path that may not have reached the driver yet. A marker of another thread would be recorded before
  // them and show that they took no time.
  int entering = 0;
  // The next this many commands get a marker each, because as many earlier ones had no marker when their thread fell silent, or
  // because the last batches told nothing.
  int to_mark = 0;
  int told_nothing = 0;  // commands in a row of which only a bound is known: see ToldNothing()
  uint32_t turns = 0;    // how often that has made others get markers
  Time held_up_since =
      kNever;  // since when its first marker has waited for the host or for a value
  // When the last command of uncertain cost was admitted; kNever: the cost of all that is in flight is known by now.
  Time unsure_since = kNever;
  StreamGate* next_unsure = nullptr;
  Nanos recorded_until{0};  // device time at which the last settled work ended
  Time ends_since{};        // when the end of its context began
};

// A token bucket over bytes; debt is paid before the next copy.
struct CopyLimit {
  double bytes_per_s = 0;  // 0: none
  double tokens = 0;
  Time at{};

  bool open() const { return bytes_per_s <= 0 || tokens > 0; }
  void Advance(Time now);
  Time OpenAt(Time now) const;  // when a limit that is not open will be
};

// Copies of a tenant in one direction that were submitted beside other tenants' copies and are not known to be done.
struct CopyFlight {
  struct Piece {
    uint64_t id = 0, bytes = 0;
    driver::Event event = nullptr;  // recorded behind it
    meter::EventPool* events = nullptr;
    bool linked = false;  // CopySupply::LinkDone() follows
  };
  std::deque<Piece> pieces;  // in the order of submission
  uint64_t bytes = 0;        // sum over `pieces`
  uint64_t given = 0;        // id of the last piece
  // Id of the oldest piece when the tenant last stopped waiting for it, because it made no progress; 0: that never happened.
  uint64_t passed = 0;
  // Until then the tenant counts as one that copies in pieces.
  Time copies_until{};
};

// What a thread that waits at the gate asks for.
struct GrantRequest {
  uint64_t charge = 0;      // device time in ns
  bool own_grant = false;   // credit granted for other commands must not be used
  bool exclusive = false;   // the device is drained before and after
  bool cost_known = false;  // false: the charge is a guess
  bool lease = false;
  int at_once = 1;  // commands like it that one grant should hold: see Arbiter::Block()
  Time deadline = kNever;
  Nanos longest_hold = kNoBound;
  const std::atomic<bool>* called_off = nullptr;  // of a lease; null: it cannot be called off
  // For a kernel of sure cost: its stream, length and width. A null stream stands for any other work.
  const StreamGate* stream = nullptr;
  float length_ns = 0, footprint = 0;
  Time began{};  // when it began to wait
};

// Launches that may have been paid for by a grant beside a higher band's commands: those numbered from the grant on until its
// credit is spent or taken back. The credit is in the tenant's page, so another thread may spend it, on another kernel than
// the one that was foreseen.
class BesideLaunches {
 public:
  // `next` is the number of the next launch. Called before such credit is given.
  void Open(uint32_t next) {
    if (!open_ && from_ == end_) from_ = next;
    open_ = true;
  }
  // `next` is the number behind the last launch that may have spent such credit.
  void Close(uint32_t next) {
    if (std::exchange(open_, false)) end_ = next;
  }
  bool Has(uint32_t launch) const { return From(launch) < (open_ ? kHalf : From(end_)); }
  // Launches below `next` are in the books.
  void Synced(uint32_t next) {
    if (!open_ && !Has(next) && From(next) < kHalf) end_ = next;  // all of them are
    if (From(next) < kHalf) from_ = next;
  }

 private:
  // Launch numbers wrap around to 0, so they are compared by distance.
  static constexpr uint32_t kHalf = (TenantPage::kLaunchMask + 1) / 2;
  uint32_t From(uint32_t launch) const { return (launch - from_) & TenantPage::kLaunchMask; }

  bool open_ = false;            // such credit may be left
  uint32_t from_ = 0, end_ = 0;  // `end_` is valid while closed; equal: no launches
};

struct TenantState {
  TenantState(Engine::Impl& owner, std::string tenant_name, TenantState* of_parent);

  Engine::Impl& engine;
  const std::string name;
  TenantState* const parent;              // null: none
  driver::Context own_context = nullptr;  // constant; null: the engine's context
  TenantPage page;
  Purse purse;  // its credit
  // These take 300 KB, which a tenant that never launches does not need. OpenBooks() makes them with the first stream or
  // lease, and they stay from then on.
  std::unique_ptr<LaunchRing> ring;
  std::unique_ptr<meter::CostModel> costs;
  sched::TenantId id = 0;
  std::unique_ptr<Gate> gate;

  // Under the engine's lock.
  TenantOptions options;
  std::vector<std::unique_ptr<StreamGate>> streams;  // by index; entries are reused, never moved
  std::vector<StreamGate*> ended_streams;            // entries to reuse; has room for all
  uint32_t synced_launch = 0;                        // launches below it are known to the replay
  int64_t given_ns = 0;      // credit put into the page, less what was taken out
  int64_t accounted_ns = 0;  // spent credit that has been charged to a batch
  sched::Phase phase = sched::Phase::kWeight;
  Time launching_since{};  // launches unknown to the replay were made between this time and now
  bool open = false;       // it is in Impl::open_tenants
  Time last_change{};      // when the credit word was last seen to change
  Time granted_at{};       // when it was last given credit
  uint64_t last_word = 0;
  // Waiting requests, first come first served. Only the first asks the arbiter: two that replaced each other's requests and
  // grants would both never be served.
  std::deque<const GrantRequest*> waiting;
  int unknown_in_flight = 0;  // commands of guessed cost, admitted and not measured yet
  BesideLaunches besides;
  sched::DelayBudget delay_budget;  // used if the tenant is of the high band
  bool grant_stands = false;  // keep its grant though its band is closed or the device is to drain
  bool suspended = false, removed = false;
  std::unique_ptr<TenantState> next_removed;
  absl::Status health;  // of its own context
  // Work of this tenant that was let through because another tenant might be waiting for it. `passed`: when that last
  // happened, or when such work was last measured. `hold`: how long its work is held the next time at least (0: none was ever
  // let through). `passed_used`: the device time that such work used since the tenant was last held no longer than others.
  Time passed{};
  Nanos hold{0}, passed_used{0};
  uint32_t passed_launch = 0;  // number of the last launch that was let through
  bool passing = false;        // that launch is not in the books yet
  KnownShapes graph_shapes;
  std::array<CopyLimit, 2> copies;
  std::array<std::atomic<bool>, 2> limits_copies{};
  // Of the family of which it is the first: copies of its members that wait for a limit of more than one of them, and the
  // family's turn among all families.
  std::array<CopyLine, 2> family_lines;
  std::array<CopyLine::Turn, 2> copy_turns;
  // The tenant's turn in the line of its family.
  std::array<CopyLine::Turn, 2> family_turns;
  int children = 0;
  std::array<CopyFlight, 2> copy_flights;
  double copying_weight = 0;  // scratch of CopyPiece()
  int copies_waiting = 0;
  // The part of its kernels' durations that other tenants used, averaged over some 100 ms of them.
  double leaves = 0;
  GateStats stats;

  // Whether the tenant has a parent or children.
  bool shares() const { return parent != nullptr || children > 0; }
  // The first of its family: its parent, or the tenant itself.
  TenantState& family() { return parent != nullptr ? *parent : *this; }
  // Whether the tenant or its parent has a cap.
  bool capped() const {
    return options.limits.cap < 1 || (parent != nullptr && parent->options.limits.cap < 1);
  }
};

struct LeaseState {
  uint64_t id = 0;
  TenantState* tenant = nullptr;
  LeaseRequest request;
  int64_t charged_ns = 0;
  sched::Phase phase = sched::Phase::kWeight;
  // For the lease of a gang: when the gang was complete. The time that the lease kept before that is already charged.
  Time acquired{};
  bool told = false;  // the watchdog has been told that it is held for too long
};

inline sched::ArbiterOptions ArbiterOptionsOf(const EngineOptions& options) {
  sched::ArbiterOptions arbiter = options.arbiter;
  arbiter.asleep_after = options.spin;
  if (options.supply != nullptr) arbiter.sole_grant = Nanos(0);  // others may be in other processes
  return arbiter;
}

struct Engine::Impl {
  Impl(driver::Driver& used_driver, driver::Context used_context, const EngineOptions& used_options)
      : driver(used_driver),
        context(used_context),
        clock(used_driver.clock()),
        options(used_options),
        recorder(used_options.recorder != nullptr ? used_options.recorder
                                                  : std::make_shared<Recorder>()),
        events(used_driver, used_context),
        arbiter(ArbiterOptionsOf(used_options)),
        replay(used_options.sm_count) {}

  driver::Driver& driver;
  const driver::Context context;
  base::Clock& clock;
  const EngineOptions options;
  const std::shared_ptr<Recorder> recorder;
  meter::EventPool events;
  // Used by the reconciler alone. Null: the engine's context is gone, so nothing can be measured.
  std::unique_ptr<meter::TimeLine> time_line;
  Nanos marker_cost{0};  // device time of a marker on its stream; used by the reconciler alone

  base::Mutex mu;
  // Events for streams of other contexts, including contexts that are gone. Never destroyed before the engine.
  struct ForeignPool {
    driver::Context context;  // null: the context is gone
    std::unique_ptr<meter::EventPool> events;
  };
  std::vector<ForeignPool> foreign_pools ABSL_GUARDED_BY(mu);
  sched::Arbiter arbiter ABSL_GUARDED_BY(mu);
  meter::Replay replay ABSL_GUARDED_BY(mu);
  std::vector<std::unique_ptr<TenantState>> tenants ABSL_GUARDED_BY(mu);  // by TenantId
  std::atomic<size_t> registered{0};                                      // number of tenants
  std::vector<TenantState*> open_tenants ABSL_GUARDED_BY(mu);   // with credit or unmarked work
  std::vector<TenantState*> taken_from ABSL_GUARDED_BY(mu);     // scratch of TakeCreditOf()
  std::vector<StreamGate*> marked_streams ABSL_GUARDED_BY(mu);  // streams with markers
  std::vector<LeaseState> leases ABSL_GUARDED_BY(mu);
  size_t leases_asked ABSL_GUARDED_BY(mu) = 0;  // `leases` has room for this many more
  uint64_t next_lease ABSL_GUARDED_BY(mu) = 1;
  uint64_t next_marker ABSL_GUARDED_BY(mu) = 1;
  std::unique_ptr<TenantState> removed_tenants ABSL_GUARDED_BY(mu);  // the list by next_removed
  Totals of_removed ABSL_GUARDED_BY(mu);
  std::vector<LaunchRecord> scratch ABSL_GUARDED_BY(mu);
  std::vector<sched::Grant> grants ABSL_GUARDED_BY(mu);      // scratch
  Time next_run ABSL_GUARDED_BY(mu) = kNever;                // when to run the arbiter again
  std::array<CopyLine, 2> copy_lines ABSL_GUARDED_BY(mu);    // for options.copy_supply
  std::array<bool, 2> copies_awaited ABSL_GUARDED_BY(mu){};  // AwaitCopies() was called
  // When any tenant's piece was last seen to be done: see AwaitCopyRoom().
  std::array<Time, 2> copies_went_on ABSL_GUARDED_BY(mu){};
  Time reconciler_wakes ABSL_GUARDED_BY(mu) = kNever;
  // Host time of a submission to an idle stream, minus the device time at which the work starts.
  Nanos submit_offset ABSL_GUARDED_BY(mu){0};
  // The shortest time, seen lately, from a grant to a sleeping thread until its launch.
  Nanos wake_latency ABSL_GUARDED_BY(mu){0};
  Time offset_seen ABSL_GUARDED_BY(mu){};  // when a start marker last measured submit_offset
  absl::Status health ABSL_GUARDED_BY(mu);
  std::shared_ptr<Watchdog> watchdog ABSL_GUARDED_BY(mu);  // null: none
  std::vector<Incident> incidents ABSL_GUARDED_BY(mu);     // the reconciler has yet to report them
  Time last_completion ABSL_GUARDED_BY(mu){};        // when a marker was last seen to complete
  Time measured_until ABSL_GUARDED_BY(mu){};         // when the last settled work was done
  StreamGate* unsure ABSL_GUARDED_BY(mu) = nullptr;  // head of the list by next_unsure

  // Commands per batch of tenants that have no more than half of the time, averaged over some 100 ms of measured time. A
  // marker shows only when the last command of a batch ended.
  double commands_a_batch ABSL_GUARDED_BY(mu) = 0;

  StudiedGraph studied ABSL_GUARDED_BY(mu);
  // Set with `studied`, until the reconciler has finished with it.
  std::atomic<bool> studying{false};
  // Used under the lock while it is recording, else by the reconciler alone.
  std::unique_ptr<meter::GraphStudy> study;

  std::atomic<bool> stopping{false};
  // The engine's context is ending; set until the reconciler has dropped what belongs to it.
  std::atomic<bool> context_ends{false};
  std::atomic<int> own_ends{0};      // driver calls in progress that end the engine's context
  std::atomic<bool> measures{true};  // there is a time line
  // Rounds of the reconciler that were asked for and finished: see AwaitLook().
  std::atomic<uint32_t> looks_asked{0}, looks_done{0};
  std::atomic<bool> events_suspect{false};  // the driver refused an event
  std::atomic<uint32_t> poke{0};
  std::unique_ptr<base::ClockThread> reconciler;

  // Filled under the lock; Section acts on them when it releases the lock.
  absl::InlinedVector<const std::atomic<uint32_t>*, 8> to_wake ABSL_GUARDED_BY(mu);
  Time look_by ABSL_GUARDED_BY(mu) = kNever;

  // engine.cc
  void OpenBooks(TenantState& tenant) ABSL_LOCKS_EXCLUDED(mu);
  meter::EventPool* EventsOf(driver::Context stream_context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SetUnsure(StreamGate& stream, Time since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether anything of unknown length is in flight.
  bool IsUnsure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Frees the place of a stream that has nothing in flight, for another stream to use.
  void EndStream(StreamGate& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // grants.cc
  void ReadRecords(TenantState& tenant, uint32_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Tells the replay of launches that the fast path made since the last call. All of them were made by `until`.
  void SyncLaunches(TenantState& tenant, Time now, Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SyncLaunches(TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    SyncLaunches(tenant, now, now);
  }
  void GiveCredit(TenantState& tenant, Nanos amount, sched::Phase phase, Time now,
                  bool beside = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void TakeCredit(TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes the credit of all tenants for which `which(tenant)` is true. False if there were none.
  template <typename Which>
  bool TakeCreditOf(const Which& which, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void TakeAllCredit(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Runs the arbiter and hands out its grants. Unless `self` is null, the calling thread is one of its waiters.
  void RunArbiter(Time now, const TenantState* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  class LooksAhead;  // beside.h
  struct Look {
    sched::TenantId tenant = 0;
    Time began{};
    Nanos seen{0};
    Time again{};
  };
  Look last_look ABSL_GUARDED_BY(mu);
  meter::Outlook outlook ABSL_GUARDED_BY(mu);  // of the last look; the next one reuses its memory
  // Whether some tenant of the high band has a delay budget.
  bool looks_ahead ABSL_GUARDED_BY(mu) = false;
  void SetDelay(TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Reports the state of the books to the supply. Returns whether more may be handed out.
  bool MayHandOut(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `bounded` and `ended` of the supply's last answer.
  bool supply_bounded ABSL_GUARDED_BY(mu) = true, supply_ended ABSL_GUARDED_BY(mu) = false;
  // Makes the tenant's waiters look again.
  void Wake(TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Makes the reconciler look again at `when` at the latest.
  void LookBy(Time when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { look_by = std::min(look_by, when); }
  void Poke() ABSL_LOCKS_EXCLUDED(mu);
  Nanos DeviceTime(Time host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Time HostTime(Nanos device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void WokenIn(Nanos latency) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether the tenant may ask for a grant now: not while it is suspended or has too much work of unknown cost in flight.
  bool MayAsk(const TenantState& tenant, bool cost_known, Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether a stream of the tenant has waited for the host, or for a value, for long.
  bool StandsForHost(const TenantState& tenant, Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  class LineGuard;
  // Waits until the tenant has credit for `request`, and spends it; `spent` is called under the lock. If it throws bad_alloc,
  // nothing has changed.
  Verdict WaitForGrant(TenantState& tenant, const GrantRequest& request,
                       absl::FunctionRef<void(uint32_t launch, Time now)> spent)
      ABSL_LOCKS_EXCLUDED(mu);

  // holds.cc
  // When work of the tenant that has been held since `began` is let through without a grant: by its own bound, and because
  // other tenants may wait for it.
  struct Bounds {
    Time own = kNever, others = kNever;
  };
  Bounds BoundsOf(const TenantState& tenant, const GrantRequest& request, Time began,
                  Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Nanos DeadlockHold(const TenantState& tenant, Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Pass(): work is let through now, by the bound of other tenants' waits. PassedDone(): such work has used `used`.
  void Pass(TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void PassedDone(TenantState& tenant, Nanos used, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // lease.cc
  std::vector<LeaseState>::iterator FindLease(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void OpenLease(const LeaseState& lease, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void OpenLeaseOn(StreamGate& stream, float cost, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Time ExclusiveUntil(const TenantState& tenant, Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // copies.cc
  struct CopyLook {
    bool open = false, suspended = false;
    Time look_by = kNever;  // when a waiting copy is to look again; kNever: it is woken
  };
  // A copy that asks to begin: its places in the lines of its family and of the engine.
  struct CopyAsked {
    CopyAsked(TenantState& tenant, CopyDirection direction);
    const CopyDirection direction;
    CopyLine::Waiter in_family, in_engine;
    bool though_suspended = false;  // it may begin even while its tenant is suspended
  };
  // Whether the copy may begin now. Keeps its places in the lines or gives them up.
  CopyLook LookAtCopy(CopyAsked& copy, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveCopyLine(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveFamilyLine(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveCopyLines(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    LeaveFamilyLine(copy);
    LeaveCopyLine(copy);
  }
  // Makes the copy that is first now look again.
  void CopyLineChanged(CopyDirection direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ChargeCopy(TenantState& tenant, CopyDirection direction, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // copy_pieces.cc
  // Forgets the tenant's pieces in flight whose events are of the pool `of`, which are gone. Null: forgets all pieces and
  // returns their events to the pools.
  void ForgetCopies(TenantState& tenant, const meter::EventPool* of)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // marking.cc
  // A marker behind what `stream` has launched. The caller records its event and then calls AddMarker().
  Marker NewMarker(StreamGate& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Records a marker on each stream of the tenant with unmarked work. Calls the driver.
  // `ended`: the stream whose command has just ended.
  void CloseOpen(TenantState& tenant, StreamGate* only, const StreamGate* ended = nullptr)
      ABSL_LOCKS_EXCLUDED(mu);
  // Records the marker's event and sets when that was. The event stays null if the stream is being captured (a record would
  // join or break the capture) or if the driver refuses, which is reported. Calls the driver.
  void RecordMarker(Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  driver::Event RecordMarkerHere(StreamGate& stream, Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  // Whether the stream is being captured, or the driver does not say. Calls the driver.
  bool MayCapture(const StreamGate& stream) ABSL_LOCKS_EXCLUDED(mu);
  driver::Context ContextOf(const StreamGate& stream) const {
    return stream.place.context != nullptr ? stream.place.context : context;
  }
  // A scope in which the stream's handle means this stream, whatever context the caller has current.
  class InContextOf {
   public:
    InContextOf(const Impl& engine, const StreamGate& stream)
        : driver_(engine.driver),
          push_(stream.place.by_context),
          ok_(!push_ || driver_.PushContext(engine.ContextOf(stream)) == driver::Result::kSuccess) {
    }
    ~InContextOf() {
      if (push_ && ok_) driver_.PopContext();
    }
    InContextOf(const InContextOf&) = delete;
    InContextOf& operator=(const InContextOf&) = delete;
    bool ok() const { return ok_; }

   private:
    driver::Driver& driver_;
    const bool push_, ok_;
  };
  // The driver refused a marker of the tenant in this call, so its work is settled as predicted.
  void Refused(TenantState& tenant, driver::Result refused, const char* call) noexcept
      ABSL_LOCKS_EXCLUDED(mu);
  void Report(TenantState& tenant, const absl::Status& refused) ABSL_LOCKS_EXCLUDED(mu);
  // Keeps the incident for the watchdog; drops it if there is no memory for it.
  void Note(Incident incident, const TenantState& tenant) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Settles as predicted what the stream launched since its last marker; it gets no marker.
  void SettleUnmarked(TenantState& tenant, StreamGate& stream, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `commands` of guessed cost are settled, so the tenant may launch others.
  void UnknownDone(TenantState& tenant, int commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Records the start marker of an idle stream, whose boundary in the replay is already drawn. Calls the driver.
  void MarkStart(Marker marker) ABSL_LOCKS_EXCLUDED(mu);
  bool KeepMarker(StreamGate& stream, const Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AddMarker(const Marker& marker, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SettleAsPredicted(TenantState& tenant, sched::Phase phase, int64_t charged_ns, int commands,
                         int unknown, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // admission.cc
  bool WantsDevice(StreamGate& stream, const Work& work, const meter::CostModel::Prediction& cost,
                   bool calibrates) ABSL_LOCKS_EXCLUDED(mu);

  // graph_shapes.cc
  // Keeps the part of the graph's time that each of its kernels has, from launches of the kernels by themselves.
  void KeepLengths(TenantState& tenant, const Work& work, const std::vector<float>& lengths)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The lengths of its kernels are not known any more.
  void ForgetLengths(TenantState& tenant, const Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `kernels` are the graph's kernels, and `lengths` the parts of its time that they have by launches of them by themselves;
  // empty: these are not known.
  void AskForStudy(TenantState& tenant, const meter::CostModel::Prediction& cost, const Work& work,
                   const KernelsInGraph& kernels, const std::vector<float>& lengths)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // A graph was launched. Returns the shape by which the replay is to treat it; null: equal parts of one width.
  const KnownShape* GraphLaunched(TenantState& tenant, uint32_t entry, bool* is_studied)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordStudy(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void DropStudyOf(const TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool GoOnStudying() ABSL_LOCKS_EXCLUDED(mu);

  // recording.cc; called only while the recorder is on.
  void RecordWait(const TenantState& tenant, const GrantRequest& request, Time began, Time ended,
                  bool gave_up);
  // The work ran between two device times and was charged `used`.
  void RecordSettled(const Marker& marker, Nanos began, Nanos ended, Nanos used)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordOverdue(const TenantState& tenant, Nanos more, Time now);
  void RecordLease(const LeaseState& lease, Time released, bool charged_as_held);
  void RecordCopyWait(const TenantState& tenant, CopyDirection direction, uint64_t bytes,
                      Time began, Time ended);
  void RecordSuspend(const TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // renewal.cc. Only the reconciler calls the first two.
  void LoseEvents() ABSL_LOCKS_EXCLUDED(mu);
  void RenewEvents() ABSL_LOCKS_EXCLUDED(mu);
  // Waits until the events are renewed or cannot be.
  void AwaitRenewal() ABSL_LOCKS_EXCLUDED(mu);

  // ending.cc
  // Waits until all work that had completed at the call is settled. Not called by the reconciler.
  void AwaitLook() ABSL_LOCKS_EXCLUDED(mu);
  void ContextEnds(driver::Context ending) ABSL_LOCKS_EXCLUDED(mu);
  void ContextEnded(driver::Context ended) ABSL_LOCKS_EXCLUDED(mu);
  bool InFlight(const meter::EventPool* pool) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Settles what is in flight on the stream: it is over, and its markers will never be seen to complete.
  void SettleEnded(StreamGate& stream, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // reconciler.cc
  void Reconcile();
  // What one pass of the reconciler found: the first marker of each stream, completed markers, and those with their stamps.
  struct Round {
    std::vector<Marker> first, completed;
    std::vector<std::pair<Nanos, Marker>> stamped;
    std::vector<Marker> silent;  // markers to record for silent tenants
  };
  bool QueryMarkers(Round& round) ABSL_LOCKS_EXCLUDED(mu);
  // The device time of a marker. Takes its event.
  absl::StatusOr<Nanos> StampOf(const Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  int LevelOf(const TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool FoundIdle(const Marker& marker, Nanos ended) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Settle(const Marker& marker, Nanos stamp, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LearnFrom(TenantState& tenant, const meter::Replay::Batch& batch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ToldNothing(StreamGate& stream, int commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool WasBeside(TenantState& tenant, const meter::Replay::Batch& batch, Nanos took)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Tells the arbiter once all work before the stall of a stream is done.
  void HoldUp(StreamGate& stream, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Reports leases that are held past the limit to the watchdog. Returns when to look again.
  Time WatchLeases(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Reports a marker whose work is overdue past the limit.
  void WatchOver(const StreamGate& stream, Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Charges overdue work for what it has used so far, since a kernel may never end.
  void ChargeOverdue(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // For how long a tenant has to be silent before its open work is closed.
  Nanos SilenceOf(const TenantState& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes back credit that silent tenants have not spent. Adds markers for their unmarked launches to `silent`; these are
  // still to be recorded. Returns when to look again.
  Time RevokeIdle(Time now, std::vector<Marker>& silent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  int CloseSilent(TenantState& tenant, Time now, std::vector<Marker>& silent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordSilent(std::vector<Marker>& silent) ABSL_LOCKS_EXCLUDED(mu);
  Time NextPoll(Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

inline TenantState::TenantState(Engine::Impl& owner, std::string tenant_name,
                                TenantState* of_parent)
    : engine(owner), name(std::move(tenant_name)), parent(of_parent), purse(page, owner.mu) {}

// Holds the engine's lock. After releasing it, wakes the threads that the section admitted, and the reconciler if it has to
// look earlier than it planned.
class ABSL_SCOPED_LOCKABLE Section {
 public:
  explicit Section(Engine::Impl& engine) ABSL_EXCLUSIVE_LOCK_FUNCTION(engine.mu) : engine_(engine) {
    engine_.mu.Lock();
  }
  ~Section() ABSL_UNLOCK_FUNCTION();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;

 private:
  Engine::Impl& engine_;
};

// Counts a thread that waits with a copy. If the thread is unwound, the count is corrected, so that the removal of the tenant does
// not wait for it, and the copy leaves its lines.
class CopyWait {
 public:
  explicit CopyWait(TenantState& tenant, Engine::Impl::CopyAsked* asked = nullptr)
      : tenant_(tenant), asked_(asked) {}
  ~CopyWait() {
    if (!counted_) return;
    const Section section(tenant_.engine);
    if (asked_ != nullptr) tenant_.engine.LeaveCopyLines(*asked_);
    End();
  }
  CopyWait(const CopyWait&) = delete;
  CopyWait& operator=(const CopyWait&) = delete;

  // Both are called under the engine's lock. After End() the tenant may be gone.
  void Begin() {
    ++tenant_.copies_waiting;
    counted_ = true;
  }
  void End() {
    if (std::exchange(counted_, false)) --tenant_.copies_waiting;
  }

 private:
  TenantState& tenant_;
  Engine::Impl::CopyAsked* const asked_;
  bool counted_ = false;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_STATE_H_
