// SPDX-License-Identifier: Apache-2.0
// Calls of other threads in the middle of a call: pools, graphs, late frees and the end of contexts. A test runs the
// other thread's calls inside a call of the driver.
#include "tests/contract/books_stub.h"

namespace gpushare::books {
namespace {

class BooksOrder : public BooksStub {
 protected:
  Answer From(const Payer& payer, uint64_t bytes, CUdeviceptr* pointer) {
    return books_.MemAllocFromPoolAsync(payer, pointer, bytes, pool(), stream());
  }
  CUgraphExec exec() const { return reinterpret_cast<CUgraphExec>(uintptr_t{0xe}); }
  CUgreenCtx green() const { return reinterpret_cast<CUgreenCtx>(uintptr_t{0x9}); }
};

TEST_F(BooksOrder, WhatIsTakenBackIsFreedInTheOrderOfItsStreamAndOwedUntilThen) {
  driver_.busy = true;
  driver_.pool_grows = 8 * kMiB;
  account_->SetLimit(4 * kMiB);
  CUdeviceptr pointer = 0;
  // While a program captures, the books cannot tell which call made the pool grow.
  const auto not_capturing = driver_.table.StreamIsCapturing;
  driver_.table.StreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    return *status = CU_STREAM_CAPTURE_STATUS_ACTIVE, CUDA_SUCCESS;
  };
  EXPECT_TRUE(books_.MemAllocAsync(payer(), &pointer, kMiB, stream()).ok());
  driver_.table.StreamIsCapturing = not_capturing;
  driver_.table.PointerGetAttribute = [](void* data, CUpointer_attribute which, CUdeviceptr) {
    if (which == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
      *static_cast<uint64_t*>(data) = 0x901;
    } else {
      *static_cast<int*>(data) = 0;
    }
    return CUDA_SUCCESS;
  };
  EXPECT_TRUE(From(payer(), 2 * kMiB, &pointer).at_quota);
  EXPECT_EQ(driver_.calls("MemFreeAsync"), 1);
  EXPECT_EQ(driver_.calls("MemFree"), 0);
  EXPECT_EQ(charged(), driver_.pool_reserved);  // exceeds the limit
  ExpectRight();
  // The tenant that made the pool grow gets no more of it; other tenants are not charged for the growth.
  driver_.pool_grows = 0;
  EXPECT_TRUE(From(payer(), 1, &pointer).at_quota);
  EXPECT_EQ(driver_.calls("MemAllocFromPoolAsync"), 1);
  ASSERT_TRUE(From(second(), kMiB, &pointer).ok());
  EXPECT_EQ(second_account_->charged(), kMiB);
  // The stream has reached the free, and the pool has given up its growth.
  driver_.busy = false;
  driver_.pool_reserved = kMiB;
  books_.Settle();
  ASSERT_TRUE(From(payer(), 2 * kMiB, &pointer).ok());
  EXPECT_EQ(charged() + second_account_->charged(), driver_.pool_reserved);
}

// Two calls allocate from one pool at once. Each takes the pool's growth for the other's, and then the other one
// fails.
TEST_F(BooksOrder, WhatAPoolGrewByBesideACallThatFailsIsCharged) {
  CUdeviceptr mine = 0, theirs = 0;
  driver_.Inside("MemAllocFromPoolAsync", [&] {
    driver_.pool_grows = 3 * kMiB;
    ASSERT_TRUE(From(payer(), kMiB, &mine).ok());
    driver_.pool_grows = 0;
    driver_.pool_result = CUDA_ERROR_OUT_OF_MEMORY;
  });
  EXPECT_FALSE(From(second(), 8 * kMiB, &theirs).ok());
  driver_.pool_result = CUDA_SUCCESS;
  EXPECT_EQ(driver_.pool_reserved, 4 * kMiB);
  EXPECT_EQ(charged(), 4 * kMiB);
  EXPECT_EQ(second_account_->charged(), 0u);
  ExpectRight();
  // The part that exceeds the limit is owed, and paid as soon as there is room.
  driver_.pool_reserved = 90 * kMiB;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(mine, stream()));
  books_.Settle();
  EXPECT_EQ(charged(), 90 * kMiB);
  EXPECT_TRUE(From(payer(), kMiB, &mine).at_quota);
  account_->SetLimit(100 * kMiB);
  EXPECT_TRUE(From(payer(), kMiB, &mine).ok());
  EXPECT_EQ(charged(), driver_.pool_reserved);
}

TEST_F(BooksOrder, WhatIsTakenBackAndKnownToBeNewIsFreedAtOnce) {
  driver_.busy = true;
  driver_.pool_grows = 8 * kMiB;
  account_->SetLimit(4 * kMiB);
  CUdeviceptr pointer = 0;
  driver_.Inside("MemFree", [&] { driver_.pool_reserved = 0; });
  EXPECT_TRUE(From(payer(), 2 * kMiB, &pointer).at_quota);
  EXPECT_EQ(driver_.calls("MemFree"), 1);
  EXPECT_EQ(driver_.calls("MemFreeAsync"), 0);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, WhatIsTakenBackFromAnIdleStreamIsFreedAtOnce) {
  driver_.pool_grows = 8 * kMiB;
  account_->SetLimit(4 * kMiB);
  CUdeviceptr pointer = 0;
  driver_.Inside("MemFree", [&] { driver_.pool_reserved = 0; });
  EXPECT_TRUE(From(payer(), 2 * kMiB, &pointer).at_quota);
  EXPECT_EQ(driver_.calls("MemFree"), 1);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, WhatLiesIdleIsTakenAndThePoolReckonedOnlyWhenItChanged) {
  CUdeviceptr first = 0, second = 0, third = 0;
  driver_.pool_grows = 3 * kMiB;
  ASSERT_TRUE(From(payer(), kMiB, &first).ok());
  driver_.pool_grows = 0;
  EXPECT_EQ(charged(), 4 * kMiB);
  // An allocation from idle memory does not make the pool grow.
  const auto from_idle = [&](CUdeviceptr* pointer) {
    driver_.Inside("MemAllocFromPoolAsync", [&] { driver_.pool_reserved -= kMiB; });
    return From(payer(), kMiB, pointer).ok();
  };
  ASSERT_TRUE(from_idle(&second));
  EXPECT_EQ(charged(), 4 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(second, stream()));
  const int reads = driver_.calls("MemPoolGetAttribute");
  ASSERT_TRUE(from_idle(&second));
  EXPECT_EQ(driver_.calls("MemPoolGetAttribute"), reads + 1);
  EXPECT_EQ(charged(), 4 * kMiB);
  ExpectRight();
  // The idle memory is fragmented, so the pool grows nevertheless.
  ASSERT_TRUE(From(payer(), kMiB, &third).ok());
  EXPECT_EQ(charged(), 5 * kMiB);
  EXPECT_EQ(driver_.pool_reserved, 5 * kMiB);
  ExpectRight();
  // Another thread has released idle memory meanwhile.
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(third, stream()));
  driver_.Inside("MemAllocFromPoolAsync", [&] { driver_.pool_reserved -= 2 * kMiB; });
  ASSERT_TRUE(From(payer(), kMiB, &third).ok());
  EXPECT_EQ(charged(), 4 * kMiB);
  ExpectRight();
}

TEST_F(BooksOrder, GrowthIsPaidByWhoFoundItAndNobodyElse) {
  driver_.pool_grows = 3 * kMiB;
  account_->SetLimit(2 * kMiB);
  CUdeviceptr mine = 0, theirs = 0;
  driver_.Inside("MemPoolTrimTo", [&] {  // there was no room for the growth
    driver_.pool_grows = 0;
    ASSERT_TRUE(From(second(), kMiB, &theirs).ok());
    account_->SetLimit(64 * kMiB);
  });
  ASSERT_TRUE(From(payer(), 2 * kMiB, &mine).ok());
  EXPECT_EQ(second_account_->charged(), kMiB);
  EXPECT_EQ(charged(), 5 * kMiB);
  EXPECT_EQ(driver_.pool_reserved, 6 * kMiB);
}

TEST_F(BooksOrder, ADestroyedPoolStaysWithTheDriverWhileSomebodyReadsIt) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(From(payer(), 2 * kMiB, &pointer).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.MemPoolDestroy(pool()));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(pointer, stream()));
  driver_.pool_reserved = 0;
  bool read_first = false;
  driver_.Inside("MemPoolGetAttribute", [&] {
    books_.Settle();  // which would let the executable be destroyed
    read_first = driver_.calls("MemPoolDestroy") == 0;
  });
  books_.Settle();
  EXPECT_TRUE(read_first);
  books_.Settle();
  EXPECT_EQ(driver_.calls("MemPoolDestroy"), 1);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, PoolsOnTheHostAreNotCharged) {
  CUmemPoolProps properties{};
  properties.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemoryPool host = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemPoolCreate(&host, &properties));
  account_->SetLimit(0);
  CUdeviceptr pointer = 0;
  EXPECT_TRUE(books_.MemAllocFromPoolAsync(payer(), &pointer, kMiB, host, stream()).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(pointer, stream()));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemPoolDestroy(host));
  EXPECT_EQ(driver_.calls("MemPoolDestroy"), 1);
}

// Since CUDA 13 a location's pool can be asked for, and pools can hold managed memory, which may be on any device.
TEST_F(BooksOrder, OnlyPageLockedPoolsAreTheHosts) {
  const CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, none = {};
  CUmemoryPool const hosts = reinterpret_cast<CUmemoryPool>(uintptr_t{0x7770});
  books_.MemPoolIsAt(hosts, host, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_LT(books_.PoolDevice(hosts), Books::kNoDevice);
  constexpr auto kManaged = static_cast<CUmemAllocationType>(2);  // not in the headers of CUDA 12
  for (const CUmemLocation& where : {none, host}) {
    CUmemPoolProps properties{};
    properties.allocType = kManaged;
    properties.location = where;
    CUmemoryPool managed = nullptr;
    ASSERT_EQ(CUDA_SUCCESS, books_.MemPoolCreate(&managed, &properties));
    EXPECT_EQ(books_.PoolDevice(managed),
              Books::kNoDevice);  // it is charged to the stream's device
    books_.MemPoolIsAt(managed, where, kManaged);
    EXPECT_EQ(books_.PoolDevice(managed), Books::kNoDevice);
    account_->SetLimit(0);
    CUdeviceptr pointer = 0;
    EXPECT_TRUE(books_.MemAllocFromPoolAsync(payer(), &pointer, kMiB, managed, stream()).at_quota);
    account_->SetLimit(kMiB);
    EXPECT_TRUE(books_.MemAllocFromPoolAsync(payer(), &pointer, kMiB, hosts, stream()).ok());
    EXPECT_EQ(charged(), 0u);
    EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(pointer, stream()));
    EXPECT_EQ(CUDA_SUCCESS, books_.MemPoolDestroy(managed));
  }
}

// Ten allocations of 10 MiB, one after the other: a driver that reuses memory within a graph needs 10 MiB.
TEST_F(BooksOrder, AGraphThatReusesItsMemoryNeedsRoomForWhatItHasAtATime) {
  account_->SetLimit(64 * kMiB);
  driver_.graph_needs = 10 * kMiB;
  driver_.graph_steps = 10;
  driver_.graph_takes = 10 * kMiB;
  CUgraphExec graph = exec();
  EXPECT_EQ(CUDA_SUCCESS, books_.Instantiated(&graph, nullptr));
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
    EXPECT_EQ(charged(), 10 * kMiB);
  }
  // A driver that needs more than there is room for gets it back, and the launch is refused.
  EXPECT_EQ(CUDA_SUCCESS, books_.DeviceGraphMemTrim(0));
  EXPECT_EQ(charged(), 0u);
  driver_.Inside("GraphUpload", [&] { driver_.graph_reserved = 100 * kMiB; });
  EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).at_quota);
  EXPECT_EQ(driver_.graph_reserved, 0u);
  EXPECT_EQ(charged(), 0u);
  // So is one whose memory at a time does not fit, before the driver takes any.
  account_->SetLimit(8 * kMiB);
  const int uploads = driver_.calls("GraphUpload");
  EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).at_quota);
  EXPECT_EQ(driver_.calls("GraphUpload"), uploads);
}

TEST_F(BooksOrder, ALaunchIsChargedForWhatATrimMeanwhileTakesAway) {
  driver_.graph_needs = driver_.graph_takes = 4 * kMiB;
  CUgraphExec graph = exec();
  EXPECT_EQ(CUDA_SUCCESS, books_.Instantiated(&graph, nullptr));
  ASSERT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
  EXPECT_EQ(charged(), 4 * kMiB);
  uint64_t charged_then = 0;
  const auto launch = [&] {
    driver_.Inside("GraphLaunch", [&] { charged_then = charged(); });
    EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
    EXPECT_GE(charged_then, 4 * kMiB);  // at the time when the driver takes the memory
    EXPECT_EQ(charged(), driver_.graph_reserved);
  };
  // Another thread trims wherever the books query the driver.
  driver_.Inside("DeviceGetGraphMemAttribute", [&] { books_.DeviceGraphMemTrim(0); });
  launch();
  launch();
  // A launch in the middle of a trim, which then takes its memory away again.
  driver_.Inside("DeviceGraphMemTrim",
                 [&] { EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok()); });
  books_.DeviceGraphMemTrim(0);
  EXPECT_EQ(charged(), 0u);
  launch();
}

TEST_F(BooksOrder, WhatALaunchTakesBesideAnotherIsOwed) {
  driver_.graph_needs = driver_.graph_takes = 4 * kMiB;
  CUgraphExec graph = exec();
  EXPECT_EQ(CUDA_SUCCESS, books_.Instantiated(&graph, nullptr));
  ASSERT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
  // This launch runs beside another one and takes more memory than there is room for; the excess is owed.
  driver_.graph_takes = 6 * kMiB;
  driver_.busy = true;
  account_->SetLimit(5 * kMiB);
  ASSERT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
  EXPECT_EQ(charged(), 6 * kMiB);  // exceeds the limit
  EXPECT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).at_quota);
  EXPECT_EQ(driver_.calls("GraphLaunch"), 2);
  // Other tenants may launch, and pay only for the memory that they take.
  ASSERT_TRUE(books_.GraphLaunch(second(), exec(), stream()).ok());
  EXPECT_LE(second_account_->charged(), 4 * kMiB);
  // The debt is paid when there is room.
  account_->SetLimit(64 * kMiB);
  ASSERT_TRUE(books_.GraphLaunch(payer(), exec(), stream()).ok());
  EXPECT_EQ(charged() + second_account_->charged(), driver_.graph_reserved);
}

TEST_F(BooksOrder, AFreeInAStreamOfAnotherContextIsFollowedThere) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  driver_.stream_context = StubDriver::Context(0x10);
  driver_.busy = true;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(pointer, stream()));
  EXPECT_EQ(driver_.calls("StreamSynchronize"), 0);
  EXPECT_EQ(driver_.context, StubDriver::Primary());  // the same context is current as before
  books_.Settle();
  EXPECT_EQ(charged(), kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxDestroy(driver_.stream_context));
  EXPECT_EQ(charged(), 0u);
}

// The last credit of an account may end it: that of a virtual device which is closed.
class BooksEndOfAccount : public BooksOrder {
 protected:
  Books ending_{
      driver_.table, [this](uint32_t, uint64_t) { account_.reset(); }, {.clock = &clock_}};

  void TearDown() override {
    EXPECT_EQ(account_, nullptr);
    account_ = *quota::Account::Create(kMiB);
    BooksOrder::TearDown();
  }
};

TEST_F(BooksEndOfAccount, AFreeInAStreamMayBeTheLastOfItsAccount) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(ending_.MemAlloc(payer(), &pointer, kMiB).ok());
  // Without an event the free waits for the stream, and credits.
  driver_.table.EventCreate = [](CUevent*, unsigned) { return CUDA_ERROR_OUT_OF_MEMORY; };
  EXPECT_EQ(CUDA_SUCCESS, ending_.MemFreeAsync(pointer, stream()));
}

TEST_F(BooksEndOfAccount, AFreeInAStreamMayBeCreditedByAnotherThreadAtOnce) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(ending_.MemAlloc(payer(), &pointer, kMiB).ok());
  // The free is listed between these two calls: it sets the mode, and sets it back.
  static Books* settles = nullptr;
  settles = &ending_;
  driver_.table.ThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    const bool back =
        std::exchange(*mode, CU_STREAM_CAPTURE_MODE_GLOBAL) != CU_STREAM_CAPTURE_MODE_RELAXED;
    if (back && settles != nullptr) std::exchange(settles, nullptr)->Settle();
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(CUDA_SUCCESS, ending_.MemFreeAsync(pointer, stream()));
  EXPECT_EQ(settles, nullptr);
}

TEST_F(BooksOrder, AContextDoesNotEndWhileItsEventsAreLookedAt) {
  CUcontext const gone = StubDriver::Context(0x10);
  driver_.context = gone;
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  driver_.busy = true;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFreeAsync(pointer, stream()));
  bool alive = false;
  driver_.Inside("EventQuery", [&] {
    Meanwhile([&] { EXPECT_EQ(CUDA_SUCCESS, books_.CtxDestroy(gone)); });
    alive = driver_.calls("CtxDestroy") == 0;
  });
  books_.Settle();
  other_.join();
  EXPECT_TRUE(alive);
  EXPECT_EQ(driver_.calls("CtxDestroy"), 1);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, OfTwoLastReleasesOfAPrimaryContextOneSeesTheEnd) {
  driver_.primary_count = 2;
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  // The first thread has released its reference and asks whether that was the last one; at that time it was not.
  driver_.Inside("DevicePrimaryCtxGetState of the last", [&] {
    Meanwhile([&] { EXPECT_EQ(CUDA_SUCCESS, books_.DevicePrimaryCtxRelease(0)); });
  });
  EXPECT_EQ(CUDA_SUCCESS, books_.DevicePrimaryCtxRelease(0));
  other_.join();
  EXPECT_EQ(driver_.primary_count, 0);
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, ADetachedContextEndsWhenNobodyIsAttached) {
  driver_.context = StubDriver::Context(0x10);
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxDetach(driver_.context));
  EXPECT_EQ(charged(), kMiB);
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxDetach(driver_.context));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksOrder, WhatAGreenContextHoldsEndsWithThePrimaryContext) {
  driver_.primary_count = 2;  // one reference is the green context's
  CUcontext context = nullptr;
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxFromGreenCtx(&context, green()));
  driver_.context = context;
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.GreenCtxDestroy(green()));
  EXPECT_EQ(charged(), kMiB);
  // The handle is reused for an ordinary context, which has none of the memory,
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxDestroy(context));
  EXPECT_EQ(charged(), kMiB);
  // and then for another green context, which has the last reference to the primary context.
  driver_.primary_count = 2;
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxFromGreenCtx(&context, green()));
  ASSERT_TRUE(books_.MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.DevicePrimaryCtxRelease(0));
  EXPECT_EQ(charged(), 2 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.GreenCtxDestroy(green()));
  EXPECT_EQ(charged(), 0u);
}

}  // namespace
}  // namespace gpushare::books
