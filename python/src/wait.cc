// SPDX-License-Identifier: Apache-2.0
#include "wait.h"

#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "fork.h"

namespace gpushare::python {
namespace {

bool OnMainThread() {
  thread_local uint32_t asked = 0;  // 1 + the fork generation for which `main` was determined
  thread_local bool main = false;
  if (asked != ForkGeneration() + 1) {
    asked = ForkGeneration() + 1;
    main = syscall(SYS_gettid) == getpid();
  }
  return main;
}

struct Task {
  explicit Task(std::function<gpushare_status()> what) : call(std::move(what)) {
    sem_init(&done, 0, 0);
  }
  ~Task() { sem_destroy(&done); }
  std::function<gpushare_status()> call;
  Failure failure;
  sem_t done;
};

// The thread that runs the main thread's waits. One that was abandoned ends with its task.
class Deputy {
 public:
  Deputy() : state_(std::make_shared<State>()) {
    std::thread([state = state_] { Run(*state); }).detach();
  }
  ~Deputy() {
    const std::lock_guard lock(state_->mutex);
    state_->dismissed = true;
    state_->changed.notify_one();
  }
  void Give(std::shared_ptr<Task> task) {
    const std::lock_guard lock(state_->mutex);
    state_->task = std::move(task);
    state_->changed.notify_one();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<Task> task;
    bool dismissed = false;
  };

  static void Run(State& state) {
    for (;;) {
      std::shared_ptr<Task> task;
      {
        std::unique_lock lock(state.mutex);
        state.changed.wait(lock, [&] { return state.task != nullptr || state.dismissed; });
        task = std::move(state.task);
        state.task = nullptr;
      }
      if (task == nullptr) return;
      task->failure = Failure::Last(task->call());
      task->call = nullptr;  // destroys what it owned before the waiter returns
      sem_post(&task->done);
    }
  }

  const std::shared_ptr<State> state_;
};

// The main thread's deputy, kept between waits.
struct Place {
  std::unique_ptr<Deputy> deputy;
  uint32_t born = 0;
};

bool WaitAWhile(sem_t* done) {
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += kLookNs;
  if (until.tv_nsec >= 1'000'000'000) {
    until.tv_nsec -= 1'000'000'000;
    ++until.tv_sec;
  }
  return sem_timedwait(done, &until) == 0;  // a signal ends the wait early
}

}  // namespace

SignalWatch::SignalWatch(std::function<void()> also) : also_(std::move(also)) {
  if (OnMainThread() || also_ != nullptr) scope_.emplace(&Asked, this);
}

void SignalWatch::Look() {
  if (WithoutUnwinding([] { return PyErr_CheckSignals(); }) != 0) {
    throw pybind11::error_already_set();
  }
  if (also_ != nullptr) also_();
}

int SignalWatch::Asked(void* context) {
  if (Finalizing()) return 0;
  auto& self = *static_cast<SignalWatch*>(context);
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  try {
    self.Look();
  } catch (const pybind11::error_already_set&) {
    self.raised_ = std::current_exception();
  }
  PyGILState_Release(gil);
  return self.raised_ != nullptr ? 1 : 0;
}

CallOffWatch::CallOffWatch(const std::atomic<bool>& called_off)
    : scope_([](void* flag) { return static_cast<const std::atomic<bool>*>(flag)->load() ? 1 : 0; },
             const_cast<std::atomic<bool>*>(&called_off)) {}

void RunInterruptibly(std::function<gpushare_status()> call) {
  if (on_virtual_clock || !OnMainThread()) {
    Check(Unlocked(call));
    return;
  }
  static Place& place = *new Place;
  if (place.born != ForkGeneration()) {
    static_cast<void>(place.deputy.release());  // its thread does not exist in the child
    place.born = ForkGeneration();
  }
  std::unique_ptr<Deputy> deputy = std::move(place.deputy);  // a signal handler may get here too
  const auto task = std::make_shared<Task>(std::move(call));
  try {
    if (deputy == nullptr) deputy = std::make_unique<Deputy>();
  } catch (const std::system_error&) {
    Check(Unlocked(task->call));  // the machine has no thread left: wait without Ctrl-C
    return;
  }
  deputy->Give(task);
  while (!Unlocked([&] { return WaitAWhile(&task->done); })) {
    if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  }
  place.deputy = std::move(deputy);
  task->failure.Throw();
}

}  // namespace gpushare::python
