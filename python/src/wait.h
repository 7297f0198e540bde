// SPDX-License-Identifier: Apache-2.0
// Waits that Ctrl-C can end.
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

inline constexpr int64_t kLookNs = 50'000'000;  // interval at which waits check for signals

// While it exists, `interrupted` decides whether waits of the calling thread in the library end. Constructed without it,
// nothing ends them: for functions of the program that the library calls while it waits. Their own waits have nothing to do
// with the caller's wait, and where they hold locks of other libraries, the interpreter's lock must not be taken.
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

// For calls that wait in the library, for a turn or for memory. The call waits once, on the calling thread, keeps its place in
// the queue, and checks for signals from there.
//
//   SignalWatch signals;
//   const gpushare_status code = Unlocked([&] { return gpushare_lease_acquire(...); });
//   signals.Check();      // raises what a handler raised; then the call was CANCELLED, or served at the same moment
//   Check(code);
//
// `also` is called at each check too, with the interpreter's lock. An exception that it raises ends the wait.
//
// Threading: for one thread; created and destroyed with the interpreter's lock. Only the main thread handles signals.
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

// A wait that another thread ends through a flag. The calling thread does not check for signals.
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

// For calls that wait in the driver, which does not check for signals. On the main thread, the only one that handles signals,
// `call` runs on another thread and is abandoned when a signal handler raises. So it must own everything that it touches.
void RunInterruptibly(std::function<gpushare_status()> call);

// Whether the calling thread is registered with a simulated GPU's virtual clock. Such a thread makes its waits itself: the
// clock would wait for it if another thread waited on its behalf.
inline thread_local bool on_virtual_clock = false;

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_WAIT_H_
