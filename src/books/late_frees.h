// SPDX-License-Identifier: Apache-2.0
// Frees that a stream has not come to: until then the device holds the bytes, and they stay charged.
#ifndef GPUSHARE_BOOKS_LATE_FREES_H_
#define GPUSHARE_BOOKS_LATE_FREES_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <list>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/sync.h"
#include "books/context_tags.h"
#include "books/shared_memory.h"
#include "driver/table.h"
#include "quota/pointer_table.h"

namespace gpushare::books {

class LateFrees {
 public:
  LateFrees(const driver::Table& driver, ContextTags& tags, base::Clock& clock)
      : driver_(driver), tags_(tags), clock_(clock) {}

  // What goes: an allocation, or a use of shared memory.
  struct Free {
    quota::Allocation allocation;
    SharedMemory::Place memory;
    CUevent event = nullptr;
    CUcontext context = nullptr;  // of the event
    uint8_t place = 0;            // its number
    bool told = false;            // who waits for it will be
  };
  // They go from list to list without memory of the host.
  using List = std::list<Free>;
  // The driver has taken the free into `stream`. False: it is over already, and for the caller to credit.
  bool Add(const Free& free, CUstream stream);
  // Those that are over now.
  List TakeFinished();

  // Those of accounts in which somebody waits are put to `tell`, once; it says whether who waits will be told when the
  // event is over.
  using Tell = absl::FunctionRef<bool(CUcontext, CUevent, const quota::Account&)>;
  void TellAwaited(Tell tell);

  // Those that end with a context that is about to: taken out before it does, since their events go with it. Waits
  // for whoever looks at them.
  List Withdraw(const ContextTags::Set& ending);
  // The context did not end after all.
  void PutBack(List frees);

  bool empty() const { return count_.load() == 0; }
  uint64_t BytesOf(const quota::Account* account);

 private:
  List TakeAll();

  const driver::Table& driver_;
  ContextTags& tags_;
  base::Clock& clock_;
  std::atomic<uint32_t> looking_{0};  // a ClockLock: has some of them in hand
  std::atomic<uint64_t> count_{0};
  base::Mutex mutex_;
  List frees_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_LATE_FREES_H_
