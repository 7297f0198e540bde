// SPDX-License-Identifier: Apache-2.0
// Makes the right context current for driver calls of the calling thread.
//
//   const ContextScope current(device.site());
//   GPUSHARE_RETURN_IF_ERROR(current.status());
//   driver.MemAlloc(...);
//
// The context is the GPU's primary one or a virtual device's own. If the thread has no current context, it is made current
// permanently; if the thread has another, only for the length of the scope. When a context ends, other threads on which it
// was made current permanently drop it at their next call.
//
// kTrust relies on what was seen at the thread's last call, and costs only a comparison. It is for calls that name a stream,
// since the driver refuses a stream of another context: such a call is then repeated after Distrust(). All other calls ask
// the driver.
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
  uint64_t id = 0;  // never reused; made by ContextScope::NewSite()
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
  // Whether kTrust would take the context to be current. If so, a call that names a stream needs no scope.
  static bool Trusts(const Site& site) { return bound == site.id; }

  // If the calling thread has no current context at the beginning, it has none at the end either. For programs that must not
  // find a context current that they have not made current themselves.
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
  // The context is about to end: if it was pushed permanently on this thread, pops it.
  static void Forget(const Site& site);

 private:
  void Enter();
  void Leave();
  static void DropPushed(const driver::Driver& driver);

  static constinit thread_local uint64_t bound;                  // the site last seen current
  static constinit thread_local uint64_t pushed;                 // the site pushed permanently
  static constinit thread_local driver::Context pushed_context;  // the context of `pushed`
  static constinit thread_local uint64_t
      ends_seen;  // the last seen value of `ends` (context_scope.cc)

  const Site& site_;
  bool pushed_ = false;
  driver::Result result_ = driver::Result::kSuccess;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_CONTEXT_SCOPE_H_
