// SPDX-License-Identifier: Apache-2.0
// The memory that pools of stream-ordered memory hold, and the accounts that pay for it.
//
// A pool takes memory from the device in granules and makes allocations from them. The charge for a pool is what it has
// reserved from the device. Each account pays for its live allocations. Idle memory is paid by the accounts that made the pool
// grow or freed it. If an account has no room for what its call turned out to take, the rest is its debt, charged past its
// limit.
#ifndef GPUSHARE_BOOKS_POOLS_H_
#define GPUSHARE_BOOKS_POOLS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "books/awaited.h"
#include "quota/ledger.h"
#include "quota/spin_lock.h"

namespace gpushare::books {

// Keeps the figures only. Charging the accounts is up to the caller, except for what Adopt() finds. Thread-safe; the lock is
// held while walking over the accounts of one pool.
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

  static constexpr int kReads = 64;  // tries to read a pool's size while other threads change it

  // The pool's number, 1 to 255. Registers a new pool; 0 if there are too many.
  uint8_t NumberOf(CUmemoryPool pool);
  uint8_t Find(CUmemoryPool pool) const;  // 0 if it has no number
  CUmemoryPool HandleOf(uint8_t number) const { return pools_[number].handle.load(); }
  static constexpr int kUnknown = -1;
  int DeviceOf(uint8_t number) const { return pools_[number].device.load(); }
  void SetDevice(uint8_t number, int device) { pools_[number].device.store(device); }

  // Allocates host memory so that nothing after the driver's call can fail. Call it before that, unless you call Begin().
  void Prepare(uint8_t number);

  // Begins a call that will take `bytes` of an account, whose debt is `debt`. `whole` means that all of the bytes were idle
  // memory of the account and are now marked live; if the call does not take them, it gives them back by Free(). Otherwise the
  // call has to reserve the bytes and the pool's possible growth, and pass both to Expect().
  struct Begun {
    uint64_t debt;
    bool whole;
  };
  Begun Begin(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes,
              bool may_be_whole);
  // Reports that the call took `bytes`, which were expected and are paid for. Until End() it is up to the caller to account for
  // further growth of the pool.
  void Took(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes);
  // The same for a `whole` call, before the driver's call: the pool may grow nevertheless.
  void MayGrow(uint8_t number);
  void End(uint8_t number);
  // Reports that the driver has answered a `whole` call.
  void Answered(uint8_t number) { pools_[number].answered.fetch_add(1, std::memory_order_release); }
  // Whether a call is the only one in flight in the pool, and whether it has remained so. Then all growth of the pool is due to
  // this call.
  struct Solitude {
    uint64_t calls = 0;  // the number of calls so far; 0 if there are others in flight
  };
  Solitude BeginAlone(uint8_t number, bool whole, uint64_t expects);
  bool IsAlone(uint8_t number, const Solitude& since);
  // Turns live bytes into idle ones. `awaited` receives those who wait for them, since another thread may credit idle bytes.
  void Free(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes,
            Awaited* awaited = nullptr);

  // Adds bytes that an account has reserved for a call in flight.
  void Expect(uint8_t number, uint64_t bytes);

  // A reading of what the driver has reserved for the pool, after a call that may have changed it. Only a value that was read
  // after the last such call counts. The pool is not destroyed before the reading ends.
  struct Reading {
    CUmemoryPool pool;  // null if the pool is gone; then there is nothing to end
    uint64_t version;
  };
  Reading BeginReading(uint8_t number);
  // Compares the figures with the `reserved` bytes that the driver reports. If it returns false, read again; otherwise the
  // reading has ended. `credits` receives what is charged but no longer reserved; it is taken from idle memory. `*claim` is on
  // entry what the caller has claimed so far, and on return the bytes that are neither charged nor claimed by others: the
  // caller has to pay for them, owe them or leave them. With a null `claim` and no call in flight, such bytes are charged to
  // the account that took last and holds a part of the pool, else to the one that holds most. Debts of accounts that have room
  // again are paid.
  bool Reconcile(uint8_t number, Reading* reading, uint64_t reserved, uint64_t* claim,
                 std::vector<Credit>* credits);
  void EndReading(uint8_t number);
  // Whether `reserved` is what the driver had when everything was last paid for. Then a call that took idle memory has nothing
  // to reconcile. A call that changes the pool's size reconciles the change itself.
  bool IsBalanced(uint8_t number, uint64_t reserved) const {
    return pools_[number].balanced.load(std::memory_order_acquire) == reserved;
  }

  // Whether everything is paid for, so that there are no debts.
  bool IsPaid(uint8_t number) const {
    return pools_[number].balanced.load(std::memory_order_acquire) != kNever;
  }

  // Reports what became of a claim: charged within the account's limit, charged past it, or not charged.
  void Pay(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim);
  void Owe(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim);
  void Leave(uint8_t number, uint64_t claim);
  uint64_t DebtOf(uint8_t number, const quota::Account* account);  // null: all accounts

  // Marks a pool that the program has destroyed. The driver destroys it when it is empty.
  void Retire(uint8_t number) { pools_[number].retired.store(true); }
  bool Retired(uint8_t number) { return pools_[number].retired.load(); }
  // Frees the number if the pool is retired, nothing is charged for it and no reading is in progress. Else returns false.
  bool Forget(uint8_t number);
  // The pool has ended with everything in it. Returns the charges to credit.
  std::vector<Credit> Drop(uint8_t number);

  uint64_t IdleOf(uint8_t number, const quota::Account* account, uint32_t owner);
  bool HasIdle(uint8_t number, const quota::Account* account);  // null: any account
  uint8_t count() const { return count_.load(std::memory_order_acquire); }
  uint64_t BytesOf(const quota::Account* account);

 private:
  struct Debt {
    quota::Account* account;
    uint32_t owner;
    uint64_t bytes;
  };
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr size_t kAtOnce = 8;  // concurrent calls that may add an account or a debt

  struct Pool {
    quota::SpinLock lock;
    std::atomic<CUmemoryPool> handle{nullptr};
    std::atomic<int> device{kUnknown};
    std::atomic<bool> retired{false};
    uint64_t version = 0, expected = 0, readers = 0, finding = 0;
    uint64_t calls = 0, whole = 0;         // calls begun, and how many of them were `whole`
    std::atomic<uint64_t> answered{0};     // `whole` calls that the driver has answered
    const quota::Account* last = nullptr;  // the account that took last; it may be gone
    std::atomic<uint64_t> balanced{kNever};
    std::vector<Share> shares;
    std::vector<Debt> debts;

    void Prepare();
    Share& Of(quota::Account* account, uint32_t owner);
    uint64_t charged() const;
    uint64_t owed() const;
    // Reduces debts by `bytes` that the driver has given up.
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
