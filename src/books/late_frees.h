// SPDX-License-Identifier: Apache-2.0
// Frees that a stream has not come to: until then the device holds the bytes, and they stay charged.
#ifndef GPUSHARE_BOOKS_LATE_FREES_H_
#define GPUSHARE_BOOKS_LATE_FREES_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/sync.h"
#include "books/context_tags.h"
#include "driver/table.h"
#include "quota/pointer_table.h"

namespace gpushare::books {

class LateFrees {
 public:
  LateFrees(const driver::Table& driver, ContextTags& tags) : driver_(driver), tags_(tags) {}

  // The driver has taken the free of `allocation` into `stream`. False: it is over already, and for the
  // caller to credit.
  bool Add(const quota::Allocation& allocation, CUstream stream);
  // Those that are over now.
  std::vector<quota::Allocation> TakeFinished();

  struct Free {
    quota::Allocation allocation;
    CUevent event;
    uint8_t place;  // the context of the event
  };
  // Those that end with a context that is about to: taken out before it does, since their events go with it.
  std::vector<Free> Withdraw(const ContextTags::Set& ending);
  // The context did not end after all.
  void PutBack(const std::vector<Free>& frees);

  bool empty() const { return count_.load() == 0; }
  uint64_t BytesOf(const quota::Account* account);

 private:
  std::vector<Free> TakeAll();

  const driver::Table& driver_;
  ContextTags& tags_;
  std::atomic<uint64_t> count_{0};
  base::Mutex mutex_;
  std::vector<Free> frees_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_LATE_FREES_H_
