// SPDX-License-Identifier: Apache-2.0
#include "work/streams.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "work/launch_layout.h"

thread_local constinit gpushare::work::ThreadMark* gpushare_work_mark =
    &gpushare::work::nobodys_mark;

namespace gpushare::work {
namespace {

// The values of CU_STREAM_LEGACY and CU_STREAM_PER_THREAD without the casts of these macros.
constexpr uintptr_t kLegacy = 1, kPerThread = 2;

std::atomic<uint64_t> next_epoch{1};

// Identifies the calling thread. The address is reused only after the thread has ended.
const void* Thread() {
  static thread_local char here;
  return &here;
}

// All Streams objects, for threads that end. Never destroyed, since a static object would be before the last threads end.
struct Registry {
  base::Mutex mutex;
  std::set<Streams*> alive ABSL_GUARDED_BY(mutex);
};
Registry& AllStreams() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

class Streams::ThreadEnd {
 public:
  // Records that the calling thread has a per-thread stream in `streams`.
  static void Expect(Streams* streams) {
    if (Here() == nullptr) MakeHere();
    Here()->used.insert(streams);
  }
  // The thread's data is destroyed with its thread-local objects. If the destructors of those launch work later, new data is
  // destroyed with the thread-specific keys, whose destructors run again as often as the key is set again.
  static void Arm(SeenByThread* here) {
    if (!over_) {
      static thread_local ThreadEnd end;
      return;
    }
    static pthread_key_t key;
    static const bool has_key =
        pthread_key_create(&key, [](void* late) { End(static_cast<SeenByThread*>(late)); }) == 0;
    if (has_key) pthread_setspecific(key, here);
  }

 private:
  ~ThreadEnd() {
    over_ = true;
    End(Here());
  }
  static void End(SeenByThread* here) {
    // In a forked child the driver does not work, and a lock may be held by a thread that does not exist there.
    if (here == nullptr || getpid() != here->process) return;
    for (Streams* streams : here->used) {
      Registry& all = AllStreams();
      {
        const base::MutexLock lock(&all.mutex);
        if (all.alive.count(streams) == 0) continue;
        ++streams->ending_threads_;
      }
      streams->ForgetThread();
      --streams->ending_threads_;
    }
    Outermost::Move(&nobodys_mark);
    delete here;
  }

  static thread_local constinit bool over_;
};

thread_local constinit bool Streams::ThreadEnd::over_ = false;

Streams::SeenByThread* Streams::MakeHere() {
  auto* const here = new SeenByThread;
  here->process = getpid();
  ThreadEnd::Arm(here);
  Outermost::Move(here);
  return here;
}

struct Streams::Shared {
  base::Mutex mutex;
  Adopted last ABSL_GUARDED_BY(mutex);     // the identity whose work went there last
  int turning ABSL_GUARDED_BY(mutex) = 0;  // calls that are using another identity's gate
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
void Streams::CheckLayout() {
  static_assert(offsetof(ThreadMark, epoch) == GPUSHARE_MARK_EPOCH);
  static_assert(offsetof(ThreadMark, inside) == GPUSHARE_MARK_INSIDE);
  static_assert(offsetof(SeenByThread, known) == GPUSHARE_MARK_KNOWN);
  static_assert(sizeof(Known) == 1 << GPUSHARE_KNOWN_SHIFT);
  static_assert(sizeof(Recent<Known>) == Recent<Known>::kPlaces * sizeof(Known));
  constexpr uint32_t kHash = 3u * static_cast<uint32_t>(GPUSHARE_PLACE_HASH);
  static_assert(Recent<Known>::FirstPlaceOf(3) == 2 * (kHash >> GPUSHARE_FIRST_PLACE));
  static_assert(Recent<Known>::SecondPlaceOf(3) == 2 * (kHash >> GPUSHARE_SECOND_PLACE & 15) + 1);
  // No two default streams have a place in common. So an entry with a context in such a place is of that default stream.
  constexpr auto kApart = [](uintptr_t a, uintptr_t b) {
    return Recent<Known>::FirstPlaceOf(a) != Recent<Known>::FirstPlaceOf(b) &&
           Recent<Known>::SecondPlaceOf(a) != Recent<Known>::SecondPlaceOf(b);
  };
  static_assert(kApart(0, 1) && kApart(1, 2) && kApart(2, 0));
  static_assert(static_cast<uint32_t>(kSpecial) == 0);  // so KnownAs() does not change the place
  static_assert(offsetof(Known, handle) == GPUSHARE_KNOWN_HANDLE);
  static_assert(offsetof(Known, pocket) == GPUSHARE_KNOWN_POCKET);
  static_assert(offsetof(Known, lane.page) == GPUSHARE_KNOWN_PAGE);
  static_assert(offsetof(Known, lane.ring) == GPUSHARE_KNOWN_RING);
  static_assert(offsetof(Known, lane.context) == GPUSHARE_KNOWN_KEYS);
  static_assert(offsetof(Known, lane.record) == GPUSHARE_KNOWN_RECORD);
  static_assert(offsetof(Known, stream) == GPUSHARE_KNOWN_STREAM);
  static_assert(offsetof(Known, context) == GPUSHARE_KNOWN_CONTEXT);
  static_assert(offsetof(Known, last) == GPUSHARE_KNOWN_LAST);
  static_assert(offsetof(gate::Habit, function) == GPUSHARE_HABIT_FUNCTION);
  static_assert(offsetof(gate::Habit, shape.grid) == GPUSHARE_HABIT_GRID);
  static_assert(offsetof(gate::Habit, shape.block) == GPUSHARE_HABIT_BLOCK);
  static_assert(offsetof(gate::Habit, shape.shared_bytes) == GPUSHARE_HABIT_SHARED);
  static_assert(offsetof(gate::Habit, context) == GPUSHARE_HABIT_CONTEXT);
  using Place = meter::CostModel::Place;
  static_assert(offsetof(gate::Habit, place) + Place::kEntryAt == GPUSHARE_HABIT_ENTRY);
  static_assert(offsetof(gate::Habit, place) + Place::kIdAt == GPUSHARE_HABIT_ID);
  static_assert(Place::kEntrysIdAt == GPUSHARE_ENTRY_ID);
  static_assert(Place::kEntrysSettledAt == GPUSHARE_ENTRY_SETTLED);
  static_assert(offsetof(gate::Habit, charge) == GPUSHARE_HABIT_CHARGE);
  static_assert(offsetof(gate::Habit, charged_at) == GPUSHARE_HABIT_CHARGED_AT);
  static_assert(offsetof(gate::Habit, next) == GPUSHARE_HABIT_NEXT);
  static_assert(offsetof(gate::Habit, other) == GPUSHARE_HABIT_OTHER);
  static_assert(offsetof(gate::Habit, context_after) == GPUSHARE_HABIT_AFTER);
  static_assert(offsetof(gate::Habit, record) == GPUSHARE_HABIT_RECORD);
  static_assert(offsetof(gate::TenantPage, charge_units) == GPUSHARE_PAGE_UNITS);
  static_assert(offsetof(gate::LaunchRing, records) == 0);
  static_assert(gate::LaunchRing::kRecords - 1 == GPUSHARE_RING_MASK);
  static_assert(gate::LaunchRecord::kLaunchAt == GPUSHARE_RECORD_LAUNCH);
  static_assert(offsetof(driver::KeptContext, context) == GPUSHARE_KEPT_CONTEXT);
  static_assert(offsetof(driver::KeptContext, turn) == GPUSHARE_KEPT_TURN);
  static_assert(offsetof(gate::Pocket, spent) == GPUSHARE_POCKET_SPENT);
  static_assert(offsetof(gate::Pocket, limit) == GPUSHARE_POCKET_LIMIT);
  static_assert(offsetof(gate::Pocket, prices) == GPUSHARE_POCKET_PRICES);
}
#pragma GCC diagnostic pop

Streams::Streams(const driver::Driver& driver)
    : driver_(driver.table()), clock_(driver.clock()), gates_epoch_(next_epoch.fetch_add(1)) {
  {
    const base::MutexLock lock(&mutex_);
    NewEpoch();
  }
  Registry& all = AllStreams();
  const base::MutexLock lock(&all.mutex);
  all.alive.insert(this);
}

Streams::~Streams() {
  {
    Registry& all = AllStreams();
    const base::MutexLock lock(&all.mutex);
    all.alive.erase(this);
  }
  while (ending_threads_.load() > 0) clock_.SleepUntil(clock_.Now() + Micros(5));
  ForgetIf([](const Key&, const Entry&) { return true; });
}

void Streams::NewEpoch() {
  epoch_.store(next_epoch.fetch_add(1, std::memory_order_relaxed), std::memory_order_release);
  Publish();
}

void Streams::Publish() {
  captures_.store(static_cast<uint32_t>(capturing_.size()));
  known_epoch_.store(capturing_.empty() ? epoch_.load(std::memory_order_relaxed) : kOfNoEntry,
                     std::memory_order_release);
}

Streams::Adopted Streams::FindSlow(const Payer& payer, CUstream handle, CUcontext current) {
  Key key = {handle, current, nullptr, payer.gates};
  const uintptr_t word = reinterpret_cast<uintptr_t>(handle);
  if (word == kLegacy) key.handle = nullptr;
  if (word == kPerThread) key.thread = Thread();
  // Read the epoch before the entry, so that an entry that is forgotten meanwhile does not stay in the thread's data.
  const uint64_t epoch = epoch_.load(std::memory_order_acquire);
  Adopted adopted;
  bool known = false;
  {
    const base::MutexLock lock(&mutex_);
    const auto at = entries_.find(key);
    known = at != entries_.end();
    if (known && GateCame(payer, at->second.adopted)) {
      entries_.erase(at);
      known = false;
    }
    if (known) adopted = at->second.adopted;
  }
  if (!known) {
    if (key.thread != nullptr) ThreadEnd::Expect(this);
    Entry entry{};
    adopted = Adopt(payer, key, &entry);
    // The driver does not know the stream, or there is no share. The next call asks again.
    if (entry.context == nullptr || adopted.refused) return adopted;
    bool late = false;
    {
      const base::MutexLock lock(&mutex_);
      const auto [at, inserted] = entries_.try_emplace(key, entry);
      late = !inserted;
      if (inserted) Share(key);
      if (inserted && entry.adopted.gate != nullptr) {
        places_.emplace(entry.context, entry.adopted.gate);
      }
      adopted = at->second.adopted;
    }
    if (late && entry.adopted.stream != nullptr && !entry.shares) {
      entry.adopted.gate->RemoveStream(entry.adopted.stream);
    }
  }
  if (Here() == nullptr) MakeHere();
  Here()->seen.Put({epoch, handle, payer.gates, current, adopted});
  if (adopted.gate != nullptr && adopted.shared == nullptr) {
    gate::Pocket* const pocket = adopted.gate->PocketHere();
    Know(*Here(), {.handle = KnownAs(handle),
                   .pocket = pocket != nullptr ? pocket : &gate::no_pocket,
                   .lane = gate::Gate::LaneOf(*adopted.stream),
                   .stream = adopted.stream,
                   .gates = payer.gates,
                   .context = IsSpecial(handle) ? current : NoContext(),
                   .gate = adopted.gate,
                   .epoch = epoch,
                   .habits = FindHabits(*Here(), adopted.gate)});
  }
  return adopted;
}

void Streams::Know(SeenByThread& here, const Known& known) {
  // A signal handler that launches meanwhile then finds no entries instead of incomplete ones.
  const uint64_t before = std::exchange(here.epoch, 0);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (before != known.epoch) here.known.Clear();
  here.known.Put(known);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  here.epoch = known.epoch;
}

void Streams::Asked(const Adopted& stream, CUstream handle) {
  SeenByThread* const here = Here();
  Known* const known = here != nullptr ? here->known.FindIf(KnownAs(handle)) : nullptr;
  if (known == nullptr || known->stream != stream.stream) return;
  if (known->habits == nullptr) known->habits = MakeHabits(*here, stream.gate);
  const std::shared_ptr<gate::Pocket> shared = stream.gate->Asked();
  gate::Pocket* const pocket = shared.get();
  if (pocket == nullptr || known->pocket == pocket || !Keep(*here, shared)) return;
  here->known.ForEach([&](Known& each) {
    if (each.gate == stream.gate) each.pocket = pocket;
  });
}

bool Streams::Keep(SeenByThread& here, const std::shared_ptr<gate::Pocket>& pocket) noexcept {
  auto& all = here.pockets;
  if (std::find(all.begin(), all.end(), pocket) != all.end()) return true;
  // Drop pockets of destroyed gates, to which there are no other references.
  std::erase_if(all, [](const auto& each) { return each.use_count() == 1; });
  try {
    all.push_back(pocket);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

gate::Habits* Streams::FindHabits(SeenByThread& here, const gate::Gate* gate) const {
  const uint64_t epoch = gates_epoch_.load(std::memory_order_acquire);
  for (const auto& of : here.habits) {
    if (of.gate == gate && of.gates_epoch == epoch) return of.habits.get();
  }
  return nullptr;
}

gate::Habits* Streams::MakeHabits(SeenByThread& here, const gate::Gate* gate) const noexcept {
  if (gate::Habits* const habits = FindHabits(here, gate)) return habits;
  auto& of = here.habits[here.oldest_habits];
  gate::Habits* const others = of.habits.get();
  if (others != nullptr) {
    // Remove all references to the habits that are replaced.
    here.known.ForEach([&](Known& each) {
      if (each.habits != others) return;
      each.habits = nullptr;
      each.last = &gate::no_habit;
    });
    // In place: as a temporary it is more than a small stack has.
    std::destroy_at(others);
    std::construct_at(others);
  } else {
    of.habits.reset(new (std::nothrow) gate::Habits);
    if (of.habits == nullptr) return nullptr;
  }
  of.gate = gate;
  of.gates_epoch = gates_epoch_.load(std::memory_order_acquire);
  here.oldest_habits = (here.oldest_habits + 1) % here.habits.size();
  return of.habits.get();
}

Streams::Adopted Streams::Adopt(const Payer& payer, const Key& key, Entry* entry) {
  CUcontext context = key.context;
  const bool special = IsSpecial(key.handle);
  if (!special && driver_.StreamGetCtx(key.handle, &context) != CUDA_SUCCESS) return {};
  if (context == nullptr) return {};
  Adopted& adopted = entry->adopted;
  CUcontext popped = nullptr;
  if (driver_.CtxPushCurrent(context) != CUDA_SUCCESS) return {};
  const CUresult found = driver_.CtxGetDevice(&adopted.device);
  driver_.CtxPopCurrent(&popped);
  if (found != CUDA_SUCCESS) return {};
  entry->context = context;
  const Gates::Found gates = payer.gates->Of(adopted.device);
  adopted.gate = gates.gate;
  adopted.refused = gates.refused;
  if (adopted.gate == nullptr) return adopted;
  const absl::StatusOr<gate::StreamGate*> added = adopted.gate->AddStream(
      key.handle, {.context = context, .by_context = special, .by_thread = key.thread != nullptr});
  if (added.ok()) {
    adopted.stream = *added;
    return adopted;
  }
  // There are too many streams. This one is held and charged as another stream of the same tenant.
  const base::MutexLock lock(&mutex_);
  for (const auto& [other, at] : entries_) {
    if (at.adopted.gate != adopted.gate || at.adopted.stream == nullptr) continue;
    entry->shares = true;
    adopted.stream = at.adopted.stream;
    return adopted;
  }
  adopted.gate = nullptr;
  return adopted;
}

// ---- Streams of several identities ----

// Checks whether other identities use a new entry's stream too.
void Streams::Share(const Key& key) {
  Shared* shared = nullptr;
  int users = 0;
  const auto begin = entries_.lower_bound({key.handle, key.context, key.thread, nullptr});
  const auto same = [&](const Key& k) {
    return k.handle == key.handle && k.context == key.context && k.thread == key.thread;
  };
  for (auto at = begin; at != entries_.end() && same(at->first); ++at) {
    if (at->second.adopted.gate == nullptr) continue;
    ++users;
    if (at->second.adopted.shared != nullptr) shared = at->second.adopted.shared;
  }
  if (users < 2) return;
  if (shared == nullptr) shared = &shared_.emplace_back();
  for (auto at = begin; at != entries_.end() && same(at->first); ++at) {
    if (at->second.adopted.gate != nullptr) at->second.adopted.shared = shared;
  }
  NewEpoch();  // the other threads have to see the change
}

// To the meter the stream is a separate one for each identity. When work of another identity follows, one marker ends the
// former's work and one begins the latter's. Otherwise each would seem to run while the other does.
void Streams::TurnSlow(const Adopted& stream) {
  Shared& shared = *stream.shared;
  Adopted last;
  {
    const base::MutexLock lock(&shared.mutex);
    last = std::exchange(shared.last, stream);
    if (last.stream == stream.stream) return;
    ++shared.turning;
  }
  if (last.stream != nullptr) last.gate->StallBegins(last.stream);
  stream.gate->WaitEnds(stream.stream);
  const base::MutexLock lock(&shared.mutex);
  --shared.turning;
}

void Streams::Leave(const Adopted& gone) {
  for (;;) {
    {
      const base::MutexLock lock(&gone.shared->mutex);
      if (gone.shared->last.stream == gone.stream) gone.shared->last = {};
      if (gone.shared->turning == 0) return;
    }
    clock_.SleepUntil(clock_.Now() + Micros(5));
  }
}

template <typename Which>
void Streams::ForgetIf(const Which& which) {
  std::vector<Entry> gone;
  {
    const base::MutexLock lock(&mutex_);
    for (auto at = entries_.begin(); at != entries_.end();) {
      if (!which(at->first, at->second)) {
        ++at;
        continue;
      }
      gone.push_back(at->second);
      at = entries_.erase(at);
    }
    if (gone.empty()) return;
    NewEpoch();
  }
  EndAll(gone);
}

void Streams::EndAll(const std::vector<Entry>& gone) {
  for (const Entry& entry : gone) {
    if (entry.adopted.shared != nullptr) Leave(entry.adopted);
    if (entry.adopted.stream == nullptr || entry.shares) continue;
    entry.adopted.gate->RemoveStream(entry.adopted.stream);
  }
}

void Streams::Forget(CUstream handle) {
  if (IsSpecial(handle)) return;
  // Programs create and destroy thousands of streams, so only the entries of this handle are visited.
  std::vector<Entry> gone;
  {
    const base::MutexLock lock(&mutex_);
    const auto begin = entries_.lower_bound({handle, nullptr, nullptr, nullptr});
    auto end = begin;
    for (; end != entries_.end() && end->first.handle == handle; ++end) gone.push_back(end->second);
    entries_.erase(begin, end);
    if (!gone.empty()) NewEpoch();
  }
  EndAll(gone);
  const base::MutexLock lock(&mutex_);
  EndCaptures([&](const Captured& captured) { return captured.handle == handle; });
}

Streams::ContextEnd::ContextEnd(Streams& streams, CUcontext context, gate::Gate* more)
    : streams_(streams), context_(context) {
  Streams& all = streams_;
  all.ForgetIf([&](const Key&, const Entry& entry) { return entry.context == context; });
  std::vector<gate::Gate*> gates;
  {
    const base::MutexLock lock(&all.mutex_);
    all.EndCaptures([&](const Captured& captured) { return captured.context == context; });
    if (more != nullptr) all.places_.emplace(context, more);
    std::erase_if(all.places_, [&](const auto& place) {
      all.mutex_.AssertHeld();
      if (place.first != context) return false;
      gates.push_back(place.second);
      all.ending_.insert(place);
      return true;
    });
  }
  for (gate::Gate* gate : gates) gate->ContextEnds(context);
}

Streams::ContextEnd::~ContextEnd() {
  streams_.Ended([&](const auto& place) { return place.first == context_; });
}

template <typename Which>
void Streams::Ended(const Which& which) {
  std::vector<std::pair<CUcontext, gate::Gate*>> ended;
  {
    const base::MutexLock lock(&mutex_);
    std::erase_if(ending_, [&](const auto& place) {
      if (!which(place)) return false;
      ended.push_back(place);
      return true;
    });
  }
  for (const auto& [context, gate] : ended) gate->ContextEnded(context);
}

void Streams::ForgetThread() {
  const void* const thread = Thread();
  ForgetIf([&](const Key& key, const Entry&) { return key.thread == thread; });
  const base::MutexLock lock(&mutex_);
  EndCaptures([&](const Captured& captured) { return captured.thread == thread; });
}

void Streams::ForgetGate(const gate::Gate* gate) {
  gates_epoch_.store(next_epoch.fetch_add(1, std::memory_order_relaxed), std::memory_order_release);
  ForgetIf([&](const Key&, const Entry& entry) { return entry.adopted.gate == gate; });
  Ended([&](const auto& place) { return place.second == gate; });
  const base::MutexLock lock(&mutex_);
  std::erase_if(places_, [&](const auto& place) { return place.second == gate; });
}

// ---- Captures ----

void Streams::Close(CUstream handle) {
  const Captured captured = CaptureOf(handle);
  std::vector<Adopted> open;
  {
    const base::MutexLock lock(&mutex_);
    for (auto at = entries_.lower_bound({handle, nullptr, nullptr, nullptr});
         at != entries_.end() && at->first.handle == handle; ++at) {
      const auto& [key, entry] = *at;
      const bool same =
          !IsSpecial(handle) || (key.context == captured.context && key.thread == captured.thread);
      if (!same || entry.adopted.stream == nullptr) continue;
      open.push_back(entry.adopted);
      if (entry.adopted.shared == nullptr) continue;
      // The entry may be of another identity, which may be about to be removed.
      const base::MutexLock use(&entry.adopted.shared->mutex);
      ++entry.adopted.shared->turning;
    }
  }
  for (const Adopted& adopted : open) {
    adopted.gate->StallBegins(adopted.stream);
    if (adopted.shared == nullptr) continue;
    const base::MutexLock use(&adopted.shared->mutex);
    --adopted.shared->turning;
  }
}

Streams::Captured Streams::CaptureOf(CUstream handle) const {
  Captured captured = {handle, nullptr, nullptr};
  if (!IsSpecial(handle)) {
    if (driver_.StreamGetCtx(handle, &captured.context) != CUDA_SUCCESS) captured.context = nullptr;
    return captured;
  }
  driver_.CtxGetCurrent(&captured.context);
  captured.thread = Thread();  // the legacy stream cannot capture
  return captured;
}

template <typename Which>
void Streams::EndCaptures(const Which& which) {
  std::erase_if(capturing_, which);
  Publish();
}

void Streams::CaptureBegan(CUstream handle) {
  const Captured captured = CaptureOf(handle);
  if (captured.thread != nullptr) ThreadEnd::Expect(this);
  const base::MutexLock lock(&mutex_);
  capturing_.insert(captured);
  Publish();
}

void Streams::CaptureMayHaveEnded(CUstream handle) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (driver_.StreamIsCapturing(handle, &status) != CUDA_SUCCESS) return;
  if (status != CU_STREAM_CAPTURE_STATUS_NONE) return;
  const Captured captured = CaptureOf(handle);
  const base::MutexLock lock(&mutex_);
  EndCaptures([&](const Captured& other) {
    return IsSpecial(handle) ? other == captured : other.handle == handle;
  });
}

bool Streams::CapturingSlow(CUstream handle) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = driver_.StreamIsCapturing(handle, &status);
  // For the legacy stream the driver returns an error while others capture. That stream cannot capture itself.
  if (result != CUDA_SUCCESS) return !IsSpecial(handle);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace gpushare::work
