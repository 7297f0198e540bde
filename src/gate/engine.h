// SPDX-License-Identifier: Apache-2.0
// The engine of one GPU: ties its arbiter, its meter and the gates of its tenants together.
//
//   GPUSHARE_ASSIGN_OR_RETURN(auto engine, Engine::Create(*driver, context, EngineOptions{}));
//   GPUSHARE_ASSIGN_OR_RETURN(Gate* gate, engine->AddTenant("a", {.weight = 3}));
//   GPUSHARE_ASSIGN_OR_RETURN(StreamGate* stream, gate->AddStream(cuda_stream));
//   Admission admission = gate->Admit(*stream, work);            // may wait
//   if (admission.verdict == Verdict::kAdmitted) {
//     driver::Result result = driver->Launch(...);
//     gate->Complete(admission, result == driver::Result::kSuccess);
//   }
//
// A launch that has credit spends it with one atomic and takes no lock; all else (asking the arbiter,
// recording a marker, waiting) is the slow path. One reconciler thread per engine asks the driver which
// markers have completed, corrects the tenants by measured minus predicted, and wakes those whom the
// arbiter admits. Markers are recorded by the launching threads; where these fall silent, by the reconciler.
//
// Threading: everything here is thread-safe. The context must be current on threads that call Admit,
// Complete, Synchronizing or a lease call, since they may record an event.
#ifndef GPUSHARE_GATE_ENGINE_H_
#define GPUSHARE_GATE_ENGINE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/time.h"
#include "driver/driver.h"
#include "gate/copy_supply.h"
#include "gate/host_copy.h"
#include "gate/recorder.h"
#include "gate/supply.h"
#include "gate/watchdog.h"
#include "sched/arbiter.h"

namespace gpushare::gate {

class Engine;
class Gate;
class
    StreamGate;  // one stream of one tenant, as the gate sees it; owned by its Gate, address stable
struct Lane;
struct Pocket;
struct TenantState;

inline constexpr Nanos kNoBound = Nanos::max();

class GraphKernels;

// What is about to be submitted. For kernels `key` identifies (function, grid, block, shared memory),
// see KernelKey(); for graphs the executable.
struct Work {
  enum class Kind : uint8_t { kKernel, kGraph, kCooperative };
  uint64_t key = 0;
  Kind kind = Kind::kKernel;
  // SMs that it can hold ÷ SMs of the device; above 1 it runs in waves. 0: none, it is bound by the memory
  // (sets, copies within the device).
  float footprint = 1;
  // Of a graph: of how many commands, one after the other, it is made; 0: that is not known. Others' take turns
  // with them.
  uint32_t parts = 0;
  // Another key, whose cost is taken until that of `key` was measured: of a graph before it was changed. 0: none.
  uint64_t like = 0;
  // Of a graph: which kernels it is made of, if that is known; null: it is not. See gate/graph_kernels.h.
  const GraphKernels* kernels = nullptr;
  const void* executable = nullptr;
  // Others may be waiting for it: held so long it passes, and is charged. Suspended tenants' work does not.
  Nanos longest_hold = kNoBound;
};
// It stands on the launch path: the shape's numbers lie side by side as far as the driver lets them grow (31, 16 and 16
// bits; 11, 11 and 7, and what is left for the bytes), so that three multiplications do, which do not wait for one
// another. No parameter is shifted by half a word or more: gcc reads what it has put on the stack as a whole one then,
// which waits for the store of the half.
inline uint64_t KernelKey(const void* function, const driver::LaunchShape& shape) {
  const uint64_t grid_yz = uint64_t{shape.grid.y} + (uint64_t{shape.grid.z} << 16);
  const uint64_t grid = uint64_t{shape.grid.x} + (grid_yz << 31);
  const uint64_t block = uint64_t{shape.block.x} + (uint64_t{shape.block.y} << 11) +
                         (uint64_t{shape.block.z} << 22) + (uint64_t{shape.shared_bytes} << 29);
  return reinterpret_cast<uintptr_t>(function) * 0x9e3779b97f4a7c15u ^ grid * 0xbf58476d1ce4e5b9u ^
         block * 0x94d049bb133111ebu;
}

enum class Verdict : uint8_t {
  kAdmitted,
  kDeadline,     // the deadline passed while waiting
  kSuspended,    // the tenant was suspended or removed with work waiting
  kEnded,        // the supply gives nothing any more: whose process was evicted, see kEvicted
  kInterrupted,  // the thread was asked and does not want to wait any more: base/interrupt.h
  kCalledOff,    // LeaseRequest::called_off
};
// What is said of kEnded, behind the tenant's name.
inline constexpr char kEvicted[] =
    "the operator has evicted this process, it gets no more of the GPU";
// And of kInterrupted.
inline constexpr char kInterruptedText[] =
    "the wait for its turn was interrupted, as the calling thread asked for";
// Fits two registers.
struct Admission {
  StreamGate* stream = nullptr;
  uint32_t launch = 0;  // its number among the tenant's launches
  Verdict verdict = Verdict::kAdmitted;
  bool timed = false;  // it came by the slow path: Complete() reads the clock
  bool close = false;  // exclusive or of unknown cost: Complete() marks its end
  // The call is to fail; any other that is not admitted has nobody left to pay for it.
  bool refused() const { return verdict == Verdict::kEnded || verdict == Verdict::kInterrupted; }
};

// How far a copy came: so many parts were put on its stream.
struct Copied {
  uint64_t parts = 0;
  Verdict verdict = Verdict::
      kAdmitted;  // of the next of them; admitted, and parts are left: the driver refused them
};

// Waits at the gate by length: bucket i counts waits in [2^i, 2^(i+1)) us, the first also shorter ones.
inline constexpr int kWaitBuckets = 24;

struct GateStats {
  uint64_t launches = 0;  // kernels and graphs admitted
  uint64_t graph_launches = 0;
  uint64_t waits = 0;  // admissions that had to wait
  Nanos throttled{0};  // host time spent waiting
  std::array<uint64_t, kWaitBuckets> wait_histogram{};
  uint64_t markers = 0;                  // events recorded for this tenant
  uint64_t markers_failed = 0;           // refused by the driver: that work is settled as predicted
  std::string driver_error;              // the latest of these refusals; empty: none
  Nanos predicted{0};                    // device time charged by prediction (settled work)
  Nanos measured{0};                     // device time the same work was measured to take
  uint64_t held_past_bound = 0;          // let through at the bound of a hold
  std::array<uint64_t, 2> copy_bytes{};  // by CopyDirection
  std::array<Nanos, 2> copy_throttled{};
  // Quantile of the waits in [0, 1]; upper edge of the bucket.
  Nanos WaitQuantile(double q) const;
};

inline constexpr Nanos kLongestHint = Seconds(60);

struct LeaseRequest {
  Nanos hint = Micros(100);    // expected device time, at most kLongestHint
  Nanos maximum = Seconds(1);  // host time; held longer, it is reported as overrun
  bool exclusive =
      false;  // no command of lower or equal priority while it is held, up to `maximum`
  Time deadline = kNever;
  std::vector<StreamGate*> streams;  // where the work will be launched; measured by markers
  // Of a gang that is not whole yet: an exclusive one holds until BeginLease(), however long that takes.
  bool held_back = false;
  // Set: nobody wants it any more. Who sets it has those who wait look by Gate::LookAtCalledOff(). Null: nobody does.
  const std::atomic<bool>* called_off = nullptr;
};

// What a stream's handle means.
struct StreamPlace {
  driver::Context context = nullptr;  // of the stream; null: the engine's
  bool by_context = false;  // another stream where another context is current (the legacy stream)
  bool by_thread = false;   // and on every other thread: this one alone can mark it
  // Its kernels are launched at the CUDA priority that the gate says (Lane::Level), up to so many above the stream's own.
  int levels = 0;
};

struct TenantOptions {
  sched::TenantLimits limits;
  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;  // 0: no limit
};

struct EngineOptions {
  // The arbiter's own defaults, but for larger grants: the replay attributes batches of many commands, so
  // that a marker (a microsecond of its stream) can close more work. And windows for these: beside a high band one
  // that a second command fits into, which runs while the first one's marker does. At most two long commands stand
  // before a tenant that comes back from a synchronisation.
  sched::ArbiterOptions arbiter = [] {
    sched::ArbiterOptions options;
    options.grant = Micros(50);
    options.grant_commands = 64;
    options.window = Micros(240);
    options.high_band_window = Micros(80);
    options.high_grant = Micros(200);
    options.min_commands = 2;
    options.idle_budget = 0.015;
    return options;
  }();
  Nanos spin = Micros(200);         // a held thread stays on its processor so long
  Nanos default_cost = Micros(20);  // prediction for a key never seen
  // While another's stream waits for the host or for a value so long, a command may be what it waits for:
  // held so long, one a tenant passes, and is charged. The next is held twice as long, and so on.
  Nanos deadlock_hold = Millis(20);
  int sm_count = 132;
  std::shared_ptr<Recorder> recorder;  // of what happens; null: none
  std::shared_ptr<Supply> supply;  // of the device time that may be handed out; null: all there is
  // Of what all tenants together may copy, beside their own limits; null: by these alone.
  std::shared_ptr<CopySupply> copy_supply;
};

class Gate {
 public:
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  const std::string& name() const;

  // Waits until the tenant may submit `work` on `stream`. Tenants of high priority wait only for an own
  // cap, and while they are suspended.
  Admission Admit(StreamGate& stream, const Work& work, Time deadline = kNever);
  // The same for nearly every kernel, without a call: lane.h.
  static const Lane& LaneOf(const StreamGate& stream);
  // The pocket from which the calling thread pays there, if it launches alone: pocket.h. Null: it has none (now). After an
  // admission that was timed, and for whoever pays by it; the thread keeps it until it leaves it.
  std::shared_ptr<Pocket> Asked();
  Pocket* PocketHere() const;  // the same at other times
  // Must follow every admitted Admission, after the driver's call. `submitted` false: the driver
  // refused, the charge is taken back. Throws nothing for want of memory: what gets no marker gets one later.
  void Complete(const Admission& admission, bool submitted) {
    if (!submitted || admission.timed) CompleteSlow(admission, submitted);
  }
  // Of a launch that was paid for by Lane::Take().
  static void Refused(StreamGate& stream, uint32_t launch);

  // A marker closes what is open on `stream` (all streams when null) because the host is about to wait
  // for the device; unspent credit goes back. Call before every synchronising driver call.
  void Synchronizing(StreamGate* stream);
  void Synchronized();

  // What is put on `stream` between the two keeps it waiting for the host (a host function): no device time.
  // The first closes what is open there, the second marks where the device goes on. Not for a stream that
  // is being captured.
  void StallBegins(StreamGate* stream);
  void StallEnds(StreamGate* stream) { MarkBehindStall(stream, /*waits_for_host=*/true); }
  // The same for a wait for another stream's event. False, and nothing to end, while the tenant is alone: then
  // whatever the order of its streams, the time is its own.
  bool WaitBegins(StreamGate* stream);
  void WaitEnds(StreamGate* stream) { MarkBehindStall(stream, /*waits_for_host=*/false); }

  // Puts a copy between the host and the device on `stream` by `put`, which calls the driver with some of its parts and
  // says whether it took them. Each waits until the copy limit lets its bytes pass; those of a large one beside others, or of
  // a tenant that is limited, go in pieces. What the driver refuses is not charged, and nothing is put after it; nor is
  // anything after a verdict against it.
  using Put = absl::FunctionRef<bool(uint64_t first, uint64_t count)>;
  Copied Copy(StreamGate& stream, const HostCopy& copy, Put put);
  // Waits until `bytes` may cross in `direction` (token bucket); then accounts them.
  // Suspended tenants' apart, `longest_hold` is the longest wait; they are accounted all the same.
  Verdict AdmitCopy(CopyDirection direction, uint64_t bytes, Time deadline = kNever,
                    Nanos longest_hold = kNoBound);
  // The same for what the tenant's suspension does not hold: what a lease covers, and memory that leaves the device while it
  // is suspended, or comes back.
  Verdict AdmitCopyThoughSuspended(CopyDirection direction, uint64_t bytes);
  // The driver refused a copy that was admitted: its bytes are taken back.
  void CopyRefused(CopyDirection direction, uint64_t bytes);
  // The same in both directions, of what crosses with a launch: of all of it or nothing. `held`: where it was not let pass.
  Verdict AdmitCopies(const CopyBytes& bytes, Time deadline = kNever, Nanos longest_hold = kNoBound,
                      CopyDirection* held = nullptr);
  void CopiesRefused(const CopyBytes& bytes);
  bool LimitsCopies(CopyDirection direction) const;

  // Streams that are being captured must not be marked: the gate asks the driver before each marker.
  absl::StatusOr<StreamGate*> AddStream(driver::Stream stream, const StreamPlace& place = {});
  // Before the stream is destroyed. What is in flight there is measured all the same: a marker outlives its stream.
  void RemoveStream(StreamGate* stream);
  // Before a context is destroyed, when its streams have been removed: what is over is measured. The engine's own (a
  // primary context that is reset) may come to life again: then it measures again.
  void ContextEnds(driver::Context context);
  // And after the driver's call: what was not over has had the device until now. Not of a tenant that is removed.
  void ContextEnded(driver::Context context);

  // A permit for code that launches on its own. ResourceExhausted/DeadlineExceeded/Cancelled as the
  // message says. Not nested here: the caller keeps track of nesting.
  absl::StatusOr<uint64_t> AcquireLease(const LeaseRequest& request);
  // Leases that wait look whether they have been called off; these end, Cancelled.
  void LookAtCalledOff();
  // The gang of a lease that was held back is whole: it counts from here. What an exclusive one has kept from the
  // others until now is charged; one that is released before has cost nothing else.
  void BeginLease(uint64_t lease);
  struct LeaseResult {
    Nanos held{0};         // host time between acquire (of a gang's: BeginLease()) and release
    bool overrun = false;  // longer than the maximum; the excess is debt
  };
  // Records the closing markers; from any thread. An id that is not held answers zeroes.
  LeaseResult ReleaseLease(uint64_t lease);
  // What is launched on these streams from now on is the lease's as well. Of one without streams the time is charged that it
  // is held, and stays so. May throw bad_alloc, then nothing has changed.
  void ExtendLease(uint64_t lease, const std::vector<StreamGate*>& streams);
  // What its release would say now.
  LeaseResult LookAtLease(uint64_t lease);

  void Suspend();  // holds everything at the gate; waiters stay
  void Resume();
  void Update(const TenantOptions& options);
  GateStats stats() const;
  absl::Status health() const;  // as the engine's, of the tenant's own context if it has one
  sched::Arbiter::TenantView view() const;

 private:
  friend class Engine;
  explicit Gate(TenantState* state) : state_(state) {}
  Verdict PassCopy(CopyDirection direction, uint64_t bytes, Time deadline, Nanos longest_hold,
                   bool though_suspended);
  Admission AdmitUncommon(StreamGate& stream, const Work& work, Time deadline);
  Admission AdmitSlow(StreamGate& stream, const Work& work, bool calibrates, Time deadline);
  void CompleteSlow(const Admission& admission, bool submitted);
  void Entered(const Admission& admission);
  void MarkBehindStall(StreamGate* stream, bool waits_for_host);

  // The next `count` parts of a copy. False: nothing more is to be put.
  bool PutPart(const HostCopy& copy, uint64_t count, Put put, Copied* copied);
  // copy_pieces.cc
  // Beside other tenants of the same or a higher priority a copy of so many bytes goes in pieces of at most this many, each after
  // AwaitCopyRoom() and told of by CopyGiven() unless it was waited for: who copies as well is not kept waiting by all of
  // it. 0: as it is, nobody else is here, or it is small.
  uint64_t CopyPiece(uint64_t bytes) const;
  static constexpr uint64_t kLeastSharedCopy = uint64_t{256} << 10;
  // Waits until few enough of the tenant's own are in flight in this direction. False: they do not go on for long, so that
  // they may be waiting for the caller; the rest goes as it is.
  bool AwaitCopyRoom(CopyDirection direction, uint64_t bytes, uint64_t piece);
  // So many bytes were put on `stream`, for which nobody waited. Calls the driver.
  void CopyGiven(CopyDirection direction, uint64_t bytes, StreamGate& stream);

  TenantState* const state_;  // owned by the engine, which owns this gate too
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(driver::Driver& driver,
                                                        driver::Context context,
                                                        const EngineOptions& options);
  // Stops the reconciler. Every Gate must have been removed.
  ~Engine();

  // `context`: one of its own, for streams that do not say theirs; null: the engine's. Gate::ContextEnds() before
  // its end. `parent`: a tenant of this engine whose share and copies' rates bound it as well, together with its siblings;
  // it is removed after them.
  absl::StatusOr<Gate*> AddTenant(std::string name, const TenantOptions& options,
                                  driver::Context context = nullptr, const Gate* parent = nullptr);
  // Wakes its waiters with kSuspended, forgets its work. No call of the gate may be running after.
  void RemoveTenant(Gate* gate);

  // What the driver answered to a marker when the engine's context was lost; OK as long as it is not.
  absl::Status health() const;

  // Of all tenants, those that are gone as well.
  struct Totals {
    uint64_t launches = 0, waits = 0;
    Nanos throttled{0};
  };
  Totals totals() const;

  // The supply of time, or one of bytes, has changed its mind: those who wait are looked at again.
  void Supplied();

  // Has `watchdog` told of what happens from now on; null: nobody. False: another one is.
  bool Watch(std::shared_ptr<Watchdog> watchdog);

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_ENGINE_H_
