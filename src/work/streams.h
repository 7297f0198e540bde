// SPDX-License-Identifier: Apache-2.0
// The streams that programs use, each bound to the gate of whoever launches there when it is seen first.
//
//   const Streams::Adopted stream = streams.Find(payer, handle);
//   if (stream.gate == nullptr) ...    // not held: forward
//   stream.gate->Admit(*stream.stream, ...)
//
// A stream that several identities use has an entry for each. The handles of the legacy stream and of the
// per-thread one mean another stream in every context, the latter in every thread too.
//
// What a thread used last it finds without a lock: a comparison a field, and of the two special handles the
// driver's word on which context is current (driver/current_context.h). All else is behind a lock that is held across no
// call of the driver.
//
// Threading: thread-safe.
#ifndef GPUSHARE_WORK_STREAMS_H_
#define GPUSHARE_WORK_STREAMS_H_

#include <cuda.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/sync.h"
#include "driver/current_context.h"
#include "driver/driver.h"
#include "driver/table.h"
#include "gate/engine.h"
#include "gate/habits.h"
#include "gate/lane.h"
#include "gate/pocket.h"
#include "work/outermost.h"
#include "work/payer.h"
#include "work/recent.h"

namespace gpushare::work {

class Streams {
 public:
  struct Shared;
  struct Adopted {
    gate::Gate* gate = nullptr;  // null: not held
    gate::StreamGate* stream = nullptr;
    CUdevice device = 0;
    Shared* shared = nullptr;  // of a stream that several identities use
    bool refused = false;      // nothing may go there
  };

  explicit Streams(const driver::Driver& driver);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Asks the driver for a stream that is new here. A handle of which the driver knows nothing is not held.
  Adopted Find(const Payer& payer, CUstream handle) {
    CUcontext context = nullptr;
    if (IsSpecial(handle) && driver_.CtxGetCurrent(&context) != CUDA_SUCCESS) return {};
    const Seen* const seen = FindSeen(payer, handle, context);
    if (seen != nullptr && !GateCame(payer, seen->adopted)) [[likely]]
      return seen->adopted;
    return FindSlow(payer, handle, context);
  }

  // The same for launches, which nearly all go where this thread launched before: what they need there and no more.
  // Null: not found so easily, or there is more to be done than Lane::Take(): see Find() and Turn().
  struct alignas(64) Known {
    CUstream handle = nullptr;            // as KnownAs() has it
    gate::Habit* last = &gate::no_habit;  // what it launched here last, of `habits`, or nobody's
    gate::Pocket* pocket = &gate::no_pocket;  // the thread's
    gate::Lane lane;  // what nearly every launch needs is one line, up to here
    gate::StreamGate* stream = nullptr;
    const Gates* gates = nullptr;
    CUcontext context = NoContext();  // of special handles
    gate::Gate* gate = nullptr;
    uint64_t epoch = 0;  // that of its thread's mark
    gate::Habits* habits =
        nullptr;  // null: none is kept, as of whoever has not asked for a grant yet
  };
  // Nor any that is current.
  static CUcontext NoContext() { return reinterpret_cast<CUcontext>(~uintptr_t{0}); }
  // By which name a stream is known: a special handle by another one, so that who finds one by its own knows that it is of
  // no context but the stream's.
  static CUstream KnownAs(CUstream handle) {
    return IsSpecial(handle)
               ? reinterpret_cast<CUstream>(reinterpret_cast<uintptr_t>(handle) | kSpecial)
               : handle;
  }
  // `mark`: the thread's. `gates`: null where there is one identity only.
  [[gnu::always_inline]] Known* FindKnown(ThreadMark* mark, const Gates* gates,
                                          CUstream handle) const {
    // Nobody's is of no epoch.
    if (mark->epoch != known_epoch_.load(std::memory_order_acquire)) [[unlikely]]
      return nullptr;
    Known* const known = static_cast<SeenByThread*>(mark)->known.FindIf(KnownAs(handle));
    if (known == nullptr || (gates != nullptr && known->gates != gates)) [[unlikely]]
      return nullptr;
    if (IsSpecial(handle)) [[unlikely]] {
      CUcontext current = nullptr;
      if (driver::CurrentContext::Get(driver_, &current) != CUDA_SUCCESS ||
          current != known->context) {
        return nullptr;
      }
    }
    return known;
  }
  const std::atomic<uint64_t>& known_epoch() const { return known_epoch_; }
  // A launch there has asked for a grant: the thread may pay for the next from a pocket of its own.
  void Asked(const Adopted& stream, CUstream handle);
  // In a forked child: no launch goes the short way any more.
  void KnowNothing() { known_epoch_.store(kOfNoEntry, std::memory_order_relaxed); }

  // Work is about to go where another identity's went last: markers tell theirs apart.
  void Turn(const Adopted& stream) {
    if (stream.shared != nullptr) [[unlikely]]
      TurnSlow(stream);
  }

  // What is about to end: what it has in flight gets a last marker. Or what ended: that is charged as predicted. Handles
  // of streams that end may come back for others.
  void Forget(CUstream handle);
  // A context's ending is of two parts, around the call of the driver that ends it, or refuses to.
  class ContextEnd {
   public:
    // `more`: a gate whose engine's context it may be, though it had no stream there; null: none.
    ContextEnd(Streams& streams, CUcontext context, gate::Gate* more);
    ~ContextEnd();
    ContextEnd(const ContextEnd&) = delete;
    ContextEnd& operator=(const ContextEnd&) = delete;

   private:
    Streams& streams_;
    const CUcontext context_;
  };
  // Threads that something is known of, of all such objects.
  static int threads() { return threads_.load(std::memory_order_relaxed); }
  void ForgetThread();  // the calling one's per-thread streams
  void ForgetGate(const gate::Gate* gate);

  // Marks what is open on the stream, whosever it is.
  void Close(CUstream handle);

  // While any stream captures the driver is asked of each.
  void CaptureBegan(CUstream handle);
  void CaptureMayHaveEnded(CUstream handle);
  bool AnyCaptures() const { return captures_.load(std::memory_order_relaxed) != 0; }
  bool Capturing(CUstream handle) const { return AnyCaptures() && CapturingSlow(handle); }

  size_t size() {
    const base::MutexLock lock(&mutex_);
    return entries_.size();
  }

  static bool IsSpecial(CUstream handle) { return reinterpret_cast<uintptr_t>(handle) <= 2; }

 private:
  struct Key {  // gates last: the entries of a stream stand together
    CUstream handle;
    CUcontext context;   // of special handles
    const void* thread;  // of the per-thread stream
    const Gates* gates;
    auto operator<=>(const Key&) const =
        default;  // NOLINT(modernize-use-nullptr): of what is generated
  };
  struct Entry {
    Adopted adopted;
    CUcontext context;
    bool shares = false;  // the other's place at the gate
  };
  // Handles of special streams mean another one in every context, and in every thread.
  struct Captured {
    CUstream handle;
    CUcontext context;  // null: not known
    const void* thread;
    auto operator<=>(const Captured&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // What this thread found last.
  struct Seen {
    uint64_t epoch = 0;
    CUstream handle = nullptr;
    const Gates* gates = nullptr;
    CUcontext context = nullptr;
    Adopted adopted;
  };
  // A thread's own. Behind one pointer: the loader has little room for thread-local storage of a library that comes late.
  struct SeenByThread : ThreadMark {
    SeenByThread() { threads_.fetch_add(1, std::memory_order_relaxed); }
    ~SeenByThread() {
      for (const auto& pocket : pockets) pocket->Leave();
      threads_.fetch_sub(1, std::memory_order_relaxed);
    }
    SeenByThread(const SeenByThread&) = delete;
    SeenByThread& operator=(const SeenByThread&) = delete;

    // All of the mark's epoch. Of two neighbours the addresses differ in one bit.
    alignas(2 * sizeof(Known)) Recent<Known> known;
    Recent<Seen> seen;
    std::set<Streams*> used;  // which have a stream of the thread's own
    // By gate, as long as no gate of its object went: an address may be another's then. Of more than a few the one that is
    // the oldest makes room.
    struct OfGate {
      const gate::Gate* gate = nullptr;
      uint64_t gates_epoch = 0;
      std::unique_ptr<gate::Habits> habits;
    };
    std::array<OfGate, 4> habits;
    size_t oldest_habits = 0;
    // Which it got from gates that may be gone; left with the thread.
    std::vector<std::shared_ptr<gate::Pocket>> pockets;
    pid_t process = 0;
  };
  static inline std::atomic<int> threads_{0};
  static SeenByThread* Here() {  // null: the thread has none
    ThreadMark* const mark = Outermost::Mark();
    return mark == &nobodys_mark ? nullptr : static_cast<SeenByThread*>(mark);
  }
  static SeenByThread* MakeHere();
  // What was known at another epoch goes.
  static void Know(SeenByThread& here, const Known& known);
  // The thread is to leave it when it ends. False: there is no memory for that.
  static bool Keep(SeenByThread& here, const std::shared_ptr<gate::Pocket>& pocket) noexcept;
  // Of the calling thread there; null: none, or there is no memory for it.
  gate::Habits* FindHabits(SeenByThread& here, const gate::Gate* gate) const;
  gate::Habits* MakeHabits(SeenByThread& here, const gate::Gate* gate) const noexcept;
  const Seen* FindSeen(const Payer& payer, CUstream handle, CUcontext context) const {
    SeenByThread* const here = Here();
    if (here == nullptr) [[unlikely]]
      return nullptr;
    const Seen& seen = here->seen.Find(handle);
    // Of no two objects, nor two states of one, are epochs the same.
    if (seen.epoch == epoch_.load(std::memory_order_acquire) && seen.handle == handle &&
        seen.gates == payer.gates && seen.context == context) [[likely]] {
      return &seen;
    }
    return nullptr;
  }

  // A stream that was not held: its identity has a gate by now.
  static bool GateCame(const Payer& payer, const Adopted& adopted) {
    return adopted.gate == nullptr && adopted.device >= 0 && adopted.device < Gates::kDevices &&
           payer.gates->on[adopted.device].load(std::memory_order_relaxed) != nullptr;
  }
  Adopted FindSlow(const Payer& payer, CUstream handle, CUcontext current);
  Adopted Adopt(const Payer& payer, const Key& key, Entry* entry);
  bool CapturingSlow(CUstream handle) const;
  void TurnSlow(const Adopted& stream);
  void Share(const Key& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(const Adopted& gone);
  template <typename Which>
  void ForgetIf(const Which& which);
  void EndAll(const std::vector<Entry>& gone);  // these are in no list any more
  template <typename Which>
  void Ended(const Which& which);
  Captured CaptureOf(CUstream handle) const;
  template <typename Which>
  void EndCaptures(const Which& which) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void CheckLayout();
  class ThreadEnd;  // forgets a thread's streams when it ends
  void NewEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr uint64_t kOfNoEntry = ~uint64_t{0};
  static constexpr uintptr_t kSpecial = uintptr_t{1} << 63;  // of no address in a program

  const driver::Table& driver_;
  base::Clock& clock_;
  std::atomic<uint64_t> epoch_;
  std::atomic<uint64_t> gates_epoch_;  // of no two objects the same either
  std::atomic<uint64_t> known_epoch_;  // the same, but while something captures that of no entry
  std::atomic<uint32_t> captures_{0};
  std::atomic<int> ending_threads_{0};
  mutable base::Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // Whose work went to which context: streams that are gone may have left some in flight.
  std::set<std::pair<CUcontext, gate::Gate*>> places_ ABSL_GUARDED_BY(mutex_);
  // Those whose context is being ended.
  std::multiset<std::pair<CUcontext, gate::Gate*>> ending_ ABSL_GUARDED_BY(mutex_);
  std::deque<Shared> shared_
      ABSL_GUARDED_BY(mutex_);  // also of streams that are gone: calls may be in them
  std::set<Captured> capturing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_STREAMS_H_
