// SPDX-License-Identifier: Apache-2.0
// The context that the calling thread calls the driver in.
//
//   const ContextScope current(device.site());
//   GPUSHARE_RETURN_IF_ERROR(current.status());
//   driver.MemAlloc(...);
//
// It is the GPU's primary one or a virtual device's own, and is made current for good when the thread has none, for the
// scope's length when it has another. What was made current for good on other threads than the one that ends the context is
// taken off them at their next call.
//
// kTrust believes what was seen at the thread's last call and costs a comparison. It is for calls
// that name a stream, since the driver refuses a stream of another context: those try again after
// Distrust(). All others ask the driver.
#ifndef GPUSHARE_DEVICE_GPU_CONTEXT_SCOPE_H_
#define GPUSHARE_DEVICE_GPU_CONTEXT_SCOPE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "driver/driver.h"

namespace gpushare::device {

class Gpu;

// A context to call the driver in.
struct Site {
  const driver::Driver& driver;
  driver::Context context = nullptr;
  uint64_t id = 0;  // of no other, ever: ContextScope::NewSite()
};

class ContextScope {
 public:
  enum class Mode { kAsk, kTrust };

  explicit ContextScope(const Gpu& gpu, Mode mode = Mode::kAsk);
  explicit ContextScope(const Site& site, Mode mode = Mode::kAsk) : site_(site) {
    if (mode == Mode::kAsk || bound != site.id) Enter();
  }
  ~ContextScope() {
    if (pushed_) Leave();
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  absl::Status status() const { return driver::ToStatus(result_, "cuCtxPushCurrent"); }
  bool ok() const { return result_ == driver::Result::kSuccess; }

  // Whether the driver refused a call because the context was not current after all.
  static bool Suspicious(driver::Result result) {
    return result == driver::Result::kInvalidContext || result == driver::Result::kInvalidHandle;
  }
  static void Distrust() { bound = 0; }
  // Whether kTrust would believe that the context is current: then no scope is needed for a call that names a stream.
  static bool Trusts(const Site& site) { return bound == site.id; }

  // For a program that is not to find a context current that it has not made so: at the end the calling thread has none
  // again, if it had none at the beginning.
  class Restores {
   public:
    explicit Restores(const driver::Driver& driver);
    ~Restores();
    Restores(const Restores&) = delete;
    Restores& operator=(const Restores&) = delete;

   private:
    const driver::Driver& driver_;
    bool none_ = false;
  };

  static uint64_t NewSite();
  // The context is about to go: if it was pushed for good on this thread, it is taken off it.
  static void Forget(const Site& site);

 private:
  void Enter();
  void Leave();
  static void DropPushed(const driver::Driver& driver);

  static thread_local uint64_t bound;                  // the site seen current
  static thread_local uint64_t pushed;                 // the site pushed for good
  static thread_local driver::Context pushed_context;  // and its context
  static thread_local uint64_t ends_seen;              // see `ends` there

  const Site& site_;
  bool pushed_ = false;
  driver::Result result_ = driver::Result::kSuccess;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_CONTEXT_SCOPE_H_
