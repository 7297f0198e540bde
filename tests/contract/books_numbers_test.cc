// SPDX-License-Identifier: Apache-2.0
// The numbers of pools and contexts, which are few and are reused; and what a device reset ends and does not end.
#include "tests/contract/books_bed.h"
#include "tests/contract/books_stub.h"

namespace gpushare::books {
namespace {

constexpr int kMoreThanNumbers = 300;

class BooksNumbers : public BooksTest {
 protected:
  template <typename F>
  F* Symbol(const char* name) {
    return reinterpret_cast<F*>(driver_->Symbol(name));
  }
  CUmemoryPool NewPool() {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemoryPool pool = nullptr;
    EXPECT_CU(books_->MemPoolCreate(&pool, &properties));
    return pool;
  }
  Answer From(CUmemoryPool pool, uint64_t bytes, CUdeviceptr* pointer) {
    return books_->MemAllocFromPoolAsync(payer(), pointer, bytes, pool, stream_);
  }
  // Makes another context current, so that the primary one can end.
  CUcontext OtherContext() {
    CUcontext other = nullptr;
    EXPECT_CU((Symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2")(&other, 0, 0)));
    return other;
  }
};

TEST_F(BooksNumbers, AHandleOfNoPoolGetsNone) {
  CUdeviceptr pointer = 0;
  for (uintptr_t i = 0; i < kMoreThanNumbers; ++i) {
    const Answer answer = From(reinterpret_cast<CUmemoryPool>(0x1000 + 16 * i), 4096, &pointer);
    ASSERT_EQ(answer.result, CUDA_ERROR_INVALID_VALUE);
  }
  for (int i = 0; i < kMoreThanNumbers; ++i) {
    CUmemoryPool const pool = NewPool();
    ASSERT_TRUE(From(pool, 4096, &pointer).ok());
    EXPECT_CU(books_->MemFree(pointer));
    EXPECT_CU(books_->MemPoolDestroy(pool));
    ASSERT_EQ(From(pool, 4096, &pointer).result, CUDA_ERROR_INVALID_VALUE);
  }
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &pointer, 4096, stream_).ok());
  ASSERT_TRUE(From(NewPool(), 4096, &pointer).ok());
  ExpectExact();
}

TEST_F(BooksNumbers, AGreenContextGivesItsOwnBack) {
  CUdevResource sms{};
  CUdevResourceDesc description = nullptr;
  ASSERT_CU((Symbol<CUresult(CUdevice, CUdevResource*, CUdevResourceType)>(
      "cuDeviceGetDevResource")(0, &sms, CU_DEV_RESOURCE_TYPE_SM)));
  ASSERT_CU((Symbol<CUresult(CUdevResourceDesc*, CUdevResource*, unsigned)>(
      "cuDevResourceGenerateDesc")(&description, &sms, 1)));
  CUdeviceptr pointer = 0;
  CUcontext popped = nullptr;
  for (int i = 0; i < kMoreThanNumbers; ++i) {
    CUgreenCtx green = nullptr;
    CUcontext context = nullptr;
    ASSERT_CU((Symbol<CUresult(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>(
        "cuGreenCtxCreate")(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM)));
    ASSERT_CU(books_->CtxFromGreenCtx(&context, green));
    ASSERT_CU(cu_->CtxPushCurrent(context));
    ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, 1000).ok());
    ASSERT_CU(cu_->CtxPopCurrent(&popped));
    EXPECT_CU(books_->GreenCtxDestroy(green));
  }
  const uint64_t held = account_->charged();
  EXPECT_EQ(held, 1000u * kMoreThanNumbers);
  CUcontext const other = OtherContext();
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_CU(books_->CtxDestroy(other));
  EXPECT_EQ(account_->charged(), held);  // the memory of the other context is gone
  EXPECT_CU(books_->DevicePrimaryCtxRelease(0));
  EXPECT_EQ(account_->charged(), 0u);  // so is the memory that the green contexts held
}

// Such a reset does nothing in the driver, and must not let a program get its share anew.
TEST_F(BooksNumbers, AResetWithoutAPrimaryContextTakesNothingFromTheBooks) {
  OtherContext();
  ASSERT_CU(books_->DevicePrimaryCtxRelease(0));
  CUdeviceptr pointer = 0, direct = 0;
  ASSERT_TRUE(
      books_->MemAllocFromPoolAsync(payer(), &pointer, kLimit - 8 * kMiB, NewPool(), nullptr).ok());
  ASSERT_TRUE(books_->MemAllocAsync(payer(), &direct, kGranule, nullptr).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_CU(books_->DevicePrimaryCtxReset(0));
    ExpectExact();
    EXPECT_EQ(account_->charged(), kLimit - 6 * kMiB);
    CUdeviceptr more = 0;
    EXPECT_TRUE(books_->MemAllocFromPoolAsync(payer(), &more, kLimit - 8 * kMiB, NewPool(), nullptr)
                    .at_quota);
  }
  EXPECT_CU(books_->MemFree(pointer));  // the books still know the pointer
  EXPECT_CU(books_->MemFree(direct));
  EXPECT_CU(cu_->StreamSynchronize(nullptr));  // pools release their idle memory here
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

class BooksHostPools : public BooksStub {};

TEST_F(BooksHostPools, AResetLeavesThemTheHosts) {
  CUmemPoolProps properties{};
  properties.location.type =
      static_cast<CUmemLocationType>(2);  // the host; its name is newer than the oldest header
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, books_.MemPoolCreate(&pool, &properties));
  EXPECT_EQ(CUDA_SUCCESS, books_.DevicePrimaryCtxReset(0));
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_.MemAllocFromPoolAsync(payer(), &pointer, kMiB, pool, stream()).ok());
  EXPECT_EQ(charged(), 0u);
}

}  // namespace
}  // namespace gpushare::books
