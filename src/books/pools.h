// SPDX-License-Identifier: Apache-2.0
// What pools of stream-ordered memory hold, and who pays for it.
//
// A pool takes memory from the device in granules, of which its allocations are parts. What is charged for a
// pool is what it has reserved: to each account its live allocations, and what lies idle to those who made the
// pool grow or freed it.
#ifndef GPUSHARE_BOOKS_POOLS_H_
#define GPUSHARE_BOOKS_POOLS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::books {

// The figures only: what is charged to accounts is the caller's to do. Thread-safe; the lock is held for a walk
// over the accounts of one pool.
class Pools {
 public:
  struct Share {
    quota::Account* account;
    uint32_t owner;
    uint64_t live, idle;
  };
  struct Credit {
    quota::Account* account;
    uint32_t owner;
    uint64_t bytes;
  };

  // 1 to 255; 0: there are so many pools already. Registers a pool that is new.
  uint8_t NumberOf(CUmemoryPool pool);
  CUmemoryPool HandleOf(uint8_t number);
  // Its device; -1: not known.
  int DeviceOf(uint8_t number);
  void SetDevice(uint8_t number, int device);

  // Up to `bytes` of what lies idle and is the account's; it is expected from now on.
  uint64_t TakeIdle(uint8_t number, quota::Account* account, uint64_t bytes);
  void AddIdle(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);
  void AddLive(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);
  // From live to idle.
  void Free(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);

  // Reserved of an account for a call that is under way.
  void Expect(uint8_t number, uint64_t bytes);
  void ExpectNoMore(uint8_t number, uint64_t bytes);

  // A call that may have changed what the driver has reserved is over. What was read of the driver counts
  // only if no such call has ended since.
  void Changed(uint8_t number);
  uint64_t Version(uint8_t number);
  // The driver has `reserved`. False: read it again. `*missing`: what nobody is charged for; `credits`: what is
  // charged and not there any more, taken out of the idle.
  bool Reconcile(uint8_t number, uint64_t version, uint64_t reserved, uint64_t* missing,
                 std::vector<Credit>* credits);

  // The program has destroyed it; the driver will, when nothing is left in it.
  void Retire(uint8_t number);
  bool Retired(uint8_t number);
  // False unless it is retired and nothing is charged for it: then the number is free.
  bool Forget(uint8_t number);
  // The pool ended with all that it had.
  std::vector<Credit> Drop(uint8_t number);

  bool HasIdle(uint8_t number, const quota::Account* account);  // null: anybody's
  uint8_t count() const { return count_.load(std::memory_order_acquire); }
  uint64_t BytesOf(const quota::Account* account);
  std::vector<Share> SharesOf(uint8_t number);

 private:
  struct Pool {
    quota::SpinLock lock;
    std::atomic<CUmemoryPool> handle{nullptr};
    int device = -1;
    bool retired = false;
    uint64_t version = 0, expected = 0;
    std::vector<Share> shares;

    Share& Of(quota::Account* account, uint32_t owner);
    uint64_t charged() const;
  };

  std::array<Pool, 256> pools_;
  std::atomic<uint8_t> count_{0};  // the highest number in use
  quota::SpinLock registration_;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_POOLS_H_
