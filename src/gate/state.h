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

// Differs between threads that are there at once.
inline const void* ThisThread() {
  static thread_local char here;
  return &here;
}

// A tenant that fell silent may not come by again: the reconciler closes what it left open.
inline constexpr Nanos kSilence = Millis(1);
// At most so many commands in a row are marked each, because others were not.
inline constexpr int kMostToMark = 256;
// A graph of this cost or more is not taken for one command that nothing interrupts, and its cost is learnt while it is
// alone. One whose kernels fill the device, all of their waves taken together, is taken to have cost that, whoever's kernels
// came between its own; others are replayed in equal parts, since what they cost depends on who else held SMs.
inline constexpr float kLongGraphNs = 50e3f;
inline constexpr float kFillsAsGraph = 0.9f;
// So much of a stream's graphs is launched between two that are measured alone.
inline constexpr uint64_t kCalibrateAfterNs = 16'000'000;
// A graph that was seen to take so many times what it takes alone is not believed to have cost that.
inline constexpr double kDisbelieved = 2;
inline bool IsOpaqueGraph(uint32_t parts, float footprint, float cost_ns) {
  return parts != 1 && cost_ns >= kLongGraphNs &&
         (!meter::CostModel::InParts(parts) || MeanWidth(footprint) >= kFillsAsGraph);
}

// A recorded event that has not been seen completed.
struct Marker {
  uint64_t id = 0;
  driver::Event event = nullptr;
  StreamGate* stream = nullptr;
  int commands = 0;
  int unknown = 0;  // commands whose cost was a guess
  int64_t charged_ns = 0;
  sched::Phase phase = sched::Phase::kWeight;
  Time recording{};             // host time just before it was submitted
  Time recorded{};              // and just after
  int64_t accrued_ns = 0;       // charged already, because it is overdue
  bool lease = false;           // it closes a lease
  bool passed = false;          // of a command that passed at the bound of holds
  bool behind_stall = false;    // a start marker whose stream waits when it is recorded
  bool waits_for_host = false;  // and for the host, which keeps nothing of the device
  bool after_silence = false;   // recorded by the reconciler, since no thread of the tenant came by
  bool failed = false;          // the driver refused to say when it completed
  bool told = false;            // the watchdog knows that it is stuck
};

class StreamGate {
 public:
  driver::Stream handle = nullptr;
  TenantState* tenant = nullptr;
  meter::EventPool* events = nullptr;  // of its context
  StreamPlace place;
  const void* thread = nullptr;  // the only one that can mark it; null: any
  uint32_t index = 0;
  // The keys of its last launches, as the context of the next prediction.
  std::atomic<uint64_t> context{0};
  Lane lane;                                // constant while it is live
  std::atomic<uint64_t> long_graphs_ns{0};  // launched: see Calibrates()

  // Under the engine's lock.
  bool live = false;     // it has a place in the replay
  bool leaving = false;  // it was removed: live until what is in flight has been measured
  bool ended = false;    // its context is ending: of its markers nothing is asked any more
  meter::Replay::StreamId replay = 0;
  int unmarked = 0;              // commands known to the replay behind the last marker
  int unmarked_unknown = 0;      // those of them whose cost was a guess
  int64_t unmarked_ns = 0;       // what was charged for them
  bool unmarked_lease = false;   // a lease was released behind the last marker
  bool unmarked_passed = false;  // a command that passed at the bound of holds is behind it
  std::deque<Marker> markers;    // recorded, not seen completed, in the order of the stream
  int markers_pending = 0;       // these, and those seen completed that are not settled
  bool marking = false;          // some thread is recording an event here
  // Launches of the slow way that may not be in the driver yet. Another thread's marker would stand before them, and say
  // that they took no time.
  int entering = 0;
  // So many of the next commands get a marker each: as many of its thread's found no marker before it fell silent.
  int to_mark = 0;
  Time held_up_since =
      kNever;  // it waits for the host, or for a value, at the front of its markers
  // When the last command was admitted whose cost is hardly measured; kNever: what is in flight is known by now.
  Time unsure_since = kNever;
  StreamGate* next_unsure = nullptr;
  Nanos recorded_until{0};  // device time at which what was settled last had ended
  Time ends_since{};        // when its context began to end
};

// A token bucket over bytes; debt is paid before the next copy.
struct CopyLimit {
  double bytes_per_s = 0;  // 0: none
  double tokens = 0;
  Time at{};

  bool open() const { return bytes_per_s <= 0 || tokens > 0; }
  void Advance(Time now);
  Time OpenAt(Time now) const;  // of one that is not
};

// Copies of a tenant in one direction that were given to the driver beside other tenants', and are not known to be done.
struct CopyFlight {
  struct Piece {
    uint64_t id = 0, bytes = 0;
    driver::Event event = nullptr;  // behind it
    meter::EventPool* events = nullptr;
  };
  std::deque<Piece> pieces;  // as they were given
  uint64_t bytes = 0;        // of all of them
  uint64_t given = 0;        // the last one's id
  uint64_t passed = 0;  // the oldest when others passed it, since it did not go on; 0: none ever
};

// What a thread at the gate asks for.
struct GrantRequest {
  uint64_t charge = 0;      // device time in ns
  bool own_grant = false;   // credit that was given for other commands does not do
  bool exclusive = false;   // the device drained before and after
  bool cost_known = false;  // false: the charge is a guess
  bool lease = false;
  Time deadline = kNever;
  Nanos longest_hold = kNoBound;
  const std::atomic<bool>* called_off = nullptr;  // of a lease; null: it cannot be
  // Of a kernel whose cost is sure: where it goes, how long and how wide it is. Null: of anything else.
  const StreamGate* stream = nullptr;
  float length_ns = 0, footprint = 0;
  Time began{};  // to wait
};

// Launches that a grant beside a higher band's commands may have paid for: those numbered from the grant on until its credit
// is spent or was taken back. It is in the tenant's page, so they need not be of the thread that it was for, nor the kernel that
// was foreseen.
class BesideLaunches {
 public:
  // `next`: the number of the next launch. Before there is such credit.
  void Open(uint32_t next) {
    if (!open_ && from_ == end_) from_ = next;
    open_ = true;
  }
  // Behind the last that spent of it.
  void Close(uint32_t next) {
    if (std::exchange(open_, false)) end_ = next;
  }
  bool Has(uint32_t launch) const { return From(launch) < (open_ ? kHalf : From(end_)); }
  // Launches below `next` are in the books.
  void Synced(uint32_t next) {
    if (!open_ && !Has(next) && From(next) < kHalf) end_ = next;  // the last of them is
    if (From(next) < kHalf) from_ = next;
  }

 private:
  // Numbers begin again at 0.
  static constexpr uint32_t kHalf = (TenantPage::kLaunchMask + 1) / 2;
  uint32_t From(uint32_t launch) const { return (launch - from_) & TenantPage::kLaunchMask; }

  bool open_ = false;            // there may be credit of it
  uint32_t from_ = 0, end_ = 0;  // where it is not open; none: equal
};

struct TenantState {
  TenantState(Engine::Impl& owner, std::string tenant_name, TenantState* of_parent);

  Engine::Impl& engine;
  const std::string name;
  TenantState* const parent;              // null: none
  driver::Context own_context = nullptr;  // null: the engine's; constant
  TenantPage page;
  Purse purse;  // its credit
  // 300 KB, which a tenant that never launches does not need: made by OpenBooks() with its first stream or
  // lease, and there from then on.
  std::unique_ptr<LaunchRing> ring;
  std::unique_ptr<meter::CostModel> costs;
  sched::TenantId id = 0;
  std::unique_ptr<Gate> gate;

  // Under the engine's lock.
  TenantOptions options;
  std::vector<std::unique_ptr<StreamGate>> streams;  // by index; entries are reused, never moved
  std::vector<StreamGate*> ended_streams;            // of them, for the next; has room for all
  uint32_t synced_launch = 0;                        // launches below it are known to the replay
  int64_t given_ns = 0;      // credit put into the page less what was taken out
  int64_t accounted_ns = 0;  // spent credit that is charged to some batch
  sched::Phase phase = sched::Phase::kWeight;
  Time launching_since{};  // launches not known to the replay were made between this and now
  bool open = false;       // in Impl::open_tenants
  Time last_change{};      // when the credit word was last seen to change
  Time granted_at{};       // when it was last given credit
  uint64_t last_word = 0;
  // Requests that wait, first come first served: only the first asks the arbiter. With two that replaced
  // each other's requests and grants, neither would get anywhere.
  std::deque<const GrantRequest*> waiting;
  int unknown_in_flight = 0;  // commands of guessed cost, admitted and not measured yet
  BesideLaunches besides;
  sched::DelayBudget delay_budget;  // of one of the high band
  bool grant_stands = false;        // although its band is closed, or somebody waits for the device
  bool suspended = false, removed = false;
  absl::Status health;  // of its own context
  // Work of it that passed because somebody might be waiting for it: when the last did, or was measured; how long it
  // is held the next time (0: none ever passed), whatever they used; and what they used, since it was held no longer
  // than others.
  Time passed{};
  Nanos hold{0}, passed_used{0};
  uint32_t passed_launch = 0;  // the number of the last
  bool passing = false;        // it is not in the books yet
  // Of graphs, by their keys' entries.
  std::map<uint32_t, KnownShape> graph_shapes;
  uint64_t graph_shapes_kept = 0;  // so many times
  std::array<CopyLimit, 2> copies;
  std::array<std::atomic<bool>, 2> limits_copies{};
  std::array<CopyLine::Turn, 2> copy_turns;
  // Those who wait for what the copies of a parent and its children may be together: the parent's; and each one's turn there.
  std::array<CopyLine, 2> family_lines;
  std::array<CopyLine::Turn, 2> family_turns;
  int children = 0;
  std::array<CopyFlight, 2> copy_flights;
  int copies_waiting = 0;
  double leaves =
      0;  // of its kernels' durations the part that others had, over some 100 ms of them
  GateStats stats;

  // Whether it is of a family.
  bool shares() const { return parent != nullptr || children > 0; }
  // Its own cap, or its parent's.
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
  Time
      acquired{};  // of a gang's from when that was whole: of what it kept until then it has been charged
  bool told = false;  // the watchdog knows that it is held for too long
};

inline sched::ArbiterOptions ArbiterOptionsOf(const EngineOptions& options) {
  sched::ArbiterOptions arbiter = options.arbiter;
  arbiter.asleep_after = options.spin;
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
  // The reconciler's. Null: of the engine's context nothing is left, nothing can be measured.
  std::unique_ptr<meter::TimeLine> time_line;
  Nanos marker_cost{0};  // the reconciler's: what a marker takes on its stream

  base::Mutex mu;
  // Of streams of other contexts, those that are gone included. Never destroyed before the engine.
  struct ForeignPool {
    driver::Context context;  // null: it is gone
    std::unique_ptr<meter::EventPool> events;
  };
  std::vector<ForeignPool> foreign_pools ABSL_GUARDED_BY(mu);
  sched::Arbiter arbiter ABSL_GUARDED_BY(mu);
  meter::Replay replay ABSL_GUARDED_BY(mu);
  std::vector<std::unique_ptr<TenantState>> tenants ABSL_GUARDED_BY(mu);  // by TenantId
  std::atomic<size_t> registered{0};                                      // of them
  std::vector<TenantState*> open_tenants ABSL_GUARDED_BY(mu);   // with credit or unmarked work
  std::vector<TenantState*> taken_from ABSL_GUARDED_BY(mu);     // of TakeCreditOf()
  std::vector<StreamGate*> marked_streams ABSL_GUARDED_BY(mu);  // those with markers
  std::vector<LeaseState> leases ABSL_GUARDED_BY(mu);
  size_t leases_asked ABSL_GUARDED_BY(mu) = 0;  // there is room for these as well
  uint64_t next_lease ABSL_GUARDED_BY(mu) = 1;
  uint64_t next_marker ABSL_GUARDED_BY(mu) = 1;
  std::vector<std::unique_ptr<TenantState>> removed_tenants ABSL_GUARDED_BY(mu);
  Totals of_removed ABSL_GUARDED_BY(mu);
  std::vector<LaunchRecord> scratch ABSL_GUARDED_BY(mu);
  std::vector<sched::Grant> grants ABSL_GUARDED_BY(mu);      // scratch
  Time next_run ABSL_GUARDED_BY(mu) = kNever;                // the arbiter's
  std::array<CopyLine, 2> copy_lines ABSL_GUARDED_BY(mu);    // for options.copy_supply
  std::array<bool, 2> copies_awaited ABSL_GUARDED_BY(mu){};  // it was told so
  std::array<Time, 2> copies_went_on
      ABSL_GUARDED_BY(mu){};  // one was seen done: see AwaitCopyRoom()
  Time reconciler_wakes ABSL_GUARDED_BY(mu) = kNever;
  // Host time of a submission to an idle stream - device time at which it starts.
  Nanos submit_offset ABSL_GUARDED_BY(mu){0};
  // What passes at least from a grant to a tenant whose thread sleeps to its launch, as was seen of late.
  Nanos wake_latency ABSL_GUARDED_BY(mu){0};
  Time offset_seen ABSL_GUARDED_BY(mu){};  // when a start marker last showed it
  absl::Status health ABSL_GUARDED_BY(mu);
  std::shared_ptr<Watchdog> watchdog ABSL_GUARDED_BY(mu);  // null: nobody wants to know
  std::vector<Incident> incidents ABSL_GUARDED_BY(mu);     // not told yet; the reconciler does
  Time last_completion ABSL_GUARDED_BY(mu){};              // when a marker was last seen completed
  Time measured_until ABSL_GUARDED_BY(mu){};               // when what was settled last was done
  StreamGate* unsure ABSL_GUARDED_BY(mu) = nullptr;        // the first of those with unsure_since

  // Of whoever has no more than half of the time, over some 100 ms of what is measured: only the last one's end is known.
  double commands_a_batch ABSL_GUARDED_BY(mu) = 0;

  StudiedGraph studied ABSL_GUARDED_BY(mu);
  std::atomic<bool> studying{false};  // set with `studied`, until the reconciler is through with it
  // While it is recording under the lock, else the reconciler's.
  std::unique_ptr<meter::GraphStudy> study;

  std::atomic<bool> stopping{false};
  std::atomic<bool> context_ends{
      false};  // until the reconciler has let go of what is of the engine's context
  std::atomic<int> own_ends{0};      // calls of the driver that are ending it
  std::atomic<bool> measures{true};  // there is a time line
  std::atomic<uint32_t> looks_asked{0},
      looks_done{0};                        // of the reconciler's rounds: see AwaitLook()
  std::atomic<bool> events_suspect{false};  // the driver refused one
  std::atomic<uint32_t> poke{0};
  std::unique_ptr<base::ClockThread> reconciler;

  // Filled under the lock, acted upon by Section when it is released.
  absl::InlinedVector<const std::atomic<uint32_t>*, 8> to_wake ABSL_GUARDED_BY(mu);
  Time look_by ABSL_GUARDED_BY(mu) = kNever;

  // engine.cc
  void OpenBooks(TenantState& tenant) ABSL_LOCKS_EXCLUDED(mu);
  meter::EventPool* EventsOf(driver::Context stream_context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SetUnsure(StreamGate& stream, Time since) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether there is anything in flight of which nobody knows how long it takes.
  bool IsUnsure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Nothing of it is in flight: its place may be another's.
  void EndStream(StreamGate& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // grants.cc
  void ReadRecords(TenantState& tenant, uint32_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Tells the replay of launches that the fast path made since the last time.
  // All of them were made by `until`.
  void SyncLaunches(TenantState& tenant, Time now, Time until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SyncLaunches(TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    SyncLaunches(tenant, now, now);
  }
  void GiveCredit(TenantState& tenant, Nanos amount, sched::Phase phase, Time now,
                  bool beside = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void TakeCredit(TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // That of all of which `which(tenant)` is true. False: of none.
  template <typename Which>
  bool TakeCreditOf(const Which& which, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Runs the arbiter and hands out what it grants. The calling thread is one of `self`'s waiters, or
  // `self` is null.
  void RunArbiter(Time now, const TenantState* self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  class LooksAhead;  // beside.h
  struct Look {
    sched::TenantId tenant = 0;
    Time began{};
    Nanos seen{0};
    Time again{};
  };
  Look last_look ABSL_GUARDED_BY(mu);
  meter::Outlook outlook ABSL_GUARDED_BY(mu);  // of the last look, whose room the next one uses
  // Some tenant of the high band lets others delay it.
  bool looks_ahead ABSL_GUARDED_BY(mu) = false;
  void SetDelay(TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Tells the supply where the books stand. Whether more may be handed out.
  bool MayHandOut(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What the supply has said last: what is handed out is counted, nothing comes any more.
  bool supply_bounded ABSL_GUARDED_BY(mu) = true, supply_ended ABSL_GUARDED_BY(mu) = false;
  // Its waiters look again.
  void Wake(TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The reconciler looks again no later than at `when`.
  void LookBy(Time when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) { look_by = std::min(look_by, when); }
  void Poke() ABSL_LOCKS_EXCLUDED(mu);
  Nanos DeviceTime(Time host) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Time HostTime(Nanos device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void WokenIn(Nanos latency) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // May the tenant ask for a grant now? Not while suspended, nor with too much unknown work in flight.
  bool MayAsk(const TenantState& tenant, bool cost_known, Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Whether a stream of its own has waited for the host, or for a value, for long.
  bool StandsForHost(const TenantState& tenant, Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  class LineGuard;
  // Waits until the tenant has credit for `request`, and spends it; `spent` is called under the lock. bad_alloc: as if it
  // had not been called.
  Verdict WaitForGrant(TenantState& tenant, const GrantRequest& request,
                       absl::FunctionRef<void(uint32_t launch, Time now)> spent)
      ABSL_LOCKS_EXCLUDED(mu);

  // holds.cc
  // When work of the tenant that is held since `began` passes all the same.
  struct Bounds {
    Time own = kNever, others = kNever;
  };
  Bounds BoundsOf(const TenantState& tenant, const GrantRequest& request, Time began,
                  Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Nanos DeadlockHold(const TenantState& tenant, Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Work passes now, by the bound of others' waits. It has used so much.
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
    Time look_by = kNever;  // of one that waits; kNever: it is woken
  };
  // One that asks to begin: its place among those of its family, and of the engine.
  struct CopyAsked {
    CopyAsked(TenantState& tenant, CopyDirection direction);
    const CopyDirection direction;
    CopyLine::Waiter in_family, in_engine;
    bool though_suspended = false;  // the suspension of its tenant does not hold it
  };
  // Whether it may begin now; keeps its places in the lines or gives them up.
  CopyLook LookAtCopy(CopyAsked& copy, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveCopyLine(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveFamilyLine(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void LeaveCopyLines(CopyAsked& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    LeaveFamilyLine(copy);
    LeaveCopyLine(copy);
  }
  // Who is first now looks again.
  void CopyLineChanged(CopyDirection direction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ChargeCopy(TenantState& tenant, CopyDirection direction, int64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // copy_pieces.cc
  // Of what the tenant has in flight, that with events of this pool, which are gone; of none: all of it, and they are kept.
  void ForgetCopies(TenantState& tenant, const meter::EventPool* of)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // marking.cc
  // A marker behind what `stream` has launched; its event is to be recorded, then AddMarker.
  Marker NewMarker(StreamGate& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Records a marker on each stream of the tenant with unmarked work. Calls the driver.
  void CloseOpen(TenantState& tenant, StreamGate* only) ABSL_LOCKS_EXCLUDED(mu);
  // An event on `stream`, or null: it is being captured (a record would join or break the capture), or
  // the driver refuses, which is reported. Calls the driver.
  // Its event, null where none could be recorded, and when that was.
  void RecordMarker(Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  driver::Event RecordMarkerHere(StreamGate& stream, Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  // Is it captured, or does the driver not say? Calls the driver.
  bool MayCapture(const StreamGate& stream) ABSL_LOCKS_EXCLUDED(mu);
  driver::Context ContextOf(const StreamGate& stream) const {
    return stream.place.context != nullptr ? stream.place.context : context;
  }
  // A scope in which the stream is itself, whatever context the caller has current.
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
  // The driver refused a marker of the tenant's, in this call: its work is settled as predicted.
  void Refused(TenantState& tenant, driver::Result refused, const char* call) noexcept
      ABSL_LOCKS_EXCLUDED(mu);
  void Report(TenantState& tenant, const absl::Status& refused) ABSL_LOCKS_EXCLUDED(mu);
  // For the watchdog; where there is no memory for it, it is not told.
  void Note(Incident incident, const TenantState& tenant) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // What the stream launched since its last marker gets none: settled as predicted.
  void SettleUnmarked(TenantState& tenant, StreamGate& stream, Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `commands` of guessed cost are out of the way; the tenant may launch others.
  void UnknownDone(TenantState& tenant, int commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Records the start marker of an idle stream; its boundary is drawn. Calls the driver.
  void MarkStart(Marker marker) ABSL_LOCKS_EXCLUDED(mu);
  bool KeepMarker(StreamGate& stream, const Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void AddMarker(const Marker& marker, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void SettleAsPredicted(TenantState& tenant, sched::Phase phase, int64_t charged_ns, int commands,
                         int unknown, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // admission.cc
  bool WantsDevice(StreamGate& stream, const Work& work, const meter::CostModel::Prediction& cost,
                   bool calibrates) ABSL_LOCKS_EXCLUDED(mu);

  // graph_shapes.cc
  // What is known of a graph; null: nothing.
  KnownShape* ShapeOf(TenantState& tenant, uint32_t entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The same, made where there is none. `base`: of its key.
  KnownShape& ShapeFor(TenantState& tenant, uint32_t base) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Which part of its time each of its kernels has, as they were by themselves.
  void KeepLengths(TenantState& tenant, uint32_t entry, float footprint,
                   const std::vector<float>& lengths) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void ForgetShape(TenantState& tenant, uint32_t entry, bool another)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // `kernels`: of which it is made; none: nobody knows.
  void AskForStudy(TenantState& tenant, const meter::CostModel::Prediction& cost, const Work& work,
                   const std::vector<KernelInGraph>& kernels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // One was launched. For what the replay is to take it, other than for equal parts of one width; null: for these.
  const meter::GraphShape* GraphLaunched(TenantState& tenant, uint32_t entry, bool* is_studied)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordStudy(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void DropStudyOf(const TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool GoOnStudying() ABSL_LOCKS_EXCLUDED(mu);

  // recording.cc; called only while the recorder is on.
  void RecordWait(const TenantState& tenant, const GrantRequest& request, Time began, Time ended,
                  bool gave_up);
  // It ran between two device times, and was charged `used` of them.
  void RecordSettled(const Marker& marker, Nanos began, Nanos ended, Nanos used)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordOverdue(const TenantState& tenant, Nanos more, Time now);
  void RecordLease(const LeaseState& lease, Time released, bool charged_as_held);
  void RecordCopyWait(const TenantState& tenant, CopyDirection direction, uint64_t bytes,
                      Time began, Time ended);
  void RecordSuspend(const TenantState& tenant, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // renewal.cc; all but the last the reconciler's.
  void LoseEvents() ABSL_LOCKS_EXCLUDED(mu);
  void RenewEvents() ABSL_LOCKS_EXCLUDED(mu);
  void AwaitRenewal() ABSL_LOCKS_EXCLUDED(mu);  // or that it cannot be

  // ending.cc
  // What had completed when it was called has been settled when it returns. Not the reconciler's.
  void AwaitLook() ABSL_LOCKS_EXCLUDED(mu);
  void ContextEnds(driver::Context ending) ABSL_LOCKS_EXCLUDED(mu);
  void ContextEnded(driver::Context ended) ABSL_LOCKS_EXCLUDED(mu);
  bool InFlight(const meter::EventPool* pool) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Of what is in flight on the stream nothing will be heard any more, and it is over.
  void SettleEnded(StreamGate& stream, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // reconciler.cc
  void Reconcile();
  // Markers that were seen completed, and those with their stamps.
  struct Round {
    std::vector<Marker> first, completed;
    std::vector<std::pair<Nanos, Marker>> stamped;
    std::vector<Marker> silent;  // to be recorded
  };
  bool QueryMarkers(Round& round) ABSL_LOCKS_EXCLUDED(mu);
  // Takes its event.
  absl::StatusOr<Nanos> StampOf(const Marker& marker) ABSL_LOCKS_EXCLUDED(mu);
  int LevelOf(const TenantState& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool FoundIdle(const Marker& marker, Nanos ended) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void Settle(const Marker& marker, Nanos stamp, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  bool WasBeside(TenantState& tenant, const meter::Replay::Batch& batch, Nanos took)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Tells the arbiter when all that is before the stall of a stream is done.
  void HoldUp(StreamGate& stream, Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Has the watchdog told of leases that are held past the limit. When to look again.
  Time WatchLeases(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // The same of a marker whose work is.
  void WatchOver(const StreamGate& stream, Marker& marker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Charges what is overdue for what it has used so far: a kernel may never end.
  void ChargeOverdue(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Takes back what is not spent; what was launched and not marked gets its markers in `silent`, to be recorded.
  Nanos SilenceOf(const TenantState& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  Time RevokeIdle(Time now, std::vector<Marker>& silent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  int CloseSilent(TenantState& tenant, Time now, std::vector<Marker>& silent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  void RecordSilent(std::vector<Marker>& silent) ABSL_LOCKS_EXCLUDED(mu);
  Time NextPoll(Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
};

inline TenantState::TenantState(Engine::Impl& owner, std::string tenant_name,
                                TenantState* of_parent)
    : engine(owner), name(std::move(tenant_name)), parent(of_parent), purse(page, owner.mu) {}

// Holds the engine's lock. On leaving, with the lock released, it wakes whom the section admitted and the
// reconciler if that has to look earlier than it meant to.
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

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_STATE_H_
