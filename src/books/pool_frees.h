// SPDX-License-Identifier: Apache-2.0
// Frees in pools that their streams may not have reached yet.
//
// Memory that one stream has freed is available to another only when the first stream has reached the free; until then an
// allocation on the other stream makes the pool grow. If the quota has no room for that, the allocating stream is made to wait
// on the device for those frees, as the driver itself does when the device is full. It then gets their memory, and the pool
// does not grow.
//
// For this an event is recorded after the last free of each stream, but only near the quota: elsewhere nothing is recorded, and
// a free costs no additional call. The bytes that a stream freed and has not allocated again tell whether it has to wait for
// other streams at all. That is a guess if the idle memory is fragmented, and then the pool grows.
//
// Threading: thread-safe. Events are queried under a lock that waits through the clock; nothing is put on a stream under it.
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
  // Makes a stream wait for an event. Null: the driver's call.
  using Follow = std::function<CUresult(CUstream stream, CUevent event)>;

  PoolFrees(const driver::Table& driver, ContextTags& tags, base::Clock& clock, Follow follow)
      : driver_(driver), tags_(tags), clock_(clock), follow_(std::move(follow)) {}

  // Records that the driver has accepted a free of `bytes` of the account into `stream`, which must not be capturing. Nothing
  // is recorded if host memory runs out.
  void Add(uint8_t pool, const quota::Account* account, uint64_t bytes, CUstream stream);
  // Call it before `stream` takes `bytes` from `pool`. With `follows` it has to take the account's idle memory, since there is
  // no room for more. Then the stream waits for other streams' frees, unless it freed as much itself or the program has
  // disabled such waits.
  void Take(uint8_t pool, CUmemoryPool handle, const quota::Account* account, uint64_t bytes,
            CUstream stream, bool follows);
  // Calls `tell` once for each of the account's frees, as LateFrees::TellAwaited() does.
  void TellAwaited(const quota::Account& account, LateFrees::Tell tell);
  // Drops the frees that are done.
  void Settle();
  // Drops the frees of contexts that are about to end, with their events.
  void Forget(const ContextTags::Set& ending);

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

 private:
  struct Freed {
    uint8_t pool;
    const quota::Account* account;
    uint64_t stream;    // the stream's id
    uint64_t bytes;     // freed by the stream and not allocated by it again
    CUevent event;      // after the last free; null: none yet
    CUcontext context;  // of the event
    uint8_t place;      // the context's tag
    bool told;          // the waiting requests will be told
  };
  static constexpr size_t kMost = 64;

  uint64_t NumberOf(CUstream stream) const;
  bool MayFollow(CUmemoryPool pool) const;
  bool Mark(Freed* freed, CUstream stream);
  bool IsOver(const Freed& freed) const;  // destroys the event if so
  void DropOver();
  void Keep(const Freed& freed);

  const driver::Table& driver_;
  ContextTags& tags_;
  base::Clock& clock_;
  const Follow follow_;
  std::atomic<uint32_t> busy_{0};  // a ClockLock that guards the following members
  std::vector<Freed> freed_;
  std::atomic<size_t> count_{0};
  std::atomic<uint32_t> following_{
      0};  // threads that make streams wait for events, which Forget() waits for
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_POOL_FREES_H_
