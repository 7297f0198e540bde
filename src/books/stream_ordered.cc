// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation from any pool. It is unknown before the call how much the pool will grow. So the size in whole units
// is reserved, unless the payer has enough idle memory there. Afterwards the pool's own figure is charged and the rest is given
// back. Growth beyond that reveals the pool's unit. If the quota has no room for it, idle memory is given up; if that is not
// enough, the allocation is freed again and refused.
#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock_lock.h"
#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {
namespace {

// An allocation near the quota waits this long for the one before it, which may be waiting for room in its stream's queue. After
// that it goes ahead; then either of the two may find the memory that the other has given back.
constexpr Nanos kMostAlone = Millis(100);

}  // namespace

Answer Books::MemAllocAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                            CUstream stream) {
  // The stream's device may differ from the current one, and there may be no current device.
  CUdevice device = payer.device;
  CUmemoryPool pool = nullptr;
  if (device >= 0 || driver_.CtxGetDevice(&device) == CUDA_SUCCESS) {
    driver_.DeviceGetMemPool(&pool, device);
  }
  return TakeFromPool(payer, pointer, bytes, pool, /*given=*/false, stream,
                      [&] { return driver_.MemAllocAsync(pointer, bytes, stream); });
}

Answer Books::MemAllocFromPoolAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                                    CUmemoryPool pool, CUstream stream) {
  return TakeFromPool(payer, pointer, bytes, pool, /*given=*/true, stream,
                      [&] { return driver_.MemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}

uint8_t Books::Register(CUmemoryPool pool, Answer* answer) {
  const int device = PoolDevice(pool);
  uint64_t reserved = 0;
  // An invalid handle must not get a number, which it would keep. The driver refuses it with its own error.
  if (device == kHost || driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                     &reserved) != CUDA_SUCCESS) {
    return 0;
  }
  const uint8_t number = pools_.NumberOf(pool);
  if (number == 0) *answer = {CUDA_ERROR_OUT_OF_MEMORY};  // 255 pools are in use
  if (number != 0 && device >= 0) pools_.SetDevice(number, device);
  return number;
}

template <typename Call>
Answer Books::TakeFromPool(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                           CUmemoryPool pool, bool given, CUstream stream, const Call& call) {
  if (pointer == nullptr || bytes == 0 || pool == nullptr) return {call()};
  while (IsCapturing(stream)) {
    // A captured allocation belongs to a graph. If the capture ended just before the call, it came from a pool and is not
    // charged.
    has_captured_.store(true, std::memory_order_relaxed);
    const Answer captured{call()};
    CUmemoryPool const of = captured.ok() ? HandleAt(*pointer) : nullptr;
    if (of == nullptr) return captured;
    const Relaxed relaxed(driver_);
    // Free it at once and trim the pool: a stream-ordered free might be captured.
    driver_.MemFree(std::exchange(*pointer, 0));
    driver_.MemPoolTrimTo(of, 0);
    if (const uint8_t number = pools_.Find(of); number != 0) Reconcile(pools_, number, nullptr);
  }
  Answer answer;
  uint8_t number = pools_.Find(pool);
  if (number == 0) number = Register(pool, &answer);
  if (number == 0) return answer.ok() ? Answer{call()} : answer;
  if (pools_.Retired(number)) return {CUDA_ERROR_INVALID_VALUE};
  quota::Account* const account = payer.account;
  uint64_t least = 0;  // the growth of the pool in an earlier try
  for (;;) {
    const uint64_t growth = std::max(InUnits(bytes, PoolUnit(number)), least);
    if (growth == quota::kUnlimited) return Refused(payer);
    Pools::Begun begun = pools_.Begin(number, account, payer.owner, bytes, least == 0);
    if (begun.debt > 0) {
      if (!PayDebt(payer, pools_, number)) return Refused(payer);
      continue;
    }
    // The idle memory may not be usable, so the pool may still grow. If there may be no room for that, calls go one at a time,
    // so that no other call gets a part of what this one gives back.
    std::optional<base::ClockLock> alone;
    const auto go_alone = [&] {
      alone.emplace(clock_, near_quota_[number], clock_.Now() + kMostAlone);
      if (!*alone) alone.reset();
    };
    if (begun.whole && IsNearQuota(*account, growth)) {
      pools_.Answered(number);
      pools_.Free(number, account, payer.owner, bytes);
      go_alone();
      begun = pools_.Begin(number, account, payer.owner, bytes, /*may_be_whole=*/true);
      if (begun.debt > 0) continue;
    }
    const bool may_grow = begun.whole && alone.has_value();
    if (may_grow) pools_.MayGrow(number);
    uint64_t ahead = 0;  // bytes reserved beyond the size, for the pool's growth
    if (!begun.whole) {
      alone.reset();
      ahead = growth - bytes;
      answer = Reserve(payer, growth);
      if (!answer.ok()) return answer;
      pools_.Expect(number, growth);
      if (IsNearQuota(*account, growth)) go_alone();
    }
    const auto give_back = [&] {
      if (begun.whole) {
        if (may_grow) pools_.End(number);
        pools_.Free(number, account, payer.owner, bytes);
      } else {
        pools_.Leave(number, growth);
      }
    };
    if (!pool_frees_.empty()) [[unlikely]] {
      const bool short_of_room = begun.whole && !HasRoom(*account, growth);
      pool_frees_.Take(number, pool, account, bytes, stream, short_of_room);
    }
    Growth its_own;
    if (alone.has_value()) {
      its_own = BeginGrowth(number, begun.whole, begun.whole ? 0 : growth);
    }
    answer.result = call();
    if (begun.whole) pools_.Answered(number);
    if (!answer.ok()) {
      give_back();
      if (!begun.whole) account->Cancel(growth);
      // The driver may have given up idle memory to find room.
      Reconcile(pools_, number, nullptr);
      return answer;
    }
    if (has_captured_.load(std::memory_order_relaxed) && HandleAt(*pointer) == nullptr) {
      // A capture began before the call, so the allocation belongs to a graph.
      give_back();
      if (!begun.whole) account->Cancel(growth);
      return answer;
    }
    if (!begun.whole) account->Commit(bytes);
    uint8_t actual = number;
    if (!given && !IsOf(*pointer, &actual)) {
      // The stream is of another device, or the current pool has changed meanwhile. Idle memory of the first pool stays there.
      give_back();
      if (actual == 0 || (begun.whole && !account->Reserve(bytes))) {
        FreeUnseen(*pointer, stream);
        *pointer = 0;
        if (!begun.whole) {
          account->Release(bytes);
          account->Cancel(ahead);
        }
        if (actual != 0) PayOrOwe(payer, pools_, actual, 0, 0);
        return Answer::AtQuota(0);
      }
      if (begun.whole) account->Commit(bytes);
      begun.whole = false;
      its_own = {};
      pools_.Expect(actual, bytes + ahead);
    }
    if (!begun.whole) pools_.Took(actual, account, payer.owner, bytes);
    const bool done = PayForAllocation(payer, pointer, bytes, actual, begun.whole, stream, ahead,
                                       its_own, &answer, &least);
    if (!begun.whole || may_grow) pools_.End(actual);
    if (done) return answer;
  }
}

// Lists the allocation and pays for the pool's growth, of which `ahead` bytes are reserved and expected. False if there is no
// room for that and `*least` is now known to the request for the first time, so that it may wait for it.
bool Books::PayForAllocation(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes,
                             uint8_t number, bool was_idle, CUstream stream, uint64_t ahead,
                             const Growth& its_own, Answer* answer, uint64_t* least) {
  if (pools_.DeviceOf(number) == Pools::kUnknown) {
    int device = Pools::kUnknown;
    driver_.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, *pointer);
    pools_.SetDevice(number, device);
  }
  const quota::Allocation entry{bytes, payer.account, quota::Kind::kPool, payer.owner, number};
  *answer = Insert(pointers_, *pointer, entry, [&] { FreeUnseen(*pointer, stream); });
  if (!answer->ok()) {
    pools_.Leave(number, ahead);
    payer.account->Cancel(ahead);
    return true;
  }
  if (was_idle && IsBalanced(pools_.HandleOf(number), number)) return true;
  uint64_t missing = ahead;
  if (PayForPool(payer, number, ahead, &missing)) return true;
  const uint64_t grown = was_idle ? missing : bytes + missing;
  LearnUnit(pool_unit_, PoolUnit(number), bytes, grown);
  // There is no room for the pool's growth.
  TakeBack(*pointer, number, stream, IsNew(number, its_own, bytes));
  *pointer = 0;
  PayOrOwe(payer, pools_, number, missing, ahead);
  if (payer.room != nullptr && payer.room->waits() && *least == 0) {
    *least = std::max(bytes, grown);
    return false;
  }
  *answer = Refused(payer);
  return true;
}

uint64_t Books::InUnits(uint64_t bytes, uint64_t unit) {
  return bytes > quota::kUnlimited - unit ? quota::kUnlimited : (bytes + unit - 1) & ~(unit - 1);
}

uint64_t Books::PoolUnit(uint8_t number) {
  const uint64_t unit = pool_unit_.load(std::memory_order_relaxed);
  if (unit != 0) return unit;
  const uint64_t told = GranularityOf(std::max(pools_.DeviceOf(number), 0));
  pool_unit_.store(told, std::memory_order_relaxed);
  return told;
}

void Books::LearnUnit(std::atomic<uint64_t>& unit, uint64_t at_least, uint64_t bytes,
                      uint64_t grown) {
  if (grown > kMostUnit) return;
  uint64_t larger = at_least;
  while (InUnits(bytes, larger) < grown) larger *= 2;
  if (InUnits(bytes, larger) == grown) unit.store(larger, std::memory_order_relaxed);
}

// Whether the account is so near its limit that several concurrent calls might not all find room for the pool's growth.
bool Books::IsNearQuota(const quota::Account& account, uint64_t growth) {
  constexpr uint64_t kCallsAtOnce = 16;
  return quota::Minus(account.most(), account.charged()) / kCallsAtOnce < growth;
}

bool Books::HasRoom(const quota::Account& account, uint64_t bytes) {
  if (quota::Minus(account.most(), account.charged()) < bytes) return false;
  if (account.source() != nullptr) return true;  // the source may give more
  const quota::Account* const parent = account.parent();
  return account.Reachable() >= bytes && (parent == nullptr || parent->Reachable() >= bytes);
}

bool Books::MayRunShort(const quota::Allocation& freed) {
  const uint64_t charged = freed.account->charged(), unit = PoolUnit(freed.place);
  const uint64_t room = quota::Minus(freed.account->most(), charged);
  return room < charged + unit &&
         room < pools_.IdleOf(freed.place, freed.account, freed.device) + freed.bytes + unit;
}

CUmemoryPool Books::HandleAt(CUdeviceptr pointer) {
  CUmemoryPool pool = nullptr;
  const CUresult result =
      driver_.PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer);
  return result == CUDA_SUCCESS ? pool : nullptr;
}

bool Books::IsCapturing(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  // For an invalid stream the call itself returns the driver's error.
  return driver_.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

// False if the pointer comes from another pool than `*number`; then sets `*number` to that pool (0 if there are too many).
bool Books::IsOf(CUdeviceptr pointer, uint8_t* number) {
  int devices = devices_.load(std::memory_order_relaxed);
  if (devices == 0 && driver_.DeviceGetCount(&devices) == CUDA_SUCCESS) devices_.store(devices);
  CUmemoryPool pool = nullptr;
  if ((devices == 1 && !has_made_pools_.load(std::memory_order_relaxed)) ||
      driver_.PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer) !=
          CUDA_SUCCESS) {
    return true;
  }
  if (pool == nullptr || pool == pools_.HandleOf(*number)) return true;
  *number = pools_.NumberOf(pool);
  return false;
}

// The pool cannot be destroyed during the call, since it has a live allocation.
bool Books::IsBalanced(CUmemoryPool pool, uint8_t number) {
  uint64_t reserved = 0;
  return driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
             CUDA_SUCCESS &&
         pools_.IsBalanced(number, reserved);
}

bool Books::PayForPool(const Payer& payer, uint8_t number, uint64_t ahead, uint64_t* claim) {
  quota::Account& account = *payer.account;
  enum { kAsItIs, kTrimmed, kAllGivenUp, kEnd };
  for (int tried = kAsItIs; tried < kEnd; ++tried) {
    if (tried == kTrimmed) {
      TrimPool(number);
      Settle();
    } else if (tried == kAllGivenUp) {
      MakeRoom(account);
    }
    Reconcile(pools_, number, claim);
    if (*claim > ahead && !account.TryReserve(*claim - ahead)) continue;
    if (*claim < ahead) account.Cancel(ahead - *claim);
    if (*claim == 0) return true;
    account.Commit(*claim);
    pools_.Pay(number, &account, payer.owner, *claim);
    return true;
  }
  return false;
}

void Books::PayOrOwe(const Payer& payer, Pools& pools, uint8_t number, uint64_t claim,
                     uint64_t ahead) {
  quota::Account& account = *payer.account;
  Reconcile(pools, number, &claim);
  if (claim < ahead) account.Cancel(ahead - claim);
  const uint64_t more = quota::Minus(claim, ahead);
  const bool room =
      more == 0 || account.TryReserve(more) || (account.Grow(more) && account.TryReserve(more));
  const uint64_t paid = room ? claim : ahead;
  if (paid > 0) {
    account.Commit(paid);
    pools.Pay(number, &account, payer.owner, paid);
  }
  if (!room) {
    account.Overdraw(more);
    pools.Owe(number, &account, payer.owner, more);
  }
}

// For both kinds of pools. Reconcile() pays the debts of accounts that have room again.
bool Books::PayDebt(const Payer& payer, Pools& pools, uint8_t number) {
  for (const bool room : {false, true}) {
    if (room) {
      MakeRoom(*payer.account);
      payer.account->Grow(1);  // covers the overdraft too
    }
    if (&pools == &pools_) TrimPool(number);
    Reconcile(pools, number, nullptr);
    if (pools.DebtOf(number, payer.account) == 0) return true;
  }
  return false;
}

// If the stream is idle the memory is freed at once, else when the stream reaches the free.
CUresult Books::FreeUnseen(CUdeviceptr pointer, CUstream stream) {
  const Relaxed relaxed(driver_);
  return driver_.StreamQuery(stream) == CUDA_SUCCESS ? driver_.MemFree(pointer)
                                                     : driver_.MemFreeAsync(pointer, stream);
}

Books::Growth Books::BeginGrowth(uint8_t number, bool whole, uint64_t expects) {
  Growth growth{pools_.BeginAlone(number, whole, expects), 0};
  if (growth.alone.calls != 0 &&
      ReservedOf(pools_, number, pools_.HandleOf(number), &growth.reserved) != CUDA_SUCCESS) {
    growth.alone.calls = 0;
  }
  return growth;
}

// Whether the pool took the memory from the device for this call alone. Then no stream has freed it before and still uses it.
// Once an allocation was captured this cannot be known.
bool Books::IsNew(uint8_t number, const Growth& since, uint64_t bytes) {
  uint64_t reserved = 0;
  if (since.alone.calls == 0 || has_captured_.load(std::memory_order_relaxed) ||
      ReservedOf(pools_, number, pools_.HandleOf(number), &reserved) != CUDA_SUCCESS) {
    return false;
  }
  return quota::Minus(reserved, since.reserved) >= bytes && pools_.IsAlone(number, since.alone);
}

void Books::TakeBack(CUdeviceptr pointer, uint8_t number, CUstream stream, bool is_new) {
  quota::Allocation allocation;
  if (!pointers_.Take(pointer, &allocation)) return;
  const CUresult freed = is_new ? driver_.MemFree(pointer) : CUDA_ERROR_NOT_READY;
  // If it cannot be freed, it still exists and stays charged.
  if (freed != CUDA_SUCCESS && FreeUnseen(pointer, stream) != CUDA_SUCCESS) {
    return Restore(pointers_, pointer, allocation);
  }
  Ended(allocation);
  TrimPool(number);
}

CUresult Books::ReservedOf(const Pools& pools, uint8_t number, CUmemoryPool pool,
                           uint64_t* reserved) {
  return &pools == &pools_
             ? driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, reserved)
             : driver_.DeviceGetGraphMemAttribute(pools.DeviceOf(number),
                                                  CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, reserved);
}

void Books::Reconcile(Pools& pools, uint8_t number, uint64_t* claim) {
  Pools::Reading reading = pools.BeginReading(number);
  std::vector<Pools::Credit> credits;
  bool settled = false;
  // If the figure keeps changing, give up: a call that ended meanwhile reads a later figure, and settles it.
  for (int i = 0; i < Pools::kReads && reading.pool != nullptr && !settled; ++i) {
    uint64_t reserved = 0;
    if (ReservedOf(pools, number, reading.pool, &reserved) != CUDA_SUCCESS) break;
    try {
      settled = pools.Reconcile(number, &reading, reserved, claim, &credits);
    } catch (const std::bad_alloc&) {
      break;  // the next call reconciles
    }
  }
  if (!settled) {
    if (reading.pool != nullptr) pools.EndReading(number);
    if (claim != nullptr) pools.Leave(number, std::exchange(*claim, 0));
  }
  Credit(credits);
}

void Books::Credit(const std::vector<Pools::Credit>& credits) {
  for (const Pools::Credit& credit : credits) {
    credit.account->Release(credit.bytes);
    if (credit.owner != kNobody && on_credit_) on_credit_(credit.owner, credit.bytes);
  }
}

void Books::TrimPool(uint8_t number) {
  const Relaxed relaxed(driver_);
  // While a reading is in progress no other thread destroys the pool.
  const Pools::Reading reading = pools_.BeginReading(number);
  if (reading.pool == nullptr) return;
  driver_.MemPoolTrimTo(reading.pool, 0);
  pools_.EndReading(number);
}

void Books::SettlePools(const quota::Account* trim) {
  for (unsigned i = 1; i <= pools_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    const bool retired = pools_.Retired(number);
    if (!retired && pools_.IsPaid(number) && !pools_.HasIdle(number, nullptr)) continue;
    if (retired || pools_.DebtOf(number, nullptr) > 0 ||
        (trim != nullptr && pools_.HasIdle(number, trim))) {
      TrimPool(number);
    }
    Reconcile(pools_, number, nullptr);
    if (!retired) continue;
    CUmemoryPool const pool = pools_.HandleOf(number);
    if (pools_.Forget(number)) driver_.MemPoolDestroy(pool);
  }
}

}  // namespace gpushare::books
