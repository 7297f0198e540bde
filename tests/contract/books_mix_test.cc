// SPDX-License-Identifier: Apache-2.0
// The books where families meet: legal mixes of calls, frees that are refused or come late, and the end of contexts.
#include "tests/contract/books_bed.h"

namespace gpushare::books {
namespace {

class BooksMix : public BooksTest {
 protected:
  // Creates a context and leaves it current.
  CUcontext NewContext() {
    auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
        driver_->Symbol("cuCtxCreate_v2"));
    CUcontext context = nullptr;
    EXPECT_CU(create(&context, 0, 0));
    return context;
  }
};

TEST_F(BooksMix, ADirectPointerFreedInStreamOrderStaysChargedUntilTheStreamIsThere) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, 3 * kMiB).ok());
  EXPECT_CU(cu_->MemcpyDtoDAsync(pointer, pointer + kMiB, kMiB, stream_));  // takes a while
  EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
  books_->Settle();
  EXPECT_EQ(account_->charged(), 3 * kMiB);
  EXPECT_EQ(Used(), 3 * kMiB);
  EXPECT_EQ(books_->MemFree(pointer), CUDA_ERROR_INVALID_VALUE);  // the same answer as the driver's
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksMix, LateFreesMakeRoomBeforeAnythingIsRefused) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kLimit).ok());
  EXPECT_CU(books_->MemFreeAsync(pointer, stream_));
  EXPECT_CU(cu_->StreamSynchronize(stream_));
  EXPECT_EQ(account_->charged(), kLimit);  // the books have not looked yet
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kLimit).ok());
  EXPECT_EQ(account_->Usage().denied, 0u);
  EXPECT_CU(books_->MemFree(pointer));
  ExpectExact();
}

TEST_F(BooksMix, AFreeThatTheDriverRefusesLeavesTheChargeAndTheEntry) {
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kMiB).ok());
  Inject("error call=cuMemFree_v2 code=719 nth=1");
  EXPECT_EQ(books_->MemFree(pointer), CUDA_ERROR_LAUNCH_FAILED);
  ExpectExact();
  Inject("error call=cuMemFreeAsync code=400 nth=1");
  EXPECT_EQ(books_->MemFreeAsync(pointer, stream_), CUDA_ERROR_INVALID_HANDLE);
  ExpectExact();
  EXPECT_EQ(account_->charged(), kMiB);
  EXPECT_CU(books_->MemFree(pointer));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksMix, TheEndOfAContextFreesWhatItHeld) {
  CUdeviceptr kept = 0, pointer = 0;
  size_t pitch = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &kept, kMiB).ok());
  for (int lives = 0; lives < 2; ++lives) {
    CUcontext const other = NewContext();
    ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, 5 * kMiB).ok());
    ASSERT_TRUE(books_->MemAllocPitch(payer(), &pointer, &pitch, 100, 1000, 4).ok());
    ASSERT_TRUE(books_->MemAllocManaged(payer(), &pointer, 3 * kMiB, CU_MEM_ATTACH_GLOBAL).ok());
    CUarray array = nullptr;
    CUDA_ARRAY_DESCRIPTOR shape{};
    shape.Width = 1000;
    shape.Format = CU_AD_FORMAT_FLOAT;
    shape.NumChannels = 1;
    ASSERT_TRUE(books_->ArrayCreate(payer(), &array, &shape).ok());
    CUstream stream = nullptr;
    ASSERT_CU(cu_->StreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, 2 * kMiB).ok());
    EXPECT_CU(books_->MemFreeAsync(pointer, stream));
    EXPECT_NE(books_->CtxDestroy(nullptr), CUDA_SUCCESS);
    EXPECT_GE(account_->charged(), 9 * kMiB);
    EXPECT_CU(books_->CtxDestroy(other));
    EXPECT_CU(cu_->CtxPushCurrent(context_));
    ExpectExact();
    EXPECT_EQ(account_->charged(), kMiB);
  }
  // The memory of the primary context ends at the last release, not earlier.
  CUcontext again = nullptr;
  EXPECT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
  EXPECT_CU(books_->DevicePrimaryCtxRelease(0));
  EXPECT_EQ(account_->charged(), kMiB);
  EXPECT_CU(books_->DevicePrimaryCtxRelease(0));
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
  EXPECT_CU(cu_->CtxPushCurrent(again));
  ASSERT_TRUE(books_->MemAlloc(payer(), &kept, kMiB).ok());
  EXPECT_CU(books_->DevicePrimaryCtxReset(0));
  EXPECT_CU(cu_->DevicePrimaryCtxRetain(&again, 0));
  EXPECT_CU(cu_->CtxPushCurrent(again));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksMix, WhatIsAllocatedInAGreenContextOutlivesIt) {
  auto* const resources =
      reinterpret_cast<CUresult (*)(CUdevice, CUdevResource*, CUdevResourceType)>(
          driver_->Symbol("cuDeviceGetDevResource"));
  auto* const describe =
      reinterpret_cast<CUresult (*)(CUdevResourceDesc*, CUdevResource*, unsigned)>(
          driver_->Symbol("cuDevResourceGenerateDesc"));
  auto* const create =
      reinterpret_cast<CUresult (*)(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned)>(
          driver_->Symbol("cuGreenCtxCreate"));
  CUdevResource sms{};
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  ASSERT_CU(resources(0, &sms, CU_DEV_RESOURCE_TYPE_SM));
  ASSERT_CU(describe(&description, &sms, 1));
  ASSERT_CU(create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  ASSERT_CU(books_->CtxFromGreenCtx(&context, green));
  ASSERT_CU(cu_->CtxPushCurrent(context));
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kMiB).ok());
  ASSERT_CU(cu_->CtxPopCurrent(&context));
  EXPECT_CU(books_->GreenCtxDestroy(green));
  ExpectExact();
  EXPECT_EQ(account_->charged(), kMiB);
  EXPECT_CU(books_->DevicePrimaryCtxRelease(0));
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksMix, ArraysOfEveryShape) {
  struct Shape {
    size_t width, height, depth;
    CUarray_format format;
    unsigned channels, flags, levels;
  };
  for (const Shape& one : {Shape{777, 0, 0, CU_AD_FORMAT_HALF, 1, 0, 1},
                           Shape{100, 33, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0, 99},
                           Shape{65, 40, 31, CU_AD_FORMAT_SIGNED_INT16, 2, 0, 3},
                           Shape{64, 0, 9, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_LAYERED, 2},
                           Shape{64, 48, 9, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED, 5},
                           Shape{32, 32, 6, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_CUBEMAP, 6},
                           Shape{50, 50, 0, CU_AD_FORMAT_UNORM_INT16X2, 2, 0, 1}}) {
    CUDA_ARRAY3D_DESCRIPTOR shape{};
    shape.Width = one.width;
    shape.Height = one.height;
    shape.Depth = one.depth;
    shape.Format = one.format;
    shape.NumChannels = one.channels;
    shape.Flags = one.flags;
    CUarray array = nullptr;
    CUmipmappedArray mipmapped = nullptr;
    ASSERT_TRUE(books_->Array3DCreate(payer(), &array, &shape).ok()) << one.width;
    ExpectExact();
    ASSERT_TRUE(books_->MipmappedArrayCreate(payer(), &mipmapped, &shape, one.levels).ok());
    ExpectExact();
    EXPECT_CU(books_->ArrayDestroy(array));
    EXPECT_CU(books_->MipmappedArrayDestroy(mipmapped));
    EXPECT_EQ(account_->charged(), 0u);
  }
}

TEST_F(BooksMix, AnAddressThatIsGivenOutAgainEndsTheAllocationBefore) {
  CUdeviceptr pointer = 0, again = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kMiB).ok());
  EXPECT_CU(cu_->MemFree(pointer));  // directly with the driver
  ASSERT_TRUE(books_->MemAlloc(payer(), &again, kMiB).ok());
  ASSERT_EQ(again, pointer);
  ExpectExact();
  EXPECT_EQ(account_->charged(), kMiB);
  EXPECT_CU(books_->MemFree(again));
}

}  // namespace
}  // namespace gpushare::books
