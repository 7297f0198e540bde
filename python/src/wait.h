// SPDX-License-Identifier: Apache-2.0
// Waits that Ctrl-C ends.
#ifndef GPUSHARE_PYTHON_WAIT_H_
#define GPUSHARE_PYTHON_WAIT_H_

#include <pybind11/pybind11.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "errors.h"
#include "gil.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::python {

inline constexpr int64_t kLookNs = 50'000'000;  // between two looks at signals

// From construction to destruction, who is asked while the calling thread waits in the library; nobody, as it is made by itself:
// around functions of the program that the library calls while it waits. What they wait for themselves has nothing to do with
// the caller's wait, and where they hold locks of other libraries nobody may ask for the interpreter's.
class AskedScope {
 public:
  explicit AskedScope(int (*interrupted)(void* context) = nullptr, void* context = nullptr) {
    other_.struct_size = sizeof(other_);
    other_.interrupted = interrupted;
    other_.context = context;
    static_cast<void>(gpushare_thread_exchange_interrupt(&other_));
  }
  ~AskedScope() { static_cast<void>(gpushare_thread_exchange_interrupt(&other_)); }
  AskedScope(const AskedScope&) = delete;
  AskedScope& operator=(const AskedScope&) = delete;

 private:
  gpushare_interrupt other_ = {};  // what the thread had before
};

// For calls that wait in the library, for a turn or for memory: the call waits once, on the calling thread and in its place
// in line, and looks at signals from there.
//
//   SignalWatch signals;
//   const gpushare_status code = Unlocked([&] { return gpushare_lease_acquire(...); });
//   signals.Check();      // raises what a handler raised; then the call was CANCELLED, or served in the same moment
//   Check(code);
//
// `also` is called there too, with the interpreter's lock; what it raises ends the wait.
//
// Threading: of one thread, made and destroyed with the interpreter's lock. Only the main thread handles signals.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void()> also = nullptr);
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  void Check() {
    scope_.reset();
    if (raised_ != nullptr) [[unlikely]] {
      std::rethrow_exception(std::exchange(raised_, nullptr));
    }
  }

 private:
  static int Asked(void* self);
  void Look();

  const std::function<void()> also_;
  std::exception_ptr raised_;
  std::optional<AskedScope> scope_;
};

// A wait that another thread calls off, by a flag; the calling thread looks at no signals.
class CallOffWatch {
 public:
  explicit CallOffWatch(const std::atomic<bool>& called_off);

 private:
  const AskedScope scope_;
};

template <typename Call>
void WaitInterruptibly(const Call& call) {
  SignalWatch signals;
  const gpushare_status code = Unlocked(call);
  signals.Check();
  python::Check(code);
}

// For calls that wait in the driver, which asks nobody: on the main thread, the only one that handles signals, `call` runs
// on another thread and is left to itself when a signal handler raises. So it owns all it touches.
void RunInterruptibly(std::function<gpushare_status()> call);

// Whether the calling thread is registered with a simulated GPU's virtual clock. Such a thread waits
// by itself: the clock would wait for it while another one waits on its behalf.
inline thread_local bool on_virtual_clock = false;

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_WAIT_H_
