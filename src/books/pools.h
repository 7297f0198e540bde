// SPDX-License-Identifier: Apache-2.0
// What pools of stream-ordered memory hold, and who pays for it.
//
// A pool takes memory from the device in granules, of which its allocations are parts. What is charged for a
// pool is what it has reserved: to each account its live allocations, and what lies idle to those who made the
// pool grow or freed it. What an account had no room for when its call was over is its debt: charged past its limit.
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

// The figures only: what is charged to accounts is the caller's to do, but for what Adopt() finds. Thread-safe; the lock
// is held for a walk over the accounts of one pool.
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

  static constexpr int kReads = 64;  // of what a pool has reserved, while other threads change it

  // 1 to 255; 0: there are so many pools already. Registers a pool that is new.
  uint8_t NumberOf(CUmemoryPool pool);
  uint8_t Find(CUmemoryPool pool) const;  // 0: it has none
  CUmemoryPool HandleOf(uint8_t number) const { return pools_[number].handle.load(); }
  static constexpr int kUnknown = -1;
  int DeviceOf(uint8_t number) const { return pools_[number].device.load(); }
  void SetDevice(uint8_t number, int device) { pools_[number].device.store(device); }

  // What comes after the driver's answer finds room then. To be called before it is asked, unless Begin() is.
  void Prepare(uint8_t number);

  // A call that will take `bytes` of an account, which owes `debt`. `whole`: all of them lay idle there and were the
  // account's, and are live already; a call that does not take them gives them back by Free(). Else the call reserves them
  // and what the pool may grow by, which it Expects.
  struct Begun {
    uint64_t debt;
    bool whole;
  };
  Begun Begin(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes,
              bool may_be_whole);
  // It took `bytes` that were expected, and they are paid for. What the pool grew by beyond them is its caller's to find
  // until it Ends.
  void Took(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);
  // The same of a call of which all lay idle, before it: the pool may grow all the same.
  void MayGrow(uint8_t number);
  void End(uint8_t number);
  // A call that found all of it idle has had the driver's answer.
  void Answered(uint8_t number) { pools_[number].answered.fetch_add(1, std::memory_order_release); }
  // Whether the call is the only one that is under way there, of any account; and whether it has been since. So what the
  // pool grows by is its own.
  struct Solitude {
    uint64_t calls = 0;  // so far; 0: there are others
  };
  Solitude BeginAlone(uint8_t number, bool whole, uint64_t expects);
  bool IsAlone(uint8_t number, const Solitude& since);
  // From live to idle.
  void Free(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);

  // Reserved of an account for a call that is under way.
  void Expect(uint8_t number, uint64_t bytes);

  // The driver is asked what the pool has: after a call that may have changed it, and only what is read after
  // the last of such calls counts. Until the end of the reading the pool stays the driver's.
  struct Reading {
    CUmemoryPool pool;  // null: it is gone, and there is nothing to end
    uint64_t version;
  };
  Reading BeginReading(uint8_t number);
  // The driver has `reserved`. False: read it again; else the reading has ended. `credits`: what is charged and
  // not there any more, taken out of the idle. `*claim`: in, what the caller claimed before, out, what nobody is
  // charged for or has claimed, which is the caller's to pay, owe or leave. Null claims nothing: while no call is under
  // way, what nobody is charged for is then charged to who took last of the pool and holds some of it, else to who
  // holds most. Debts of accounts that have room again are paid.
  bool Reconcile(uint8_t number, Reading* reading, uint64_t reserved, uint64_t* claim,
                 std::vector<Credit>* credits);
  void EndReading(uint8_t number);
  // Whether that is what the driver had when all of it was last paid for: then a call that took what lay idle has
  // nothing to reconcile. Whose call changes what it has, reconciles that.
  bool IsBalanced(uint8_t number, uint64_t reserved) const {
    return pools_[number].balanced.load(std::memory_order_acquire) == reserved;
  }

  // Whether it has been so at all since: then nobody owes anything.
  bool IsPaid(uint8_t number) const {
    return pools_[number].balanced.load(std::memory_order_acquire) != kNever;
  }

  // The claim has been charged to the account: within its limit, or past it.
  void Pay(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim);
  void Owe(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim);
  void Leave(uint8_t number, uint64_t claim);
  uint64_t DebtOf(uint8_t number, const quota::Account* account);  // null: anybody's

  // The program has destroyed it; the driver will, when nothing is left in it.
  void Retire(uint8_t number) { pools_[number].retired.store(true); }
  bool Retired(uint8_t number) { return pools_[number].retired.load(); }
  // False unless it is retired, nothing is charged for it and nobody reads it: then the number is free.
  bool Forget(uint8_t number);
  // The pool ended with all that it had.
  std::vector<Credit> Drop(uint8_t number);

  uint64_t IdleOf(uint8_t number, const quota::Account* account, uint32_t owner);
  bool HasIdle(uint8_t number, const quota::Account* account);  // null: anybody's
  uint8_t count() const { return count_.load(std::memory_order_acquire); }
  uint64_t BytesOf(const quota::Account* account);

 private:
  struct Debt {
    quota::Account* account;
    uint32_t owner;
    uint64_t bytes;
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr size_t kAtOnce = 8;  // calls that add an account or a debt while others do

  struct Pool {
    quota::SpinLock lock;
    std::atomic<CUmemoryPool> handle{nullptr};
    std::atomic<int> device{kUnknown};
    std::atomic<bool> retired{false};
    uint64_t version = 0, expected = 0, readers = 0, finding = 0;
    uint64_t calls = 0, whole = 0;         // that have begun; those of them that found all idle
    std::atomic<uint64_t> answered{0};     // of these
    const quota::Account* last = nullptr;  // who took last; it may be gone
    std::atomic<uint64_t> balanced{kNever};
    std::vector<Share> shares;
    std::vector<Debt> debts;

    void Prepare();
    Share& Of(quota::Account* account, uint32_t owner);
    uint64_t charged() const;
    uint64_t owed() const;
    // The driver has given up so much of what is owed.
    void Forgive(uint64_t bytes, std::vector<Credit>* credits);
    void PayDebts();
    void Adopt(uint64_t bytes);
    void Clear();
  };

  std::array<Pool, 256> pools_;
  std::atomic<uint8_t> count_{0};  // the highest number in use
  quota::SpinLock registration_;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_POOLS_H_
