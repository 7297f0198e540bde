// SPDX-License-Identifier: Apache-2.0
// The clock of the simulated GPU: who runs, and what time it is.
//
// Virtual clock. Registered threads are real threads, but only one at a time holds the turn. The holder may touch every object
// of the simulator without a lock. Virtual time passes only when the holder spends it or waits: then the holder is queued by
// (time, sequence), and the turn goes to the earliest thread in the queue, after the device's events before that time. A holder
// that is still the earliest goes on without a switch, at the cost of three comparisons.
//
// Services, such as a limiter's own thread, wait for moments of virtual time but do not make time pass. For a program without
// registered threads, the clock cannot know what the program does between two calls, so time stands still.
//
// Threads that are not registered, or that said they block elsewhere, come back through an inbox that the holder empties; when
// no thread holds the turn, they take it themselves.
//
// Several processes can share one virtual clock (processes/turn.h). Then a process's threads run only while the process has the
// turn among the processes, and only up to the time at which another process is due. A thread of the clock's own waits for that
// turn.
//
// Wall clock. One mutex takes the place of the turn. Whenever a thread enters, the device's events up to then happen, with the
// times at which they were due; waiting threads sleep until the next event.
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

// Threads that wait for one thing, first come first served. A member of that thing.
struct WaitList {
  Thread* head = nullptr;
  Thread* tail = nullptr;
  bool empty() const { return head == nullptr; }
};

enum class ThreadState : uint8_t { kOutside, kArriving, kAnnounced, kRunnable, kRunning, kWaiting };

// The clock's state of one thread. Owned by the clock's registry; never freed while the thread lives.
struct Thread {
  // The word that a thread without the turn sleeps on.
  alignas(64) std::atomic<uint32_t> turn{0};
  uint64_t at = 0;   // when to run next, while queued
  uint64_t seq = 0;  // the order among equal times
  int heap_index = -1;
  Thread* next_arrival = nullptr;

  WaitList* waiting_on = nullptr;
  Thread* wait_previous = nullptr;
  Thread* wait_next = nullptr;
  const void* word = nullptr;  // the word of a wait_word, else null
  uint64_t wait_since = 0, wait_spin = 0;
  bool timed_out = false;
  bool woken = false;  // wall clock

  std::atomic<ThreadState> state{ThreadState::kOutside};
  std::atomic<const char*> doing{""};  // what it waits for, for reports
  bool registered = false;             // thread_enter was called
  std::atomic<bool> external{false};   // between external_begin and external_end
  bool internal = false;               // a thread of the simulator's own
  std::atomic<bool> idle{false};       // an internal thread without work, which waits for nothing
  std::atomic<bool> service{false};    // time does not pass on its account
  bool pinned = false;
  uint64_t announced = 0;
  char name[48] = "";

  void SetState(ThreadState now) { state.store(now, std::memory_order_relaxed); }
};

class Clock {
 public:
  // Called when the device's next event is due.
  using RunEvents = void (*)();
  using Log = void (*)(const char* line, void* context);

  explicit Clock(RunEvents run_events);

  bool is_virtual() const { return virtual_.load(std::memory_order_relaxed); }
  // How late a thread goes on, in nanoseconds.
  struct Lateness {
    uint64_t spin = 500, sleep = 20000;  // after it was woken, while it spins and while it sleeps
    uint64_t timer = 0;                  // after the deadline until which it sleeps
  };
  // Called by the only thread in the driver, between Enter() and Leave().
  void Configure(bool is_virtual, bool pin, const Lateness& late, uint64_t watchdog_ns);

  // Whether a driver call that waits on the machine's clock is a cancellation point.
  void SetCancellable(bool cancellable) { cancellable_ = cancellable; }

  // Called by the only thread in the driver. From here on several processes share the virtual clock; returns when this process
  // has the turn. Unshare() makes the clock this process's own again.
  void Share(SharedTurn* turn);
  void Unshare();

  uint64_t now() const { return now_.load(std::memory_order_relaxed); }
  // Like now(), but on the wall clock it reads the machine's clock. Any thread may call it.
  uint64_t Read() const;

  // ---- Turn. Enter() returns when the calling thread may touch the simulator; Leave() gives the turn up.
  void Enter(Thread* self);
  void Leave(Thread* self);

  // Registration. Names are cut at 47 characters. `has_turn`: the thread is between Enter() and Leave().
  void Register(Thread* self, const char* name, bool has_turn = false);
  void Unregister(Thread* self);
  enum class Kind { kWork, kService, kInternal };
  Thread* Announce(const char* name, Kind kind = Kind::kWork);
  void Withdraw(Thread* announced);              // the announced thread will not come
  Thread* FindAnnounced(uint64_t number);        // null if there is none
  Thread* FindAnnouncedLocked(uint64_t number);  // call with registry_mutex_ held
  // Registers the calling thread as the one announced as `number`. Null if there is none.
  Thread* EnterAnnounced(uint64_t number);
  void BeginExternal(Thread* self);
  void EndExternal(Thread* self);
  int registered() const { return registered_.load(std::memory_order_relaxed); }

  Thread* NewThread();
  void DeleteThread(Thread* thread);

  // ---- For the holder of the turn only.
  void Spend(uint64_t ns) {
    const uint64_t target = now() + ns;
    if (inbox_.load(std::memory_order_relaxed) == nullptr && next_event_ > target &&
        fast_until_ > target && is_virtual()) [[likely]] {
      now_.store(target, std::memory_order_relaxed);
      return;
    }
    SpendSlow(target);
  }

  // Blocks until woken; `doing` is a literal for reports. False when the deadline came first.
  bool Wait(WaitList& list, const char* doing, uint64_t deadline = kForever);
  // Makes every waiter run again `delay` after now.
  void WakeAll(WaitList& list, uint64_t delay);
  void WakeOne(WaitList& list, uint64_t delay);

  // For words of memory. 0: woken or changed, 1: deadline.
  int WaitWord(const uint32_t* word, uint32_t expected, uint64_t deadline, uint64_t spin);
  void WakeWord(const uint32_t* word, int count);

  // The time of the device's next event, kForever when there is none. Set by the timeline.
  void SetNextEvent(uint64_t at) {
    if (!is_virtual() && at < next_event_) wall_changed_.notify_all();
    next_event_ = at;
  }
  // How many streams wait for values in memory, which any thread may write. While there are such streams, the device's events
  // are run whenever a thread spends time or waits, so that the device checks the values.
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
  // Whether time may pass: it stands still while there are only services in the driver.
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
  // For a clock that processes share; kForever otherwise.
  uint64_t limit_ = kForever;    // when another process is due
  uint64_t horizon_ = kForever;  // when to check again whether limit_ still holds
  bool others_drive_ = false;    // threads of other processes wait for time to pass
  std::atomic<SharedTurn*> shared_{nullptr};
  std::atomic<bool> away_{false};  // another process has the turn
  std::atomic<int> blocked_{0};
  std::atomic<Thread*> inbox_{nullptr};
  Thread* running_ = nullptr;
  std::vector<Thread*> heap_;
  uint64_t seq_ = 0;
  int queued_ = 0;   // threads in the heap for which time may pass: all but services
  int waiting_ = 0;  // registered threads among them that wait for the device or for a word
  std::atomic<bool> virtual_{true};
  std::atomic<uint32_t> idle_{1};  // 1: no thread holds the turn
  std::atomic<uint64_t> switches_{0};
  Lateness late_;
  RunEvents run_events_;
  WaitList words_[kWordBuckets];

  // Wall clock.
  std::mutex wall_mutex_;
  std::condition_variable wall_changed_;
  bool cancellable_ = false;

  // Registry of all threads. Guarded by registry_mutex_; the watchdog reads it.
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

// The machine's clock, in nanoseconds.
uint64_t MonotonicNow();

// Starts a thread of the simulator's own, with all signals blocked. False if the machine has no thread left.
bool StartThread(void* (*body)(void*), void* argument);
// The kernel shows such a thread under this prefix and the thread's own number. Code that checks whether a program has threads
// left ignores these threads. A thread with this prefix and another thread's number belongs to the program: a thread inherits
// the name of its creator, and host functions, which may create threads, run on ours.
inline constexpr char kThreadName[] = "gpusim:";
void NameOwnThread();

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CLOCK_CLOCK_H_
