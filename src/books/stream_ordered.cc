// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation, from any pool. By how much a pool grows is unknown before the call: reserved before is
// the size, as far as it does not lie idle there; afterwards the pool's own figure is charged. Where the quota has no
// room for it, idle memory is given up, else the allocation is freed again and refused.
#include <new>
#include <utility>
#include <vector>

#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {

Answer Books::MemAllocAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                            CUstream stream) {
  // The stream's device may be another than the current one, and none need be current.
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
  // A handle that is nobody's must not have a number: it would keep it. The driver refuses it, in its own words.
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
    // What is captured becomes a graph's. Where the capture has ended before the call it is of a pool, and not paid for.
    has_captured_.store(true, std::memory_order_relaxed);
    const Answer captured{call()};
    CUmemoryPool const of = captured.ok() ? HandleAt(*pointer) : nullptr;
    if (of == nullptr) return captured;
    const Relaxed relaxed(driver_);
    // At once, and with what the pool keeps of it: in the stream's order it may be captured.
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
  uint64_t ahead = 0;  // by which the pool grew more than was asked, when it was tried
  for (;;) {
    Pools::Begun begun = pools_.Begin(number, account, payer.owner, bytes, ahead);
    if (begun.debt > 0) {
      if (!PayDebt(payer, pools_, number)) return Refused(payer);
      continue;
    }
    uint64_t reserved = bytes - begun.idle + ahead;
    if (reserved > 0 && !account->TryReserve(reserved)) {
      // To wait with idle memory in hand would be to keep it from those who are waited for.
      pools_.Abandon(number, account, payer.owner, std::exchange(begun.idle, 0), bytes + ahead);
      reserved = bytes + ahead;
      answer = Reserve(payer, reserved);
      if (!answer.ok()) return answer;
      pools_.Expect(number, reserved);
    }
    const auto give_back = [&] {
      if (begun.whole) {
        pools_.Free(number, account, payer.owner, bytes);
      } else {
        pools_.Abandon(number, account, payer.owner, begun.idle, bytes + ahead);
      }
    };
    answer.result = call();
    if (!answer.ok()) {
      give_back();
      if (reserved > 0) account->Cancel(reserved);
      // The driver may have given idle memory up, looking for room.
      Reconcile(pools_, number, nullptr);
      return answer;
    }
    if (has_captured_.load(std::memory_order_relaxed) && HandleAt(*pointer) == nullptr) {
      // A capture has begun before the call.
      give_back();
      if (reserved > 0) account->Cancel(reserved);
      return answer;
    }
    if (reserved > 0) account->Commit(reserved);
    uint8_t actual = number;
    if (!given && !IsOf(*pointer, &actual)) {
      // Of a stream of another device, or the current pool is another meanwhile. What lies idle stays where it is.
      give_back();
      begun.whole = false;
      if (actual == 0 || (begun.idle > 0 && !account->Reserve(begun.idle))) {
        FreeUnseen(*pointer, stream);
        *pointer = 0;
        account->Release(reserved);
        if (actual != 0) PayOrOwe(payer, pools_, actual, 0);
        return Answer::AtQuota(0);
      }
      account->Commit(begun.idle);
      pools_.Expect(actual, bytes + ahead);
    }
    if (!begun.whole) pools_.Took(actual, account, payer.owner, bytes, ahead);
    const bool done =
        PayForAllocation(payer, pointer, bytes, actual, begun.whole, stream, &answer, &ahead);
    if (!begun.whole) pools_.End(actual);
    if (done) return answer;
  }
}

// Lists what was allocated and pays for what the pool grew by. False: there is no room for that, and `*ahead` was not
// known to the request before: it may wait for it.
bool Books::PayForAllocation(const Payer& payer, CUdeviceptr* pointer, uint64_t bytes,
                             uint8_t number, bool was_idle, CUstream stream, Answer* answer,
                             uint64_t* ahead) {
  if (pools_.DeviceOf(number) == Pools::kUnknown) {
    int device = Pools::kUnknown;
    driver_.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, *pointer);
    pools_.SetDevice(number, device);
  }
  const quota::Allocation entry{bytes, payer.account, quota::Kind::kPool, payer.owner, number};
  *answer = Insert(pointers_, *pointer, entry, [&] { FreeUnseen(*pointer, stream); });
  if (!answer->ok()) return true;
  if (was_idle && IsBalanced(pools_.HandleOf(number), number)) return true;
  uint64_t missing = 0;
  if (PayForPool(payer, number, &missing)) return true;
  // No room for what the pool has grown by.
  TakeBack(*pointer, number, stream);
  *pointer = 0;
  PayOrOwe(payer, pools_, number, missing);
  if (payer.wait != nullptr && *ahead == 0) {
    *ahead = missing;
    return false;
  }
  *answer = Refused(payer);
  return true;
}

CUmemoryPool Books::HandleAt(CUdeviceptr pointer) {
  CUmemoryPool pool = nullptr;
  const CUresult result =
      driver_.PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer);
  return result == CUDA_SUCCESS ? pool : nullptr;
}

bool Books::IsCapturing(CUstream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  // Of a stream that is none the driver says so in the call itself.
  return driver_.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

// False when the pointer is of another pool than `*number`, which it then is (0: one too many).
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

// What is live in it keeps the pool for as long as it is asked.
bool Books::IsBalanced(CUmemoryPool pool, uint8_t number) {
  uint64_t reserved = 0;
  return driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) ==
             CUDA_SUCCESS &&
         pools_.IsBalanced(number, reserved);
}

bool Books::PayForPool(const Payer& payer, uint8_t number, uint64_t* claim) {
  enum { kAsItIs, kTrimmed, kAllGivenUp, kEnd };
  for (int tried = kAsItIs; tried < kEnd; ++tried) {
    if (tried == kTrimmed) {
      TrimPool(number);
      Settle();
    } else if (tried == kAllGivenUp) {
      MakeRoom(*payer.account);
    }
    Reconcile(pools_, number, claim);
    if (*claim == 0) return true;
    if (payer.account->TryReserve(*claim)) {
      payer.account->Commit(*claim);
      pools_.Pay(number, payer.account, payer.owner, *claim);
      return true;
    }
  }
  return false;
}

void Books::PayOrOwe(const Payer& payer, Pools& pools, uint8_t number, uint64_t claim) {
  quota::Account& account = *payer.account;
  Reconcile(pools, number, &claim);
  if (claim == 0) return;
  if (account.TryReserve(claim) || (account.Grow(claim) && account.TryReserve(claim))) {
    account.Commit(claim);
    pools.Pay(number, &account, payer.owner, claim);
  } else {
    account.Overdraw(claim);
    pools.Owe(number, &account, payer.owner, claim);
  }
}

// Of pools of either kind. Debts of who has room again are paid as soon as anybody reconciles.
bool Books::PayDebt(const Payer& payer, Pools& pools, uint8_t number) {
  for (const bool room : {false, true}) {
    if (room) {
      MakeRoom(*payer.account);
      payer.account->Grow(1);  // as far as it is overdrawn, and beyond
    }
    if (&pools == &pools_) TrimPool(number);
    Reconcile(pools, number, nullptr);
    if (pools.DebtOf(number, payer.account) == 0) return true;
  }
  return false;
}

// Where the stream has nothing left to do the memory is free at once, else only when it comes to it.
CUresult Books::FreeUnseen(CUdeviceptr pointer, CUstream stream) {
  const Relaxed relaxed(driver_);
  return driver_.StreamQuery(stream) == CUDA_SUCCESS ? driver_.MemFree(pointer)
                                                     : driver_.MemFreeAsync(pointer, stream);
}

void Books::TakeBack(CUdeviceptr pointer, uint8_t number, CUstream stream) {
  quota::Allocation allocation;
  if (!pointers_.Take(pointer, &allocation)) return;
  // Else it is there, and charged.
  if (FreeUnseen(pointer, stream) != CUDA_SUCCESS) {
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
  // A call that ended meanwhile reads what is true later than this one, and settles it.
  for (int i = 0; i < Pools::kReads && reading.pool != nullptr && !settled; ++i) {
    uint64_t reserved = 0;
    if (ReservedOf(pools, number, reading.pool, &reserved) != CUDA_SUCCESS) break;
    try {
      settled = pools.Reconcile(number, &reading, reserved, claim, &credits);
    } catch (const std::bad_alloc&) {
      break;  // the next look will do
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
    if (on_credit_) on_credit_(credit.owner, credit.bytes);
  }
}

void Books::TrimPool(uint8_t number) {
  const Relaxed relaxed(driver_);
  // As long as it is read another thread does not have the driver destroy it.
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
