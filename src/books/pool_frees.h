// SPDX-License-Identifier: Apache-2.0
// Frees in pools that their streams may not have come to.
//
// What one stream has freed another may have only when the first has come so far; an allocation there would make the pool
// grow. Where the quota has no room for that, the allocation's stream is made to wait on the device for those frees, as the
// driver itself does where the device is full: then it takes their memory, and the pool stays as it is.
//
// So an event stands behind the last free of each stream, near the quota only: elsewhere nothing is noted, and a free
// costs no call more. How much of what a stream freed it has not taken again tells whether it has to wait for others at
// all; it is a guess where what lies idle lies in pieces, and then the pool grows.
//
// Threading: thread-safe. Calls of the driver are made under a lock that waits through the clock.
#ifndef GPUSHARE_BOOKS_POOL_FREES_H_
#define GPUSHARE_BOOKS_POOL_FREES_H_

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "books/context_tags.h"
#include "books/late_frees.h"
#include "driver/table.h"
#include "quota/ledger.h"

namespace gpushare::books {

class PoolFrees {
 public:
  // Makes a stream wait for an event; null: the driver does.
  using Follow = std::function<CUresult(CUstream stream, CUevent event)>;

  PoolFrees(const driver::Table& driver, ContextTags& tags, base::Clock& clock, Follow follow)
      : driver_(driver), tags_(tags), clock_(clock), follow_(std::move(follow)) {}

  // The driver has taken a free of `bytes` of the account into `stream`, which does not capture. What finds no memory of
  // the host is not noted.
  void Add(uint8_t pool, const quota::Account* account, uint64_t bytes, CUstream stream);
  // `stream` is about to take `bytes` of `pool`. `follows`: of what lies idle and is the account's, since there is no room
  // for more. Then it waits for what others freed, unless it freed as much itself or the program does not want that.
  void Take(uint8_t pool, CUmemoryPool handle, const quota::Account* account, uint64_t bytes,
            CUstream stream, bool follows);
  // Those of the account are put to `tell`, once, as LateFrees::TellAwaited() does.
  void TellAwaited(const quota::Account& account, LateFrees::Tell tell);
  // Those that are over need not be waited for.
  void Settle();
  // Contexts that are about to end, with the events in them.
  void Forget(const ContextTags::Set& ending);

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Freed {
    uint8_t pool;
    const quota::Account* account;
    uint64_t stream;    // its number
    uint64_t bytes;     // not taken again by it
    CUevent event;      // behind the last of them; null: none yet
    CUcontext context;  // of the event
    uint8_t place;      // its number
    bool told;          // who waits for that will be
  };
  static constexpr size_t kMost = 64;

  uint64_t NumberOf(CUstream stream) const;
  bool MayFollow(CUmemoryPool pool) const;
  bool Mark(Freed* freed, CUstream stream);
  bool IsOver(const Freed& freed) const;  // and its event is gone
  void DropOver();

  const driver::Table& driver_;
  ContextTags& tags_;
  base::Clock& clock_;
  const Follow follow_;
  std::atomic<uint32_t> busy_{0};  // a ClockLock, of what follows
  std::vector<Freed> freed_;
  std::atomic<size_t> count_{0};
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_POOL_FREES_H_
