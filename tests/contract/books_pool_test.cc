// SPDX-License-Identifier: Apache-2.0
// Behaviour that only pools and external memory have.
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "tests/contract/books_bed.h"

namespace gpushare::books {
namespace {

class BooksPool : public BooksTest {
 protected:
  explicit BooksPool(uint64_t granule = kGranule) : BooksTest("virtual", 1, granule) {}
  CUmemoryPool NewPool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    auto* const create = reinterpret_cast<CUresult (*)(CUmemoryPool*, const CUmemPoolProps*)>(
        driver_->Symbol("cuMemPoolCreate"));
    CUmemoryPool pool = nullptr;
    EXPECT_CU(create(&pool, &properties));
    uint64_t keep = UINT64_MAX;  // the pool releases memory only when asked to
    auto* const set = reinterpret_cast<CUresult (*)(CUmemoryPool, CUmemPool_attribute, void*)>(
        driver_->Symbol("cuMemPoolSetAttribute"));
    EXPECT_CU(set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    return pool;
  }
  CUstream NewStream() {
    CUstream stream = nullptr;
    EXPECT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    return stream;
  }
  void Set(CUmemoryPool pool, CUmemPool_attribute attribute, int value) {
    EXPECT_CU(cu_->MemPoolSetAttribute(pool, attribute, &value));
  }
  // The most that the current pool has reserved since its high-water mark was reset.
  uint64_t MostReserved() {
    CUmemoryPool pool = nullptr;
    uint64_t most = 0;
    EXPECT_CU(cu_->DeviceGetMemPool(&pool, 0));
    EXPECT_CU(cu_->MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &most));
    uint64_t anew = 0;
    EXPECT_CU(cu_->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &anew));
    return most;
  }
  Answer From(CUmemoryPool pool, uint64_t bytes, CUdeviceptr* pointer,
              quota::Account* account = nullptr) {
    return books_->MemAllocFromPoolAsync(
        {.account = account != nullptr ? account : account_.get(), .owner = 1}, pointer, bytes,
        pool, stream_);
  }
};

TEST_F(BooksPool, WhatLiesIdleIsChargedAndServesItsOwner) {
  CUmemoryPool const pool = NewPool();
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(From(pool, kLimit, &pointer).ok());
  EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectExact();
  EXPECT_EQ(account_->charged(), kLimit);
  ASSERT_TRUE(
      From(pool, kLimit / 2, &pointer).ok());  // the quota is used up, but nothing more is needed
  ExpectExact();
  // The pool gives up the other half for another family.
  CUdeviceptr direct = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &direct, kLimit / 4).ok());
  EXPECT_EQ(account_->Usage().denied, 0u);
  ExpectExact();
  EXPECT_CU(books_->MemFree(direct));
  EXPECT_CU(books_->MemFree(pointer));
  EXPECT_CU(books_->MemPoolTrimTo(pool, 0));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksPool, ATenantThatTakesWhatAnotherLeftIdlePaysForIt) {
  CUmemoryPool const pool = NewPool();
  const auto second = NewAccount(kLimit);
  CUdeviceptr pointer = 0, theirs = 0;
  ASSERT_TRUE(From(pool, 16 * kMiB, &pointer).ok());
  EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
  ASSERT_TRUE(From(pool, 16 * kMiB, &theirs, second.get()).ok());
  EXPECT_EQ(second->charged(), 16 * kMiB);
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_EQ(Used(), 16 * kMiB);
  EXPECT_CU(books_->MemFreeAsync(theirs, stream_));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  EXPECT_CU(books_->MemPoolTrimTo(pool, 0));
  EXPECT_EQ(second->charged(), 0u);
}

TEST_F(BooksPool, GrowthThatTheQuotaHasNoRoomForIsRefused) {
  CUdeviceptr direct = 0, pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &direct, kLimit - kGranule / 2).ok());
  // A granule for this allocation would exceed the quota.
  const Answer answer = books_->MemAllocAsync(payer(), &pointer, 100, stream_);
  EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(answer.at_quota);
  EXPECT_EQ(answer.left, kGranule / 2);
  EXPECT_EQ(MostReserved(), 0u);  // the driver was not called
  ExpectExact();
  EXPECT_EQ(account_->Usage().denied, 1u);
  EXPECT_CU(books_->MemFree(direct));
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &pointer, 100, stream_).ok());
  ExpectExact();
}

// Idle memory may be usable by another stream only. If the program does not let streams wait for each other to reuse
// it, the pool grows. When the pool also gave memory up at the same time, its growth looks smaller than the
// allocation. A part of the growth may be memory that the stream itself has freed since, and the pool keeps that
// until the stream reaches the free.
TEST_F(BooksPool, GrowthOnABusyStreamIsOwedUntilItsStreamComesToTheFree) {
  const CUstream other = NewStream();
  CUmemoryPool current = nullptr;
  ASSERT_CU(cu_->DeviceGetMemPool(&current, 0));
  Set(current, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
  CUdeviceptr first = 0, work = 0, second = 0, little = 0;
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &little, 4 * kMiB, other).ok());
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 48 * kMiB, other).ok());
  ASSERT_CU(books_->MemFreeAsync(little, other));
  ASSERT_TRUE(books_->MemAlloc(payer(), &work, kMiB).ok());
  ASSERT_CU(cu_->MemsetD8Async(first, 1, 48 * kMiB, other));
  ASSERT_CU(cu_->MemsetD8Async(work, 1, kMiB, stream_));
  ASSERT_CU(books_->MemFreeAsync(first, other));
  const Answer answer = books_->MemAllocAsync(payer(), &second, 48 * kMiB, stream_);
  EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(answer.at_quota);
  // The device holds both allocations, and the books charge both.
  EXPECT_GT(Used(), kLimit);
  EXPECT_GE(account_->charged(), Used());
  EXPECT_FALSE(books_->MemAlloc(payer(), &first, 1).ok());
  ASSERT_CU(cu_->StreamSynchronize(stream_));
  ASSERT_CU(cu_->StreamSynchronize(other));
  EXPECT_TRUE(books_->MemAlloc(payer(), &first, 48 * kMiB).ok());
  ExpectExact();
}

// Memory that is known to be new can be released at once, since no stream has to be waited for.
TEST_F(BooksPool, GrowthOnABusyStreamThatIsKnownToBeNewGoesAtOnce) {
  const CUstream other = NewStream();
  CUmemoryPool current = nullptr;
  ASSERT_CU(cu_->DeviceGetMemPool(&current, 0));
  Set(current, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
  CUdeviceptr first = 0, work = 0, second = 0;
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 48 * kMiB, other).ok());
  ASSERT_TRUE(books_->MemAlloc(payer(), &work, kMiB).ok());
  ASSERT_CU(cu_->MemsetD8Async(first, 1, 48 * kMiB, other));
  ASSERT_CU(cu_->MemsetD8Async(work, 1, kMiB, stream_));
  ASSERT_CU(books_->MemFreeAsync(first, other));
  EXPECT_TRUE(books_->MemAllocAsync(payer(), &second, 48 * kMiB, stream_).at_quota);
  EXPECT_EQ(cu_->StreamQuery(stream_), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Used(), 49 * kMiB);
  ExpectExact();
  EXPECT_TRUE(books_->MemAlloc(payer(), &second, kMiB).ok());
}

// By default the stream waits on the device for the other stream's free, as the driver makes it wait when the device
// is full. The device never holds more than the quota.
TEST_F(BooksPool, AnAllocationFollowsTheFreesOfOtherStreamsAtTheQuota) {
  const CUstream other = NewStream();
  CUdeviceptr first = 0, second = 0, third = 0;
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 48 * kMiB, other).ok());
  ASSERT_CU(cu_->MemsetD8Async(first, 1, 48 * kMiB, other));
  ASSERT_CU(books_->MemFreeAsync(first, other));
  EXPECT_EQ(cu_->StreamQuery(other), CUDA_ERROR_NOT_READY);
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &second, 48 * kMiB, stream_).ok());
  EXPECT_EQ(MostReserved(), 48 * kMiB);
  EXPECT_EQ(account_->charged(), 48 * kMiB);
  ASSERT_CU(cu_->MemsetD8Async(second, 2, 48 * kMiB, stream_));
  ASSERT_CU(cu_->StreamSynchronize(stream_));
  EXPECT_CU(cu_->StreamQuery(other));  // this stream ran after the other one
  // A stream reuses its own memory without waiting for another stream.
  ASSERT_CU(cu_->MemsetD8Async(second, 3, 48 * kMiB, stream_));
  ASSERT_CU(books_->MemFreeAsync(second, stream_));
  const uint64_t waits = sim_->calls("cuStreamWaitEvent");
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &third, 48 * kMiB, stream_).ok());
  EXPECT_EQ(sim_->calls("cuStreamWaitEvent"), waits);
  ExpectExact();
}

// Two streams that keep reusing the memory that they freed themselves do not wait for each other.
TEST_F(BooksPool, StreamsThatTakeWhatTheyFreedDoNotFollowEachOther) {
  CUmemoryPool const pool = NewPool();
  const CUstream streams[] = {stream_, NewStream()};
  CUdeviceptr held[2] = {};
  const auto from = [&](int i) {
    return books_->MemAllocFromPoolAsync(payer(), &held[i], 28 * kMiB, pool, streams[i]).ok();
  };
  ASSERT_TRUE(from(0) && from(1));
  for (int round = 0; round < 50; ++round) {
    for (const int i : {round % 2, 1 - round % 2}) {
      ASSERT_CU(cu_->MemsetD8Async(held[i], 1, 28 * kMiB, streams[i]));
      ASSERT_CU(books_->MemFreeAsync(held[i], streams[i]));
    }
    for (const int i : {0, 1}) ASSERT_TRUE(from(i));
  }
  EXPECT_EQ(sim_->calls("cuStreamWaitEvent"), 0u);
  EXPECT_EQ(account_->Usage().peak, 56 * kMiB);
  ExpectExact();
}

// Far from the quota no events are recorded for frees, and no stream waits for another.
TEST_F(BooksPool, WhereThereIsRoomNothingIsFollowed) {
  const CUstream other = NewStream();
  CUdeviceptr first = 0, second = 0;
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 16 * kMiB, other).ok());
  ASSERT_CU(cu_->MemsetD8Async(first, 1, 16 * kMiB, other));
  ASSERT_CU(books_->MemFreeAsync(first, other));
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &second, 16 * kMiB, stream_).ok());
  EXPECT_EQ(sim_->calls("cuEventRecord") + sim_->calls("cuStreamWaitEvent"), 0u);
  EXPECT_EQ(MostReserved(), 32 * kMiB);
  ExpectExact();
}

// The event of a free ends with its context, and the stream's handle with the stream.
TEST_F(BooksPool, WhoFreedMayBeGoneBeforeItIsFollowed) {
  for (const bool with_context : {false, true}) {
    CUcontext context = nullptr, popped = nullptr;
    if (with_context) {
      ASSERT_CU((reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
          driver_->Symbol("cuCtxCreate_v2"))(&context, 0, 0)));
    }
    const CUstream other = NewStream();
    CUdeviceptr first = 0, second = 0;
    ASSERT_TRUE(books_->MemAllocAsync(payer(), &first, 48 * kMiB, other).ok());
    ASSERT_CU(cu_->MemsetD8Async(first, 1, 48 * kMiB, other));
    ASSERT_CU(books_->MemFreeAsync(first, other));
    if (with_context) {
      ASSERT_CU(cu_->CtxPopCurrent(&popped));
      ASSERT_CU(books_->CtxDestroy(context));
    } else {
      ASSERT_CU(cu_->StreamDestroy(other));
    }
    ASSERT_TRUE(books_->MemAllocAsync(payer(), &second, 48 * kMiB, stream_).ok());
    EXPECT_LE(MostReserved(), kLimit);
    ASSERT_CU(books_->MemFreeAsync(second, stream_));
    ASSERT_CU(cu_->StreamSynchronize(stream_));
    ExpectExact();
  }
}

class BooksPoolOfLargeGranules : public BooksPool {
 protected:
  BooksPoolOfLargeGranules() : BooksPool(32 * kMiB) {}
};

TEST_F(BooksPoolOfLargeGranules, ALargerUnitIsFoundOutOnce) {
  CUdeviceptr held = 0, pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &held, kLimit - 4 * kMiB).ok());
  const Answer refused = books_->MemAllocAsync(payer(), &pointer, kMiB, stream_);
  EXPECT_TRUE(refused.at_quota);
  EXPECT_EQ(refused.left, 4 * kMiB);
  EXPECT_EQ(MostReserved(), 32 * kMiB);
  ExpectExact();
  EXPECT_TRUE(books_->MemAllocAsync(payer(), &pointer, kMiB, stream_).at_quota);
  EXPECT_EQ(MostReserved(), 0u);
  EXPECT_CU(books_->MemFree(held));
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &pointer, 33 * kMiB, stream_).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 64 * kMiB);
}

TEST_F(BooksPool, ADestroyedPoolIsChargedUntilItsMemoryIsGone) {
  CUmemoryPool const pool = NewPool();
  CUdeviceptr one = 0, two = 0;
  ASSERT_TRUE(From(pool, 5 * kMiB, &one).ok());
  ASSERT_TRUE(From(pool, 7 * kMiB, &two).ok());
  EXPECT_CU(books_->MemPoolDestroy(pool));
  EXPECT_EQ(books_->MemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr none = 0;
  EXPECT_EQ(From(pool, 1, &none).result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(books_->MemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(books_->IsDestroyed(pool));
  EXPECT_FALSE(books_->IsDestroyed(NewPool()));
  ExpectExact();
  EXPECT_GE(account_->charged(), 12 * kMiB);
  EXPECT_CU(books_->MemFreeAsync(one, stream_));
  EXPECT_CU(books_->MemFreeAsync(two, stream_));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_EQ(cu_->MemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);  // the driver's pool is gone too
  CUmemoryPool standard = nullptr;
  EXPECT_CU(cu_->DeviceGetDefaultMemPool(&standard, 0));
  EXPECT_EQ(books_->MemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
}

// A waiter that looks only once by itself is woken by the thread that frees: at once, or when the stream has reached
// the free.
TEST_F(BooksPool, WhoWaitsIsToldWhenMemoryIsFree) {
  base::Clock& clock = driver_->clock();
  sim_->thread_enter("test");
  for (const bool in_pool : {true, false}) {
    for (const int how :
         {0, 1, 2}) {  // freed in its busy stream; in an idle stream; without a stream
      const CUstream busy = NewStream();
      CUdeviceptr held = 0;
      ASSERT_TRUE((in_pool ? books_->MemAllocAsync(payer(), &held, 48 * kMiB, busy)
                           : books_->MemAlloc(payer(), &held, 48 * kMiB))
                      .ok());
      Time served{};
      int looks = 0;
      const auto waiter = clock.StartThread("waiter", [&] {
        ASSERT_CU(cu_->CtxPushCurrent(context_));
        const auto wait = [&](quota::Account& account, uint64_t bytes) {
          return account.ReserveBefore(bytes, clock, clock.Now() + Seconds(1), nullptr, [&] {
            ++looks;
            books_->MakeRoom(account);
            account.Poll();
            return kNever;
          });
        };
        RoomBy waits(wait);
        Payer patient = payer();
        patient.room = &waits;
        CUdeviceptr mine = 0;
        EXPECT_TRUE(books_->MemAlloc(patient, &mine, 40 * kMiB).ok())
            << in_pool << how << looks << sim_->calls("cuLaunchHostFunc");
        served = clock.Now();
        EXPECT_CU(books_->MemFree(mine));
        CUcontext popped = nullptr;
        EXPECT_CU(cu_->CtxPopCurrent(&popped));
      });
      clock.SleepUntil(clock.Now() + Millis(1));
      if (how == 0) {
        for (int i = 0; i < 100; ++i) ASSERT_CU(cu_->MemsetD8Async(held, 1, 48 * kMiB, busy));
      }
      ASSERT_CU(how == 2 ? books_->MemFree(held) : books_->MemFreeAsync(held, busy));
      ASSERT_CU(cu_->StreamSynchronize(busy));
      const Time free = clock.Now();
      EXPECT_EQ(served, Time{});  // not served earlier
      waiter->Join();
      EXPECT_LE(served - free, Micros(21)) << in_pool << how;  // a wake-up takes 20 us
      EXPECT_LE(looks, 2) << in_pool << how;
      ExpectExact();
      EXPECT_CU(cu_->StreamDestroy(busy));
    }
  }
  sim_->thread_leave();
}

// A stream with a full queue waits for a value. Who puts a free into it waits too; all others go on.
TEST_F(BooksPool, AFreeIntoAFullStreamKeepsNobodyElseWaiting) {
  using ValueCall = CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  auto* const wait = reinterpret_cast<ValueCall*>(driver_->Symbol("cuStreamWaitValue32_v2"));
  auto* const write = reinterpret_cast<ValueCall*>(driver_->Symbol("cuStreamWriteValue32_v2"));
  constexpr int kQueue = 1024;
  base::Clock& clock = driver_->clock();
  sim_->thread_enter("test");
  CUmemoryPool pool = nullptr;
  uint64_t keep = UINT64_MAX;
  ASSERT_CU(cu_->DeviceGetDefaultMemPool(&pool, 0));
  ASSERT_CU(cu_->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  const CUstream full = NewStream(), other = NewStream(), free = NewStream();
  CUdeviceptr word = 0, one = 0, two = 0, rest = 0;
  ASSERT_CU(cu_->MemAlloc(&word, 4096));
  ASSERT_CU(cu_->MemsetD8Async(word, 0, 8, free));
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &one, 20 * kMiB, full).ok());
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &two, 20 * kMiB, other).ok());
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &rest, 22 * kMiB, other).ok());
  for (const CUstream stream : {full, other, free}) ASSERT_CU(cu_->StreamSynchronize(stream));
  // The free is noted, since the quota is near, and not reached yet.
  ASSERT_CU(wait(other, word + 4, 1, CU_STREAM_WAIT_VALUE_EQ));
  ASSERT_CU(books_->MemFreeAsync(two, other));
  ASSERT_CU(wait(full, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  for (int i = 2; i < kQueue; ++i) ASSERT_CU(cu_->MemsetD8Async(one, 0, 16, full));
  Time freed{};
  const auto frees = clock.StartThread("frees", [&] {
    ASSERT_CU(cu_->CtxPushCurrent(context_));
    EXPECT_CU(books_->MemFreeAsync(one, full));
    freed = clock.Now();
    CUcontext popped = nullptr;
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
  });
  clock.SleepUntil(clock.Now() + Millis(1));
  ASSERT_EQ(freed, Time{});  // else the queue was not full
  books_->Settle();
  EXPECT_EQ(freed, Time{});
  ASSERT_CU(write(free, word, 1, 0));
  ASSERT_CU(write(free, word + 4, 1, 0));
  frees->Join();
  for (const CUstream stream : {full, other, free}) ASSERT_CU(cu_->StreamSynchronize(stream));
  EXPECT_CU(books_->MemFreeAsync(rest, other));
  EXPECT_CU(cu_->StreamSynchronize(other));
  EXPECT_CU(cu_->MemFree(word));
  ExpectExact();
  sim_->thread_leave();
}

// Otherwise two tenants that wait for each other's idle memory would wait for ever.
TEST_F(BooksPool, WhoeverWaitsKeepsNoIdleMemoryFromOthers) {
  CUmemoryPool const one = NewPool(), two = NewPool();
  CUdeviceptr pointer = 0;
  for (CUmemoryPool const pool : {one, two}) {
    ASSERT_TRUE(From(pool, kLimit * 7 / 16, &pointer).ok());
    EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
  }
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  uint64_t seen = 0;
  // Another request that arrives meanwhile gets the idle memory, whichever pool holds it.
  const auto wait = [&](quota::Account&, uint64_t) {
    CUdeviceptr other = 0;
    EXPECT_TRUE(books_->MemAlloc(payer(), &other, kLimit * 3 / 4).ok());
    EXPECT_CU(books_->MemFree(other));
    ++seen;
    return quota::Grant{};
  };
  RoomBy waits(wait);
  Payer patient = payer();
  patient.room = &waits;
  CUdeviceptr held = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &held, kLimit / 16).ok());
  const Answer answer =
      books_->MemAllocFromPoolAsync(patient, &pointer, kLimit - kGranule, one, stream_);
  EXPECT_TRUE(answer.at_quota);
  EXPECT_EQ(seen, 1u);
  EXPECT_CU(books_->MemFree(held));
  EXPECT_OK(books_->CheckInvariants());
}

// A tenant that has freed everything may be removed before the pool ends.
TEST_F(BooksPool, AnAccountThatHoldsNothingIsForgotten) {
  CUmemoryPool const pool = NewPool();
  {
    const auto gone = NewAccount(kLimit);
    CUdeviceptr pointer = 0;
    ASSERT_TRUE(From(pool, 4 * kMiB, &pointer, gone.get()).ok());
    EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
    EXPECT_CU(cu_->StreamSynchronize(stream_));
    EXPECT_CU(books_->MemPoolTrimTo(pool, 0));
    EXPECT_EQ(gone->charged(), 0u);
  }
  credited_[1] = 0;
  EXPECT_CU(books_->DevicePrimaryCtxReset(0));  // ASan would detect a use of the removed account
  EXPECT_EQ(credited_[1], 0u);
  EXPECT_CU(cu_->DevicePrimaryCtxRetain(&context_, 0));
  EXPECT_CU(cu_->CtxPushCurrent(context_));
}

TEST_F(BooksPool, AResetEndsEveryPool) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(From(NewPool(), 5 * kMiB, &pointer).ok());
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &pointer, 5 * kMiB, stream_).ok());
  EXPECT_CU(books_->DevicePrimaryCtxReset(0));
  EXPECT_CU(cu_->DevicePrimaryCtxRetain(&context_, 0));
  EXPECT_CU(cu_->CtxPushCurrent(context_));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

class BooksTwoDevices : public BooksTest {
 protected:
  BooksTwoDevices() : BooksTest("virtual", 2) {}
};

TEST_F(BooksTwoDevices, AnAllocationInAStreamOfAnotherDeviceIsOfThatDevicesPool) {
  CUcontext other = nullptr, popped = nullptr;
  ASSERT_CU(cu_->DevicePrimaryCtxRetain(&other, 1));
  ASSERT_CU(cu_->CtxPushCurrent(other));
  uint64_t idle_before = 0;
  CUdeviceptr idle = 0, pointer = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_CU(cu_->DeviceGetMemPool(&pool, 1));
  uint64_t keep = UINT64_MAX;
  ASSERT_CU(cu_->MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &idle, 4 * kMiB, nullptr).ok());
  EXPECT_CU(books_->MemFreeAsync(idle, nullptr));
  idle_before = account_->charged();
  // The stream belongs to the first device although the second is current, so idle memory of the second device is of
  // no use.
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &pointer, 4 * kMiB, stream_).ok());
  EXPECT_EQ(account_->charged(), idle_before + 4 * kMiB);
  ASSERT_CU(cu_->CtxPopCurrent(&popped));
  EXPECT_EQ(Used(), 4 * kMiB);  // on the first device
  EXPECT_EQ(account_->charged(), books_->BytesOf(account_.get()));
  EXPECT_CU(books_->MemFree(pointer));
  EXPECT_CU(books_->DevicePrimaryCtxReset(1));
  books_->Settle();
  EXPECT_CU(books_->DevicePrimaryCtxReset(0));
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksTwoDevices, APoolIsOfTheDeviceThatItWasMadeFor) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  CUmemoryPool pool = nullptr, standard = nullptr;
  ASSERT_CU(books_->MemPoolCreate(&pool, &properties));
  EXPECT_EQ(books_->PoolDevice(pool), 1);
  for (const int device : {0, 1}) {
    ASSERT_CU(cu_->DeviceGetDefaultMemPool(&standard, device));
    EXPECT_EQ(books_->PoolDevice(standard), device);
  }
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAllocFromPoolAsync(payer(), &pointer, kMiB, pool, stream_).ok());
  EXPECT_EQ(books_->PoolDevice(pool), 1);
  EXPECT_CU(books_->MemFree(pointer));
  EXPECT_CU(books_->MemPoolDestroy(pool));
  EXPECT_EQ(books_->PoolDevice(pool), Books::kNoDevice);
  EXPECT_EQ(books_->PoolDevice(nullptr), Books::kNoDevice);
}

// The device's current pool changes between the query and the allocation, as if by another thread.
const driver::Table* the_driver = nullptr;
CUmemoryPool the_other_pool = nullptr;

TEST_F(BooksPool, AnAllocationIsOfThePoolThatItCameFrom) {
  driver::Table table = *cu_;
  the_driver = cu_;
  table.MemAllocAsync = [](CUdeviceptr* pointer, size_t bytes, CUstream stream) {
    the_driver->DeviceSetMemPool(0, the_other_pool);
    return the_driver->MemAllocAsync(pointer, bytes, stream);
  };
  Books books(table);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  ASSERT_CU(books.MemPoolCreate(&the_other_pool, &properties));
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books.MemAllocAsync(payer(), &pointer, 3 * kMiB, stream_).ok());
  EXPECT_EQ(Used(), 4 * kMiB);
  EXPECT_EQ(account_->charged(), 4 * kMiB);
  EXPECT_CU(books.MemFree(pointer));
  EXPECT_CU(books.MemPoolTrimTo(the_other_pool, 0));
  EXPECT_EQ(Used(), 0u);
  EXPECT_EQ(account_->charged(), 0u);
}

// A capture ends or begins between the query of the stream and the allocation, as if by another thread.
bool the_capture_ends = false, the_capture_begins = false;

TEST_F(BooksPool, WhatACaptureThatEndsLetsThroughIsPaidFor) {
  driver::Table table = *cu_;
  the_driver = cu_;
  table.MemAllocAsync = [](CUdeviceptr* pointer, size_t bytes, CUstream stream) {
    CUgraph graph = nullptr;
    if (std::exchange(the_capture_ends, false)) the_driver->StreamEndCapture(stream, &graph);
    if (std::exchange(the_capture_begins, false)) {
      the_driver->StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    return the_driver->MemAllocAsync(pointer, bytes, stream);
  };
  Books books(table);
  CUdeviceptr pointer = 0;
  CUgraph graph = nullptr;
  ASSERT_CU(cu_->StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  the_capture_ends = true;
  ASSERT_TRUE(books.MemAllocAsync(payer(), &pointer, 3 * kMiB, stream_).ok());
  EXPECT_EQ(Used(), 4 * kMiB);
  EXPECT_EQ(account_->charged(), 4 * kMiB);
  EXPECT_CU(books.MemFree(pointer));
  EXPECT_EQ(Used(), account_->charged());
  // The capture ends and another one begins: the allocation exists only in the graph.
  ASSERT_CU(cu_->StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  the_capture_ends = the_capture_begins = true;
  ASSERT_TRUE(books.MemAllocAsync(payer(), &pointer, 3 * kMiB, stream_).ok());
  EXPECT_CU(cu_->StreamEndCapture(stream_, &graph));
  EXPECT_EQ(Used(), account_->charged());
  // A capture begins: the allocation belongs to the graph and is not charged.
  the_capture_begins = true;
  ASSERT_TRUE(books.MemAllocAsync(payer(), &pointer, 3 * kMiB, stream_).ok());
  EXPECT_CU(cu_->StreamEndCapture(stream_, &graph));
  EXPECT_EQ(Used(), account_->charged());
  // At the quota, an allocation that was let through is given back.
  account_->SetLimit(kMiB);
  ASSERT_CU(cu_->StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  the_capture_ends = true;
  EXPECT_EQ(books.MemAllocAsync(payer(), &pointer, 5 * kMiB, stream_).result,
            CUDA_ERROR_OUT_OF_MEMORY);
  books.Settle();
  EXPECT_EQ(Used(), account_->charged());
  EXPECT_LE(account_->charged(), kMiB);
}

// A file that stands for memory of another interface.
CUDA_EXTERNAL_MEMORY_HANDLE_DESC Exported(uint64_t bytes) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file{};
  file.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  file.handle.fd = memfd_create("exporter", MFD_CLOEXEC);
  file.size = bytes;
  EXPECT_EQ(ftruncate(file.handle.fd, static_cast<off_t>(bytes)), 0);
  return file;
}

TEST_F(BooksPool, ABufferKeepsExternalMemory) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = Exported(3 * kMiB);
  CUexternalMemory memory = nullptr, again = nullptr;
  const int twin = dup(file.handle.fd);
  ASSERT_TRUE(books_->ImportExternalMemory(payer(), &memory, &file).ok());
  file.handle.fd = twin;
  ASSERT_TRUE(books_->ImportExternalMemory(payer(), &again, &file).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 3 * kMiB);  // not charged twice
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
  part.size = kMiB;
  CUdeviceptr buffer = 0;
  EXPECT_CU(books_->ExternalMemoryGetMappedBuffer(&buffer, memory, &part));
  part.size = 9 * kMiB;
  EXPECT_NE(books_->ExternalMemoryGetMappedBuffer(&buffer, memory, &part), CUDA_SUCCESS);
  EXPECT_CU(books_->DestroyExternalMemory(memory));
  EXPECT_CU(books_->DestroyExternalMemory(again));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 3 * kMiB);
  EXPECT_NE(books_->MemFree(buffer + 512), CUDA_SUCCESS);
  EXPECT_CU(books_->MemFree(buffer));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksPool, AMappedArrayKeepsExternalMemory) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = Exported(3 * kMiB);
  CUexternalMemory memory = nullptr;
  ASSERT_TRUE(books_->ImportExternalMemory(payer(), &memory, &file).ok());
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part{};
  part.arrayDesc = {.Width = 256,
                    .Height = 256,
                    .Depth = 0,
                    .Format = CU_AD_FORMAT_FLOAT,
                    .NumChannels = 1,
                    .Flags = 0};
  part.numLevels = 3;
  CUmipmappedArray one = nullptr, two = nullptr, own = nullptr;
  EXPECT_CU(books_->ExternalMemoryGetMappedMipmappedArray(&one, memory, &part));
  part.offset = kMiB;
  EXPECT_CU(books_->ExternalMemoryGetMappedMipmappedArray(&two, memory, &part));
  part.offset = 3 * kMiB - 512;
  EXPECT_NE(books_->ExternalMemoryGetMappedMipmappedArray(&own, memory, &part), CUDA_SUCCESS);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 3 * kMiB);  // the arrays use the imported memory
  // An array that has its own memory, beside them.
  ASSERT_TRUE(books_->MipmappedArrayCreate(payer(), &own, &part.arrayDesc, 3).ok());
  ExpectExact();
  EXPECT_GT(account_->charged(), 3 * kMiB);
  EXPECT_CU(books_->DestroyExternalMemory(memory));
  EXPECT_NE(books_->ExternalMemoryGetMappedMipmappedArray(&one, memory, &part), CUDA_SUCCESS);
  EXPECT_CU(books_->MipmappedArrayDestroy(own));
  EXPECT_CU(books_->MipmappedArrayDestroy(one));
  EXPECT_NE(books_->MipmappedArrayDestroy(one), CUDA_SUCCESS);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 3 * kMiB);
  EXPECT_CU(books_->MipmappedArrayDestroy(two));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

}  // namespace
}  // namespace gpushare::books
