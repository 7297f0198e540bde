// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation, from any pool. By how much a pool grows is unknown before the call: reserved before is
// the size, as far as it does not lie idle there; afterwards the pool's own figure is charged. Where the quota has no
// room for it, idle memory is given up, else the allocation is freed again and refused.
#include <utility>
#include <vector>

#include "books/books.h"
#include "books/relaxed.h"

namespace gpushare::books {

namespace {

constexpr int kReads = 64;  // of a pool that other threads use at once

}  // namespace

Answer Books::MemAllocAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                            CUstream stream) {
  // The pool of the current device, which is the stream's but in programs of several GPUs.
  CUdevice device = 0;
  CUmemoryPool pool = nullptr;
  if (driver_.CtxGetDevice(&device) == CUDA_SUCCESS) driver_.DeviceGetMemPool(&pool, device);
  return TakeFromPool(payer, pointer, bytes, pool, stream,
                      [&] { return driver_.MemAllocAsync(pointer, bytes, stream); });
}

Answer Books::MemAllocFromPoolAsync(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                                    CUmemoryPool pool, CUstream stream) {
  return TakeFromPool(payer, pointer, bytes, pool, stream,
                      [&] { return driver_.MemAllocFromPoolAsync(pointer, bytes, pool, stream); });
}

template <typename Call>
Answer Books::TakeFromPool(const Payer& payer, CUdeviceptr* pointer, size_t bytes,
                           CUmemoryPool pool, CUstream stream, const Call& call) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  // What is captured becomes a graph's.
  if (pointer == nullptr || bytes == 0 || pool == nullptr ||
      driver_.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
      capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return {call()};
  }
  const uint8_t number = pools_.NumberOf(pool);
  if (number == 0) return {CUDA_ERROR_OUT_OF_MEMORY};  // 255 pools are in use
  if (pools_.Retired(number)) return {CUDA_ERROR_INVALID_VALUE};
  quota::Account* const account = payer.account;
  uint64_t ahead = 0;  // by which the pool grew more than was asked, when it was tried
  for (;;) {
    uint64_t idle = pools_.TakeIdle(number, account, bytes);
    uint64_t reserved = bytes - idle + ahead;
    Answer answer;
    if (idle == 0 || !account->TryReserve(reserved)) {
      // To wait with idle memory in hand would be to keep it from those who are waited for.
      pools_.AddIdle(number, account, payer.owner, idle);
      pools_.ExpectNoMore(number, std::exchange(idle, 0));
      reserved = bytes + ahead;
      answer = Reserve(payer, reserved);
      if (!answer.ok()) return answer;
    }
    pools_.Expect(number, reserved);
    answer.result = call();
    if (!answer.ok()) {
      pools_.AddIdle(number, account, payer.owner, idle);
      pools_.ExpectNoMore(number, bytes + ahead);
      account->Cancel(reserved);
      // The driver may have given idle memory up, looking for room.
      uint64_t missing = 0;
      PayForPool(payer, number, &missing);
      return answer;
    }
    account->Commit(reserved);
    uint8_t actual = number;
    if (!FindPool(*pointer, &actual)) {
      // Of a stream of another device. Its own pool's idle memory stays where it is.
      pools_.ExpectNoMore(number, bytes + ahead);
      pools_.AddIdle(number, account, payer.owner, idle);
      if (actual == 0 || (idle > 0 && !account->Reserve(idle))) {
        driver_.MemFree(*pointer);
        account->Release(reserved);
        return Answer::AtQuota(0);
      }
      account->Commit(idle);
      pools_.AddLive(actual, account, payer.owner, bytes);
    } else {
      pools_.AddLive(number, account, payer.owner, bytes);
      pools_.ExpectNoMore(number, bytes + ahead);
    }
    pools_.AddIdle(actual, account, payer.owner, ahead);
    if (pools_.DeviceOf(actual) < 0) {
      int device = -1;
      driver_.PointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, *pointer);
      pools_.SetDevice(actual, device);
    }
    const quota::Allocation entry{bytes, account, quota::Kind::kPool, payer.owner, actual};
    answer = Insert(pointers_, *pointer, entry, [&] { driver_.MemFree(*pointer); });
    if (!answer.ok()) return answer;
    uint64_t missing = 0;
    if (PayForPool(payer, actual, &missing)) return answer;
    // No room for what the pool has grown by.
    TakeBack(*pointer, actual);
    *pointer = 0;
    if (payer.wait == nullptr || ahead != 0) {
      return Refused(payer);
    }
    ahead = missing;
  }
}

// False when the pointer is of another pool than `*number`, which it then is (0: one too many).
bool Books::FindPool(CUdeviceptr pointer, uint8_t* number) {
  int devices = 1;
  driver_.DeviceGetCount(&devices);
  CUmemoryPool pool = nullptr;
  if (devices == 1 || driver_.PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                                  pointer) != CUDA_SUCCESS) {
    return true;
  }
  if (pool == nullptr || pool == pools_.HandleOf(*number)) return true;
  *number = pools_.NumberOf(pool);
  return false;
}

bool Books::PayForPool(const Payer& payer, uint8_t number, uint64_t* missing) {
  for (const bool trim : {false, true}) {
    if (trim) {
      TrimPool(number);
      Settle();
    }
    *missing = ReconcilePool(number);
    if (*missing == 0) return true;
    if (payer.account->TryReserve(*missing)) {
      payer.account->Commit(*missing);
      pools_.AddIdle(number, payer.account, payer.owner, *missing);
      return true;
    }
  }
  if (!MakeRoom(*payer.account) || !payer.account->TryReserve(*missing)) return false;
  payer.account->Commit(*missing);
  pools_.AddIdle(number, payer.account, payer.owner, *missing);
  return true;
}

void Books::TakeBack(CUdeviceptr pointer, uint8_t number) {
  quota::Allocation allocation;
  if (!pointers_.Take(pointer, &allocation)) return;
  CUresult freed;
  {
    const Relaxed relaxed(driver_);
    freed = driver_.MemFree(pointer);
  }
  if (freed != CUDA_SUCCESS)
    return Restore(pointers_, pointer, allocation);  // it is there, and charged
  Ended(allocation);
  TrimPool(number);
  ReconcilePool(number);
}

// What nobody is charged for is the result; what is charged and gone is credited.
uint64_t Books::ReconcilePool(uint8_t number) {
  pools_.Changed(number);
  uint64_t missing = 0;
  std::vector<Pools::Credit> credits;
  for (int i = 0; i < kReads; ++i) {
    const uint64_t version = pools_.Version(number);
    uint64_t reserved = 0;
    CUmemoryPool const pool = pools_.HandleOf(number);
    if (pool == nullptr || driver_.MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
                                                       &reserved) != CUDA_SUCCESS) {
      return 0;
    }
    // A call that ended meanwhile reads what is true later than this one, and settles it.
    if (pools_.Reconcile(number, version, reserved, &missing, &credits)) break;
  }
  Credit(credits);
  return missing;
}

void Books::Credit(const std::vector<Pools::Credit>& credits) {
  for (const Pools::Credit& credit : credits) {
    credit.account->Release(credit.bytes);
    if (on_credit_) on_credit_(credit.owner, credit.bytes);
  }
}

void Books::TrimPool(uint8_t number) {
  const Relaxed relaxed(driver_);
  if (CUmemoryPool const pool = pools_.HandleOf(number); pool != nullptr) {
    driver_.MemPoolTrimTo(pool, 0);
  }
}

void Books::SettlePools(const quota::Account* trim) {
  for (unsigned i = 1; i <= pools_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    const bool retired = pools_.Retired(number);
    if (!retired && !pools_.HasIdle(number, nullptr)) continue;
    if (retired || (trim != nullptr && pools_.HasIdle(number, trim))) TrimPool(number);
    ReconcilePool(number);
    if (!retired) continue;
    CUmemoryPool const pool = pools_.HandleOf(number);
    if (pools_.Forget(number)) driver_.MemPoolDestroy(pool);
  }
}

CUresult Books::MemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  const CUresult result = driver_.MemPoolTrimTo(pool, keep);
  SettlePools(nullptr);
  return result;
}

// A pool in which something is left stays with the driver until it is not, since only so it tells what it holds. To
// the program it is gone.
CUresult Books::MemPoolDestroy(CUmemoryPool pool) {
  int devices = 0;
  driver_.DeviceGetCount(&devices);
  for (CUdevice device = 0; device < devices; ++device) {
    CUmemoryPool standard = nullptr, current = nullptr;
    driver_.DeviceGetDefaultMemPool(&standard, device);
    if (standard == pool) return driver_.MemPoolDestroy(pool);  // which refuses
    driver_.DeviceGetMemPool(&current, device);
    if (pool != nullptr && current == pool) driver_.DeviceSetMemPool(device, standard);
  }
  uint8_t number = 0;
  for (unsigned i = 1; i <= pools_.count() && pool != nullptr; ++i) {
    if (pools_.HandleOf(static_cast<uint8_t>(i)) == pool) number = static_cast<uint8_t>(i);
  }
  if (number == 0) return driver_.MemPoolDestroy(pool);
  if (pools_.Retired(number)) return CUDA_ERROR_INVALID_VALUE;
  pools_.Retire(number);
  SettlePools(nullptr);
  return CUDA_SUCCESS;
}

// A reset of the device ends its pools with all that was allocated from them; the default one begins anew.
void Books::DropPools(CUdevice device) {
  for (unsigned i = 1; i <= pools_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    const int of = pools_.DeviceOf(number);
    if (pools_.HandleOf(number) == nullptr || (of >= 0 && of != device)) continue;
    const auto held = [&](const quota::Allocation& one) {
      return one.kind == quota::Kind::kPool && one.place == number;
    };
    pointers_.TakeWhere(held);
    Credit(pools_.Drop(number));
  }
  graph_trims_.fetch_add(1);
  for (unsigned i = 1; i <= graphs_.count(); ++i) {
    const auto number = static_cast<uint8_t>(i);
    if (graphs_.DeviceOf(number) == device) Credit(graphs_.Drop(number));
  }
}

}  // namespace gpushare::books
