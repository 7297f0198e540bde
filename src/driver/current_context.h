// SPDX-License-Identifier: Apache-2.0
// Which context is current to the calling thread, by the driver's word, which is kept until it may have changed: launches
// on default streams and allocations need not ask each time.
//
//   CUcontext context = nullptr;
//   if (CurrentContext::Get(table, &context) == CUDA_SUCCESS) ...    // asks, or knows
//
//   const CurrentContext::Change change;                    // around a call that may change the calling thread's
//   const CurrentContext::Change change(CurrentContext::kOfAll);  // that ends one, which may be any thread's
//
// What is current to a thread changes by its own calls: each that may do it is made within a Change, which forgets what is
// kept. What the driver says of a context that another thread ends is the driver's affair: who may end one has all threads
// ask again, by a number that is kept beside the context. It is read before the driver is asked, so that an answer of
// before the end is not kept past it.
//
// Nothing is kept unless somebody sees to it that every such call of the process is made within a Change: the shim, whose
// hooks do (Begin()). A program that has got hold of the driver's private tables of functions changes contexts by these,
// past all hooks: from then on nothing is kept any more (End()).
//
// Scopes of gpushare's own that push a context and pop it again, and launch nothing in between, leave what is kept alone.
//
// Threading: thread-safe. A signal handler that launches within a Change asks; what it learns there goes with the Change.
#ifndef GPUSHARE_DRIVER_CURRENT_CONTEXT_H_
#define GPUSHARE_DRIVER_CURRENT_CONTEXT_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "driver/table.h"

namespace gpushare::driver {

struct KeptContext {
  CUcontext context = nullptr;
  uint64_t turn = 0;  // good while all is at it
};

}  // namespace gpushare::driver

// By names that assembly can say too.
extern "C" {
extern thread_local constinit gpushare::driver::KeptContext gpushare_driver_kept_context;
// A multiple of 4, which comes once; else nothing is kept: not yet (1) or no more (3).
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
  // Null: the driver has to be asked.
  static CUcontext Kept() {
    const KeptContext& kept = gpushare_driver_kept_context;
    return kept.turn == gpushare_driver_context_turn.load(std::memory_order_acquire) ? kept.context
                                                                                     : nullptr;
  }
  static CUresult Ask(const Table& driver, CUcontext* context);

  // Every call that may change what is current to a thread is made within a Change from now on. For the process; again it
  // does nothing, and after End() neither.
  static void Begin();
  // Some are not: for good.
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
