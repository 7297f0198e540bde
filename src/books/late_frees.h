// SPDX-License-Identifier: Apache-2.0
// Stream-ordered frees that their stream has not reached yet. Until then the device holds the bytes and they stay charged.
#ifndef GPUSHARE_BOOKS_LATE_FREES_H_
#define GPUSHARE_BOOKS_LATE_FREES_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <list>

#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/sync.h"
#include "books/awaited.h"
#include "books/context_tags.h"
#include "books/shared_memory.h"
#include "driver/table.h"
#include "quota/pointer_table.h"

namespace gpushare::books {

class LateFrees {
 public:
  LateFrees(const driver::Table& driver, ContextTags& tags, base::Clock& clock)
      : driver_(driver), tags_(tags), clock_(clock) {}

  // The freed object: an allocation, or a use of shared memory.
  struct Free {
    quota::Allocation allocation;
    SharedMemory::Place memory;
    CUevent event = nullptr;
    CUcontext context = nullptr;  // of the event
    uint8_t place = 0;            // the context's tag
    bool told = false;            // the waiting requests will be told
  };
  // A list, because moving frees between lists needs no host memory.
  using List = std::list<Free>;
  // Adds a free that the driver has accepted into `stream`. False if it is done already and the caller has to credit it.
  // Otherwise `awaited` receives those who wait for the memory, since another thread may credit it from then on.
  bool Add(const Free& free, CUstream stream, Awaited* awaited = nullptr);
  // Takes the frees that are done.
  List TakeFinished();

  // Calls `tell` once for each free of an account in which requests wait. It returns whether the requests will be told when
  // the event is reached.
  using Tell = absl::FunctionRef<bool(CUcontext, CUevent, const quota::Account&)>;
  void TellAwaited(Tell tell);

  // Takes the frees of an account that is about to end. Their events are gone.
  List TakeOf(const quota::Account* account);
  // Takes the frees of a context that is about to end, since their events end with it. Waits for a thread that is checking
  // frees.
  List Withdraw(const ContextTags::Set& ending);
  // Puts them back if the context did not end.
  void PutBack(List frees);

  bool empty() const { return count_.load() == 0; }
  // Of an account's frees that their streams will come to: not in a context that is lost.
  uint64_t BytesOf(const quota::Account* account);

 private:
  List TakeAll();
  void Splice(List frees) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const driver::Table& driver_;
  ContextTags& tags_;
  base::Clock& clock_;
  std::atomic<uint32_t> looking_{
      0};  // a ClockLock: held by the thread that has taken frees out to check them
  std::atomic<uint64_t> count_{0};
  base::Mutex mutex_;
  List frees_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_LATE_FREES_H_
