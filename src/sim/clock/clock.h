// SPDX-License-Identifier: Apache-2.0
// The clock of the simulated GPU: who runs, and what time it is.
//
// Virtual. Registered threads are real threads of which one at a time holds the turn. The holder may
// touch every object of the simulator without a lock. Virtual time passes only when the holder spends
// it or waits: it is then queued by (time, sequence), and the turn goes to the earliest of the queue;
// the device's events before that time happen first. A holder that is still the earliest goes on
// without a switch, at the cost of three comparisons.
//
// Services, such as a limiter's own thread, wait for moments of virtual time without bringing them on: of a
// program whose threads are not registered, nobody knows what it does between two calls, and time stands.
//
// Threads that are not registered (or said that they block elsewhere) come back through an inbox that
// the holder empties; when nobody holds the turn, they take it themselves.
//
// Several processes can have one virtual clock (shared_turn.h): then a process's threads run only while
// it has the turn among the processes, up to when another one is due, and a thread of the clock's own
// waits for that turn.
//
// Wall. One mutex takes the place of the turn; events of the device happen, with the times they were
// due at, whenever a thread enters, and waiters sleep until the next one.
#ifndef GPUSHARE_SIM_CLOCK_CLOCK_H_
#define GPUSHARE_SIM_CLOCK_CLOCK_H_

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace gpushare::sim {

inline constexpr uint64_t kForever = UINT64_MAX;

class Clock;
class SharedTurn;
struct Thread;

// Threads waiting for one thing, first come first served. Lives in that thing.
struct WaitList {
  Thread* head = nullptr;
  Thread* tail = nullptr;
  bool empty() const { return head == nullptr; }
};

enum class ThreadState : uint8_t { kOutside, kArriving, kAnnounced, kRunnable, kRunning, kWaiting };

// A thread as the clock sees it. Owned by the clock's registry; never freed while its thread lives.
struct Thread {
  // The word that a thread without the turn sleeps on.
  alignas(64) std::atomic<uint32_t> turn{0};
  uint64_t at = 0;   // when to run next, while queued
  uint64_t seq = 0;  // among those of equal time
  int heap_index = -1;
  Thread* next_arrival = nullptr;

  WaitList* waiting_on = nullptr;
  Thread* wait_previous = nullptr;
  Thread* wait_next = nullptr;
  const void* word = nullptr;  // of a wait_word, else null
  uint64_t wait_since = 0, wait_spin = 0;
  bool timed_out = false;
  bool woken = false;  // wall clock

  std::atomic<ThreadState> state{ThreadState::kOutside};
  std::atomic<const char*> doing{""};  // what it waits for, for reports
  bool registered = false;             // by thread_enter
  std::atomic<bool> external{false};   // inside external_begin/end
  bool internal = false;               // the simulator's own
  std::atomic<bool> idle{false};       // an internal thread without work: waits for nothing
  std::atomic<bool> service{false};    // time does not pass for its sake
  bool pinned = false;
  uint64_t announced = 0;
  char name[48] = "";

  void SetState(ThreadState now) { state.store(now, std::memory_order_relaxed); }
};

class Clock {
 public:
  // What happens when the device's next event is due.
  using RunEvents = void (*)();
  using Log = void (*)(const char* line, void* context);

  explicit Clock(RunEvents run_events);

  bool is_virtual() const { return virtual_.load(std::memory_order_relaxed); }
  // By the only thread in the driver, between Enter() and Leave().
  void Configure(bool is_virtual, bool pin, uint64_t wake_spin, uint64_t wake_sleep,
                 uint64_t watchdog_ns);

  // Whether a driver call that waits on the machine's clock is a cancellation point.
  void SetCancellable(bool cancellable) { cancellable_ = cancellable; }

  // By the only thread in the driver: the virtual clock is from here on that of several processes; it
  // returns when this one has the turn. Unshare(): it is its own again.
  void Share(SharedTurn* turn);
  void Unshare();

  uint64_t now() const { return now_.load(std::memory_order_relaxed); }
  // As now(), of the machine's clock when that is the one in use; any thread.
  uint64_t Read() const;

  // ---- Turn. Enter() returns when the calling thread may touch the simulator, Leave() gives it up.
  void Enter(Thread* self);
  void Leave(Thread* self);

  // Registration. Names are cut at 47 characters. `has_turn`: between Enter() and, now, no Leave().
  void Register(Thread* self, const char* name, bool has_turn = false);
  void Unregister(Thread* self);
  enum class Kind { kWork, kService, kInternal };
  Thread* Announce(const char* name, Kind kind = Kind::kWork);
  void Withdraw(Thread* announced);              // it will not come
  Thread* FindAnnounced(uint64_t number);        // null: there is no such
  Thread* FindAnnouncedLocked(uint64_t number);  // with registry_mutex_
  // The calling thread is the one announced as `number`; null: there is no such.
  Thread* EnterAnnounced(uint64_t number);
  void BeginExternal(Thread* self);
  void EndExternal(Thread* self);
  int registered() const { return registered_.load(std::memory_order_relaxed); }

  Thread* NewThread();
  void DeleteThread(Thread* thread);

  // ---- Holder of the turn only.
  void Spend(uint64_t ns) {
    const uint64_t target = now() + ns;
    if (inbox_.load(std::memory_order_relaxed) == nullptr && next_event_ > target &&
        fast_until_ > target && is_virtual()) [[likely]] {
      now_.store(target, std::memory_order_relaxed);
      return;
    }
    SpendSlow(target);
  }

  // Blocks until woken; `doing` is a literal for reports. False: the deadline came first.
  bool Wait(WaitList& list, const char* doing, uint64_t deadline = kForever);
  // Every waiter runs again `delay` after now.
  void WakeAll(WaitList& list, uint64_t delay);
  void WakeOne(WaitList& list, uint64_t delay);

  // On words of memory. 0: woken or changed, 1: deadline.
  int WaitWord(const uint32_t* word, uint32_t expected, uint64_t deadline, uint64_t spin);
  void WakeWord(const uint32_t* word, int count);

  // The device's next event, kForever when there is none. Set by the timeline.
  void SetNextEvent(uint64_t at) {
    if (!is_virtual() && at < next_event_) wall_changed_.notify_all();
    next_event_ = at;
  }
  // How many streams wait for values in memory, which anybody may write: then the events are run, so that
  // the device looks, whenever a thread spends time or waits.
  void SetBlocked(int streams) {
    blocked_.store(streams, std::memory_order_relaxed);
    HeapTopChanged();
  }
  uint64_t next_event() const { return next_event_; }
  Thread* running() const { return running_; }
  // Events run with the clock at their own time.
  void AdvanceTo(uint64_t at) {
    if (at > now()) now_.store(at, std::memory_order_relaxed);
  }

  // ---- Reports.
  void SetLog(Log log, void* context);
  void Report(const std::string& line);

 private:
  friend void* WatchdogMain(void*);
  friend void* TurnMain(void*);
  static constexpr int kWordBuckets = 1024;

  void SpendSlow(uint64_t target);
  void SwitchAway(Thread* self, bool stays);
  Thread* PickNext();
  void PassTurn(Thread* next);
  void AwaitTurn(Thread* self);
  void Arrive(Thread* self);
  void DrainInbox();
  void ScheduleFrom(Thread* self);
  bool GiveAway();
  void RefreshLimit();
  void TurnCame(uint64_t at);
  void StartTurnThread();
  void Queue(Thread* thread, uint64_t at);
  void Unqueue(Thread* thread);
  void HeapUp(size_t i);
  void HeapDown(size_t i);
  // Whether time may pass: with nobody but services in the driver it stands still.
  bool driven() const { return queued_ > 0 || waiting_ > 0 || others_drive_; }
  bool blocked() const { return blocked_.load(std::memory_order_relaxed) > 0; }
  void HeapTopChanged() {
    next_thread_ = heap_.empty() ? kForever : heap_[0]->at;
    fast_until_ = blocked() ? 0 : next_thread_ < horizon_ ? next_thread_ : horizon_;
  }
  void Append(WaitList& list, Thread* thread);
  void Remove(Thread* thread);
  void Wake(Thread* thread, uint64_t at);
  bool WaitWall(Thread* self, uint64_t deadline);
  void LeaveIfCancelled(Thread* self, int cancels);
  void RunDueWallEvents();
  void Pin(Thread* self);
  void Unpin(Thread* self);
  void StartWatchdog();
  std::string Describe();

  std::atomic<uint64_t> now_{1'000'000'000};
  uint64_t next_event_ = kForever;
  uint64_t next_thread_ = kForever;
  uint64_t fast_until_ = kForever;  // next_thread_ or horizon_, or 0 while streams are blocked
  // Among processes; kForever in one that is alone.
  uint64_t limit_ = kForever;    // when another process is due
  uint64_t horizon_ = kForever;  // when to look again whether that holds
  bool others_drive_ = false;    // threads of theirs wait for the time to pass
  std::atomic<SharedTurn*> shared_{nullptr};
  std::atomic<bool> away_{false};  // another process has the turn
  std::atomic<int> blocked_{0};
  std::atomic<Thread*> inbox_{nullptr};
  Thread* running_ = nullptr;
  std::vector<Thread*> heap_;
  uint64_t seq_ = 0;
  int queued_ = 0;   // threads in the heap that time may pass for: all but services
  int waiting_ = 0;  // of those, registered ones that wait for the device or for a word
  std::atomic<bool> virtual_{true};
  std::atomic<uint32_t> idle_{1};  // 1: nobody holds the turn
  std::atomic<uint64_t> switches_{0};
  uint64_t wake_spin_ = 500, wake_sleep_ = 20000;
  RunEvents run_events_;
  WaitList words_[kWordBuckets];

  // Wall clock.
  std::mutex wall_mutex_;
  std::condition_variable wall_changed_;
  bool cancellable_ = false;

  // Registry: who there is. Guarded by registry_mutex_, read by the watchdog.
  std::mutex registry_mutex_;
  std::vector<Thread*> threads_;
  uint64_t announced_ = 0;
  std::atomic<int> registered_{0};
  bool pin_ = true;
  int cpu_ = -1;
  cpu_set_t allowed_{};
  Log log_ = nullptr;
  void* log_context_ = nullptr;
  uint64_t watchdog_ns_ = 0;
  bool watchdog_running_ = false;
};

// Of the machine's clock, in nanoseconds.
uint64_t MonotonicNow();

// A thread of the simulator's own, without signals. False: the machine has none.
bool StartThread(void* (*body)(void*), void* argument);
// What the name of such a thread, as the kernel shows it, begins with, before its number there: who looks whether a program
// has threads left takes it for none of them. With another's number it is the program's: a thread inherits the name of the one
// that creates it, and host functions run on ours.
inline constexpr char kThreadName[] = "gpusim:";
void NameOwnThread();

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CLOCK_CLOCK_H_
