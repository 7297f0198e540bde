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
// A launch that has credit spends it with one atomic operation and takes no lock. Everything else (asking the
// arbiter, recording a marker, waiting) is the slow path. One reconciler thread per engine asks the driver which
// markers have completed, corrects the charge of each tenant by measured minus predicted time, and wakes the
// waiters that the arbiter admits. The launching threads record the markers; when they fall silent, the reconciler does.
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
// One stream of one tenant, as the gate sees it; owned by its Gate, at a stable address.
class StreamGate;
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
  // SMs that it can hold ÷ SMs of the device; above 1 it runs in waves. 0: it holds no SMs and is bound by the
  // memory (sets, copies within the device).
  float footprint = 1;
  // For a graph: the number of commands that it runs one after the other; 0: not known. Commands of other tenants take
  // turns with these.
  uint32_t parts = 0;
  // Another key, whose cost is used until the cost of `key` is measured: that of a graph before it was changed. 0: none.
  uint64_t like = 0;
  // For a graph: the store of the kernels that it is made of; null: they are not known. See gate/graph_kernels.h.
  const GraphKernels* kernels = nullptr;
  const void* executable = nullptr;
  // Other work may be waiting for this. After being held for this long it is let through and charged, unless its tenant is
  // suspended.
  Nanos longest_hold = kNoBound;
};
// This is on the launch path. The numbers of the shape lie side by side, each with as many bits as the driver allows (31, 16
// and 16; 11, 11, 7 and the rest for the shared bytes), so that three multiplications are enough, which do not wait for one
// another. No parameter is shifted by half a word or more: gcc would then read a whole word from the stack where only half
// of it was just stored, and the load would wait for that store.
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
  kEnded,        // the supply has ended because the process was evicted, see kEvicted
  kInterrupted,  // the calling thread was asked and wants to stop waiting: base/interrupt.h
  kCalledOff,    // LeaseRequest::called_off
};
// The message for kEnded, behind the tenant's name.
inline constexpr char kEvicted[] =
    "the operator has evicted this process, it gets no more of the GPU";
// The message for kInterrupted.
inline constexpr char kInterruptedText[] =
    "the wait for its turn was interrupted, as the calling thread asked for";
// Fits two registers.
struct Admission {
  StreamGate* stream = nullptr;
  uint32_t launch = 0;  // its number among the tenant's launches
  Verdict verdict = Verdict::kAdmitted;
  bool timed = false;  // it took the slow path, so Complete() reads the clock
  bool close = false;  // it is exclusive or of unknown cost, so Complete() marks its end
  // Whether the caller's call must fail. With the other verdicts but kAdmitted, no tenant is left to pay for the work.
  bool refused() const { return verdict == Verdict::kEnded || verdict == Verdict::kInterrupted; }
};

// How far a copy came.
struct Copied {
  uint64_t parts = 0;  // parts that were put on its stream
  // The verdict on the next part. kAdmitted with parts left: the driver refused them.
  Verdict verdict = Verdict::kAdmitted;
};

// Histogram of waits at the gate: bucket i counts waits in [2^i, 2^(i+1)) us, the first bucket also shorter ones.
inline constexpr int kWaitBuckets = 24;

struct GateStats {
  uint64_t launches = 0;  // kernels and graphs admitted
  uint64_t graph_launches = 0;
  uint64_t waits = 0;  // admissions that had to wait
  Nanos throttled{0};  // host time spent waiting
  std::array<uint64_t, kWaitBuckets> wait_histogram{};
  uint64_t markers = 0;                  // events recorded for this tenant
  uint64_t markers_failed = 0;           // refused by the driver; that work is settled as predicted
  std::string driver_error;              // the latest refusal; empty if there was none
  Nanos predicted{0};                    // device time charged by prediction (settled work)
  Nanos measured{0};                     // device time the same work was measured to take
  uint64_t held_past_bound = 0;          // commands and copies let through at the bound of a hold
  std::array<uint64_t, 2> copy_bytes{};  // by CopyDirection
  std::array<Nanos, 2> copy_throttled{};
  // The `q` quantile of the waits, `q` in [0, 1]: the upper edge of its bucket.
  Nanos WaitQuantile(double q) const;
};

inline constexpr Nanos kLongestHint = Seconds(60);

struct LeaseRequest {
  Nanos hint = Micros(100);    // expected device time, at most kLongestHint
  Nanos maximum = Seconds(1);  // host time; a lease held for longer is reported as overrun
  // No command of lower or equal priority runs while it is held, up to `maximum`.
  bool exclusive = false;
  Time deadline = kNever;
  std::vector<StreamGate*> streams;  // where the work will be launched; measured by markers
  // The lease belongs to a gang that is not complete yet. An exclusive one holds the device until BeginLease(), however long
  // that takes.
  bool held_back = false;
  // Becomes true when the lease is not wanted any more. Whoever sets it then calls Gate::LookAtCalledOff(), so that waiters
  // look. Null: the lease cannot be called off.
  const std::atomic<bool>* called_off = nullptr;
};

// What a stream's handle means.
struct StreamPlace {
  driver::Context context = nullptr;  // of the stream; null: the engine's
  // The handle means another stream in another context (the legacy stream).
  bool by_context = false;
  // The handle also means another stream in every other thread, so only the adding thread can mark it.
  bool by_thread = false;
  // Its kernels are launched at the CUDA priority that Lane::Level() gives, up to this many above the stream's own.
  int levels = 0;
};

struct TenantOptions {
  sched::TenantLimits limits;
  double h2d_bytes_per_s = 0, d2h_bytes_per_s = 0;  // 0: no limit
};

struct EngineOptions {
  // The arbiter's own defaults, but with larger grants, because the replay can attribute batches of many commands and so a
  // marker (a microsecond of its stream) can close more work. The windows fit these grants: beside a high band a second
  // command fits in, which runs while the first one's marker does. At most two long commands are ahead of a tenant that comes
  // back from a synchronisation.
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
  Nanos spin = Micros(200);         // how long a held thread spins before it sleeps
  Nanos default_cost = Micros(20);  // prediction for a key never seen
  // If a stream of another tenant has waited for the host or for a value for this long, it may be waiting for a command that
  // is held. So one command a tenant that has been held for this long is let through and charged. The next one is held twice
  // as long, and so on.
  Nanos deadlock_hold = Millis(20);
  // The driver's call for a launch returns when the kernel has ended (CUDA_LAUNCH_BLOCKING).
  bool blocking_launches = false;
  int sm_count = 132;
  std::shared_ptr<Recorder> recorder;  // the flight recorder; null: the engine makes its own
  std::shared_ptr<Supply> supply;      // of device time to hand out; null: the whole device
  // Limits what all tenants together may copy, in addition to their own limits; null: only these limit copies.
  std::shared_ptr<CopySupply> copy_supply;
};

class Gate {
 public:
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  const std::string& name() const;

  // Waits until the tenant may submit `work` on `stream`. Tenants of high priority wait only for their own
  // cap and while they are suspended.
  Admission Admit(StreamGate& stream, const Work& work, Time deadline = kNever);
  // The same for nearly every kernel, without a call: lane.h.
  static const Lane& LaneOf(const StreamGate& stream);
  // The pocket from which the calling thread pays for a Lane, if it alone launches for the tenant (pocket.h). Null: it has none
  // now. Call it after a timed admission, if the thread pays from pockets. The thread keeps the pocket until Pocket::Leave().
  std::shared_ptr<Pocket> Asked();
  Pocket* PocketHere() const;  // the same at other times
  // Must follow every admitted Admission, after the driver's call. `submitted` false: the driver
  // refused, so the charge is taken back. Never throws for lack of memory: a launch without a marker gets one later.
  void Complete(const Admission& admission, bool submitted) {
    if (!submitted || admission.timed) CompleteSlow(admission, submitted);
  }
  // The driver refused a launch that was paid for by Lane::Take().
  static void Refused(StreamGate& stream, uint32_t launch);

  // Closes the open launches on `stream` (null: on all streams) with a marker, because the host is about to wait
  // for the device. Unspent credit goes back. Call it before every synchronising driver call.
  void Synchronizing(StreamGate* stream);
  void Synchronized();

  // Surround work on `stream` that makes it wait for the host (a host function), which is not device time. StallBegins()
  // closes the open launches there, StallEnds() marks where the device goes on. Not for a stream that is being captured.
  void StallBegins(StreamGate* stream);
  void StallEnds(StreamGate* stream) { MarkBehindStall(stream, /*waits_for_host=*/true); }
  // The same for a wait for another stream's event. False while the tenant is alone; then WaitEnds() is not called. The
  // time is the tenant's own then, whatever the order of its streams.
  bool WaitBegins(StreamGate* stream);
  void WaitEnds(StreamGate* stream) { MarkBehindStall(stream, /*waits_for_host=*/false); }

  // Puts a copy between the host and the device on `stream` through `put`, which calls the driver with some parts of the
  // copy and returns whether it took them. Each call waits until the copy limit lets its bytes pass. A large copy beside
  // other tenants, or of a limited tenant, goes in pieces. What the driver refuses is not charged. After a refusal by the
  // driver or a verdict other than kAdmitted, nothing more is put.
  using Put = absl::FunctionRef<bool(uint64_t first, uint64_t count)>;
  Copied Copy(StreamGate& stream, const HostCopy& copy, Put put);
  // Waits until `bytes` may cross in `direction` (token bucket), then charges them. The wait ends after `longest_hold`,
  // unless the tenant is suspended; the bytes are charged all the same.
  Verdict AdmitCopy(CopyDirection direction, uint64_t bytes, Time deadline = kNever,
                    Nanos longest_hold = kNoBound);
  // The same for copies that pass while the tenant is suspended: those that a lease covers, and of memory that leaves the
  // device or comes back because of the suspension.
  Verdict AdmitCopyThoughSuspended(CopyDirection direction, uint64_t bytes);
  // The driver refused a copy that was admitted: its bytes are taken back.
  void CopyRefused(CopyDirection direction, uint64_t bytes);
  // AdmitCopy() in both directions for what a launch copies: charges all of it or nothing. `held` gets the direction that was
  // not admitted.
  // `though_suspended`: as AdmitCopyThoughSuspended().
  Verdict AdmitCopies(const CopyBytes& bytes, Time deadline = kNever, Nanos longest_hold = kNoBound,
                      CopyDirection* held = nullptr, bool though_suspended = false);
  void CopiesRefused(const CopyBytes& bytes);
  bool LimitsCopies(CopyDirection direction) const;

  // Streams that are being captured must not be marked: the gate asks the driver before each marker.
  absl::StatusOr<StreamGate*> AddStream(driver::Stream stream, const StreamPlace& place = {});
  // Call it before the stream is destroyed. What is in flight there is still measured, since a marker outlives its stream.
  void RemoveStream(StreamGate* stream);
  // Call it before a context is destroyed, after its streams were removed. Measures what is over. The engine's own context (a
  // primary context that is reset) may come back to life; then the engine measures again.
  void ContextEnds(driver::Context context);
  // Call it after the driver's call. Work that was not over is charged until now. Not for a tenant that is removed.
  void ContextEnded(driver::Context context);

  // A permit for code that launches on its own. ResourceExhausted, DeadlineExceeded or Cancelled: see the
  // message. The caller keeps track of nested leases.
  absl::StatusOr<uint64_t> AcquireLease(const LeaseRequest& request);
  // Makes waiting AcquireLease() calls look at their `called_off`. Those called off return Cancelled.
  void LookAtCalledOff();
  // The gang of a held-back lease is complete, and the lease counts from now on. The time for which an exclusive lease has
  // kept others off the device until now is charged. A lease that is released before this call costs nothing else.
  void BeginLease(uint64_t lease);
  struct LeaseResult {
    Nanos held{0};         // host time from acquire (for a gang: BeginLease()) to release
    bool overrun = false;  // held for longer than the maximum; the excess is debt
  };
  // Records the closing markers. Any thread may call it. Returns zeroes for an id that is not held.
  LeaseResult ReleaseLease(uint64_t lease);
  // What is launched on these streams from now on belongs to the lease too. A lease without streams is charged for the time
  // that it is held, and this does not change that. If it throws bad_alloc, nothing has changed.
  void ExtendLease(uint64_t lease, const std::vector<StreamGate*>& streams);
  // What ReleaseLease() would return now.
  LeaseResult LookAtLease(uint64_t lease);

  void Suspend();  // holds all work at the gate; waiters go on waiting
  void Resume();
  void Update(const TenantOptions& options);
  GateStats stats() const;
  absl::Status health() const;  // as Engine::health(), for the tenant's own context if it has one
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

  // Puts the next `count` parts of a copy. False: nothing more is to be put.
  bool PutPart(const HostCopy& copy, uint64_t count, Put put, Copied* copied);
  // copy_pieces.cc
  // The greatest size of pieces, in bytes, in which a copy of `bytes` goes beside other tenants of the same or a higher
  // priority, so that their copies do not wait for all of it. Each piece goes after AwaitCopyRoom() and, unless it was waited
  // for, is followed by CopyGiven(). 0: the copy goes whole, because it is small or no such tenant is here.
  uint64_t CopyPiece(CopyDirection direction, uint64_t bytes);
  static constexpr uint64_t kLeastSharedCopy = uint64_t{256} << 10;
  // Waits until few enough of the tenant's own pieces are in flight in this direction. False: they have made no progress for
  // long and may be waiting for the caller, so the rest of the copy goes whole. Where other processes copy it also waits for
  // this one's part of the link. `linked`: the supply let the bytes go, and LinkDone() follows.
  bool AwaitCopyRoom(CopyDirection direction, uint64_t bytes, uint64_t piece, bool* linked);
  // `bytes` were put on `stream` and not waited for. Calls the driver. LinkDone() follows by itself.
  void CopyGiven(CopyDirection direction, uint64_t bytes, StreamGate& stream, bool linked);
  bool SharesLink(CopyDirection direction) const;
  bool CopiesInFlight(CopyDirection direction) const;
  bool CountInFlight(CopyDirection direction, uint64_t bytes, StreamGate& stream, bool linked);

  TenantState* const state_;  // owned by the engine, which owns this gate too
};

class Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(driver::Driver& driver,
                                                        driver::Context context,
                                                        const EngineOptions& options);
  // Stops the reconciler. Every Gate must have been removed before.
  ~Engine();

  // `context` is the tenant's own context, used for streams without a context of their own; null: the engine's. Call
  // Gate::ContextEnds() before it ends. `parent` is a tenant of this engine whose share and copy rates bound the sum of its
  // children; it must be removed after them.
  absl::StatusOr<Gate*> AddTenant(std::string name, const TenantOptions& options,
                                  driver::Context context = nullptr, const Gate* parent = nullptr);
  // Wakes the gate's waiters with kSuspended and forgets its work. No call of the gate may be running afterwards.
  void RemoveTenant(Gate* gate);

  // The driver's answer to a marker when the engine's context was lost; OK while it is not lost.
  absl::Status health() const;

  // Sums over all tenants, including removed ones.
  struct Totals {
    uint64_t launches = 0, waits = 0;
    Nanos throttled{0};
  };
  Totals totals() const;

  // The answer of the supply of device time or of bytes has changed, so all waiters are looked at again.
  void Supplied();

  // Reports incidents to `watchdog` from now on; null: to none. False: another watchdog is set already.
  bool Watch(std::shared_ptr<Watchdog> watchdog);

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_ENGINE_H_
