// SPDX-License-Identifier: Apache-2.0
// Caches which context is current to the calling thread, so that launches on default streams and allocations need not ask
// the driver each time.
//
//   CUcontext context = nullptr;
//   if (CurrentContext::Get(table, &context) == CUDA_SUCCESS) ...    // cached, or asks the driver
//
//   const CurrentContext::Change change;                    // around a call that may change this thread's context
//   const CurrentContext::Change change(CurrentContext::kOfAll);  // around one that may end any thread's context
//
// A thread's current context changes only by calls of that thread. Each such call is made within a Change, which empties the
// thread's cache. A call that may end a context which is current to other threads invalidates all caches: it advances a
// global number, a copy of which is cached beside the context. That number is read before the driver is asked, so an answer
// from before the end is not cached past it.
//
// Caching is on only while every such call of the process is made within a Change. The shim's hooks ensure that, and the shim
// turns caching on (Begin()). A program that obtains the driver's private function tables can change contexts past all hooks,
// so caching is then turned off for good (End()).
//
// Code of gpushare that pushes a context and pops it again, without launching in between, needs no Change.
//
// Threading: thread-safe. A signal handler that launches within a Change asks the driver; its answer is dropped with the Change.
#ifndef GPUSHARE_DRIVER_CURRENT_CONTEXT_H_
#define GPUSHARE_DRIVER_CURRENT_CONTEXT_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "driver/table.h"

namespace gpushare::driver {

struct KeptContext {
  CUcontext context = nullptr;
  uint64_t turn = 0;  // valid while equal to the global turn
};

}  // namespace gpushare::driver

// extern "C", since assembly uses them too.
extern "C" {
extern thread_local constinit gpushare::driver::KeptContext gpushare_driver_kept_context;
// A multiple of 4 while caching is on, a new one for each invalidation. Otherwise caching is off: not yet on (1) or ended (3).
extern std::atomic<uint64_t> gpushare_driver_context_turn;
}

namespace gpushare::driver {

class CurrentContext {
 public:
  static CUresult Get(const Table& driver, CUcontext* context) {
    if (CUcontext const kept = Kept()) [[likely]] {
      *context = kept;
      return CUDA_SUCCESS;
    }
    return Ask(driver, context);
  }
  // The cached context; null if the driver has to be asked.
  static CUcontext Kept() {
    const KeptContext& kept = gpushare_driver_kept_context;
    return kept.turn == gpushare_driver_context_turn.load(std::memory_order_acquire) ? kept.context
                                                                                     : nullptr;
  }
  static CUresult Ask(const Table& driver, CUcontext* context);

  // Turns caching on for the process. From now on, every call that may change a thread's current context must be made within a
  // Change. Has no effect when repeated or after End().
  static void Begin();
  // Turns caching off for good: some calls are no longer made within a Change.
  static void End();

  enum Whose { kOfThread, kOfAll };
  class Change {
   public:
    explicit Change(Whose whose = kOfThread) : whose_(whose) { Forget(whose); }
    ~Change() { Forget(whose_); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    const Whose whose_;
  };

 private:
  static void Forget(Whose whose) {
    gpushare_driver_kept_context.context = nullptr;
    if (whose == kOfAll) gpushare_driver_context_turn.fetch_add(4, std::memory_order_acq_rel);
  }
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_CURRENT_CONTEXT_H_
