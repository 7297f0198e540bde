// SPDX-License-Identifier: Apache-2.0
// The streams that programs use. Each is bound to the gate of the identity that launches there, when it is first seen.
//
//   const Streams::Adopted stream = streams.Find(payer, handle);
//   if (stream.gate == nullptr) ...    // not held: forward the call
//   stream.gate->Admit(*stream.stream, ...)
//
// A stream that several identities use has an entry for each of them. The special handles of the legacy stream and the
// per-thread stream mean a different stream in every context, the latter in every thread too.
//
// A thread finds the streams that it used last without a lock: it compares each field, and for special handles it needs the
// current context (driver/current_context.h). Everything else is behind a lock that is never held across a call of the driver.
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
    Shared* shared = nullptr;  // for a stream that several identities use
    bool refused = false;      // no work may go there
  };

  explicit Streams(const driver::Driver& driver);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Asks the driver about a stream that is new here. Work on a handle that the driver does not know is not held.
  Adopted Find(const Payer& payer, CUstream handle) {
    CUcontext context = nullptr;
    if (IsSpecial(handle) && driver_.CtxGetCurrent(&context) != CUDA_SUCCESS) return {};
    const Seen* const seen = FindSeen(payer, handle, context);
    if (seen != nullptr && !GateCame(payer, seen->adopted)) [[likely]]
      return seen->adopted;
    return FindSlow(payer, handle, context);
  }

  // The same for the fast path of launches, which nearly all go to a stream that this thread used before: only the data that a
  // launch needs. There is no such entry for a stream that needs more than Lane::Take(); use Find() and Turn() then.
  struct alignas(64) Known {
    CUstream handle = nullptr;            // as KnownAs() returns it
    gate::Habit* last = &gate::no_habit;  // the thread's last launch here, in `habits`, or no_habit
    gate::Pocket* pocket = &gate::no_pocket;  // the thread's
    gate::Lane lane;  // everything up to here is in one cache line, for nearly every launch
    gate::StreamGate* stream = nullptr;
    const Gates* gates = nullptr;
    CUcontext context = NoContext();  // for special handles
    gate::Gate* gate = nullptr;
    uint64_t epoch = 0;  // that of its thread's mark
    gate::Habits* habits =
        nullptr;  // null: none are kept, for instance before the first request for a grant
  };
  // A value that no context has, not even the null one.
  static CUcontext NoContext() { return reinterpret_cast<CUcontext>(~uintptr_t{0}); }
  // The key of a handle in `known`. Special handles get a different value, so that a match with an unchanged handle means a
  // stream that does not depend on the current context.
  static CUstream KnownAs(CUstream handle) {
    return IsSpecial(handle)
               ? reinterpret_cast<CUstream>(reinterpret_cast<uintptr_t>(handle) | kSpecial)
               : handle;
  }
  // `mark` is the thread's. `gates` is null if there is only one identity.
  [[gnu::always_inline]] Known* FindKnown(ThreadMark* mark, const Gates* gates,
                                          CUstream handle) const {
    // nobodys_mark has an epoch that never matches.
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
  // Reports that a launch on the stream has asked for a grant: the thread may pay for the next one from its own pocket.
  void Asked(const Adopted& stream, CUstream handle);
  // Call it in a forked child: no launch takes the fast path any more.
  void KnowNothing() { known_epoch_.store(kOfNoEntry, std::memory_order_relaxed); }

  // Call it before work goes to the stream. If the last work there was another identity's, markers separate the two.
  void Turn(const Adopted& stream) {
    if (stream.shared != nullptr) [[unlikely]]
      TurnSlow(stream);
  }

  // Forgets a stream, whose handle may be reused. Before the stream ends, its work in flight gets a last marker. After its end,
  // that work is charged as predicted.
  void Forget(CUstream handle);
  // Spans the driver's call that ends a context, or refuses to.
  class ContextEnd {
   public:
    // `more`: a gate whose engine may use the context although it has no stream there; may be null.
    ContextEnd(Streams& streams, CUcontext context, gate::Gate* more);
    ~ContextEnd();
    ContextEnd(const ContextEnd&) = delete;
    ContextEnd& operator=(const ContextEnd&) = delete;

   private:
    Streams& streams_;
    const CUcontext context_;
  };
  // The number of threads with data of their own, over all Streams objects.
  static int threads() { return threads_.load(std::memory_order_relaxed); }
  void ForgetThread();  // forgets the calling thread's per-thread streams
  void ForgetGate(const gate::Gate* gate);

  // Marks the end of the open work on the stream, for all identities.
  void Close(CUstream handle);

  // While any stream captures, the driver is asked about each stream.
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
  struct Key {  // `gates` is last, so that the entries of a stream are adjacent
    CUstream handle;
    CUcontext context;   // for special handles
    const void* thread;  // for the per-thread stream
    const Gates* gates;
    auto operator<=>(const Key&) const =
        default;  // NOLINT(modernize-use-nullptr): of what is generated
  };
  struct Entry {
    Adopted adopted;
    CUcontext context;
    bool shares = false;  // uses the StreamGate of another stream
  };
  // A stream that captures. A special handle means a different stream in every context, and in every thread.
  struct Captured {
    CUstream handle;
    CUcontext context;  // null: unknown
    const void* thread;
    auto operator<=>(const Captured&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  // A stream that the thread found lately.
  struct Seen {
    uint64_t epoch = 0;
    CUstream handle = nullptr;
    const Gates* gates = nullptr;
    CUcontext context = nullptr;
    Adopted adopted;
  };
  // A thread's data, behind one pointer: the loader has little thread-local storage for a library that is loaded late.
  struct SeenByThread : ThreadMark {
    SeenByThread() { threads_.fetch_add(1, std::memory_order_relaxed); }
    ~SeenByThread() {
      for (const auto& pocket : pockets) pocket->Leave();
      threads_.fetch_sub(1, std::memory_order_relaxed);
    }
    SeenByThread(const SeenByThread&) = delete;
    SeenByThread& operator=(const SeenByThread&) = delete;

    // All entries are of the mark's epoch.
    alignas(sizeof(Known)) Recent<Known> known;
    Recent<Seen> seen;
    std::set<Streams*> used;  // those that have a per-thread stream of this thread
    // Habits by gate. They are valid until any gate of the Streams object is removed, since its address may be reused. If there
    // are too many, the oldest is replaced.
    struct OfGate {
      const gate::Gate* gate = nullptr;
      uint64_t gates_epoch = 0;
      std::unique_ptr<gate::Habits> habits;
    };
    std::array<OfGate, 4> habits;
    size_t oldest_habits = 0;
    // The thread's pockets, from gates that may be gone. They are left when the thread ends.
    std::vector<std::shared_ptr<gate::Pocket>> pockets;
    pid_t process = 0;
  };
  static inline std::atomic<int> threads_{0};
  static SeenByThread* Here() {  // null if the thread has none
    ThreadMark* const mark = Outermost::Mark();
    return mark == &nobodys_mark ? nullptr : static_cast<SeenByThread*>(mark);
  }
  static SeenByThread* MakeHere();
  // Adds `known`, and drops entries of other epochs.
  static void Know(SeenByThread& here, const Known& known);
  // Keeps the pocket, so that the thread leaves it when it ends. False if memory runs out.
  static bool Keep(SeenByThread& here, const std::shared_ptr<gate::Pocket>& pocket) noexcept;
  // The calling thread's habits for a gate; null if there are none, or if memory runs out.
  gate::Habits* FindHabits(SeenByThread& here, const gate::Gate* gate) const;
  gate::Habits* MakeHabits(SeenByThread& here, const gate::Gate* gate) const noexcept;
  const Seen* FindSeen(const Payer& payer, CUstream handle, CUcontext context) const {
    SeenByThread* const here = Here();
    if (here == nullptr) [[unlikely]]
      return nullptr;
    const Seen& seen = here->seen.Find(handle);
    // Epochs are unique among all objects and all of their states.
    if (seen.epoch == epoch_.load(std::memory_order_acquire) && seen.handle == handle &&
        seen.gates == payer.gates && seen.context == context) [[likely]] {
      return &seen;
    }
    return nullptr;
  }

  // Whether a stream was not held before and its identity has a gate now.
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
  void EndAll(const std::vector<Entry>& gone);  // they must have been removed from entries_
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
  static constexpr uintptr_t kSpecial = uintptr_t{1} << 63;  // not set in any address of a program

  const driver::Table& driver_;
  base::Clock& clock_;
  std::atomic<uint64_t> epoch_;
  std::atomic<uint64_t> gates_epoch_;  // unique among all objects too
  std::atomic<uint64_t> known_epoch_;  // as epoch_, but kOfNoEntry while a stream captures
  std::atomic<uint32_t> captures_{0};
  std::atomic<int> ending_threads_{0};
  mutable base::Mutex mutex_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  // The gates whose work went to a context, since destroyed streams may have left work in flight there.
  std::set<std::pair<CUcontext, gate::Gate*>> places_ ABSL_GUARDED_BY(mutex_);
  // The entries of places_ whose context is ending.
  std::multiset<std::pair<CUcontext, gate::Gate*>> ending_ ABSL_GUARDED_BY(mutex_);
  std::deque<Shared> shared_ ABSL_GUARDED_BY(
      mutex_);  // never shrinks, since calls may still use those of destroyed streams
  std::set<Captured> capturing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_STREAMS_H_
