// SPDX-License-Identifier: Apache-2.0
// Memory that handles stand for, in cases that only the stub driver can produce: handles that come back, imports
// under another handle, sparse arrays, units.
#include <fcntl.h>
#include <unistd.h>

#include "tests/contract/books_stub.h"

namespace gpushare::books {
namespace {

class BooksHandles : public BooksStub {
 protected:
  CUexternalMemory Import(uint64_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC descriptor{};
    descriptor.size = bytes;
    CUexternalMemory handle = nullptr;
    EXPECT_TRUE(books_.ImportExternalMemory(payer(), &handle, &descriptor).ok());
    return handle;
  }
  CUmemGenericAllocationHandle Create(uint64_t bytes) {
    CUmemAllocationProp properties{};
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_TRUE(books_.MemCreate(payer(), &handle, bytes, &properties, 0).ok());
    return handle;
  }
  Answer Map(CUdeviceptr address, CUmemGenericAllocationHandle handle, uint64_t bytes) {
    return books_.MemMap(payer(), address, bytes, 0, handle, 0);
  }
  CUmemGenericAllocationHandle ImportShared(int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_TRUE(books_
                    .MemImportFromShareableHandle(payer(), &handle,
                                                  reinterpret_cast<void*>(intptr_t{descriptor}),
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
                    .ok());
    return handle;
  }
};

TEST_F(BooksHandles, AnExternalHandleThatComesAgainIsNotWhatABufferOfTheOldOneKeeps) {
  driver_.same = true;
  CUexternalMemory const one = Import(3 * kMiB);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
  part.size = kMiB;
  CUdeviceptr buffer = 0;
  EXPECT_EQ(CUDA_SUCCESS, books_.ExternalMemoryGetMappedBuffer(&buffer, one, &part));
  EXPECT_EQ(CUDA_SUCCESS, books_.DestroyExternalMemory(one));
  CUexternalMemory const two = Import(5 * kMiB);
  ASSERT_EQ(one, two);
  EXPECT_EQ(charged(), 8 * kMiB);
  ExpectRight();
  EXPECT_EQ(CUDA_SUCCESS, books_.MemFree(buffer));
  EXPECT_EQ(charged(), 5 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.DestroyExternalMemory(two));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, ExternalMemoryEndsWithItsContext) {
  driver_.context = StubDriver::Context(0x10);
  CUexternalMemory const gone = Import(3 * kMiB);
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part{};
  part.size = kMiB;
  CUdeviceptr buffer = 0;
  EXPECT_EQ(CUDA_SUCCESS, books_.ExternalMemoryGetMappedBuffer(&buffer, gone, &part));
  EXPECT_EQ(CUDA_SUCCESS, books_.DestroyExternalMemory(gone));
  driver_.context = StubDriver::Primary();
  Import(5 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.CtxDestroy(StubDriver::Context(0x10)));
  EXPECT_EQ(charged(), 5 * kMiB);
}

TEST_F(BooksHandles, AHandleThatComesAgainIsNotWhatAMappingOfTheOldOneKeeps) {
  driver_.same = true;
  const auto one = Create(2 * kMiB);
  ASSERT_TRUE(Map(0x100000, one, 2 * kMiB).ok());
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(one));
  const auto two = Create(4 * kMiB);
  ASSERT_EQ(one, two);
  ASSERT_TRUE(Map(0x900000, two, 4 * kMiB).ok());
  EXPECT_EQ(charged(), 6 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(0x100000, 2 * kMiB));
  EXPECT_EQ(charged(), 4 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(two));
  EXPECT_EQ(charged(), 4 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(0x900000, 4 * kMiB));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, AFurtherHandleOfTheSameMemoryKeepsIt) {
  const auto one = Create(2 * kMiB);
  ASSERT_TRUE(Map(0x100000, one, 2 * kMiB).ok());
  CUmemGenericAllocationHandle retained = 0;
  EXPECT_EQ(CUDA_SUCCESS,
            books_.MemRetainAllocationHandle(&retained, reinterpret_cast<void*>(0x100010)));
  ASSERT_NE(retained, one);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(one));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(0x100000, 2 * kMiB));
  EXPECT_EQ(charged(), 2 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(retained));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, AnImportByAnotherHandleOfWhatWasExportedHereIsTheSameMemory) {
  int pipe[2];
  ASSERT_EQ(0, pipe2(pipe, O_CLOEXEC));
  driver_.descriptor = pipe[0];
  const auto one = Create(2 * kMiB);
  int descriptor = -1;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemExportToShareableHandle(
                              &descriptor, one, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(one));
  books_.Settle();
  EXPECT_EQ(charged(), 2 * kMiB);  // the descriptor keeps the memory
  const auto two = ImportShared(descriptor);
  ASSERT_NE(one, two);
  ASSERT_TRUE(Map(0x100000, two, 2 * kMiB).ok());
  EXPECT_EQ(charged(), 2 * kMiB);  // charged only once
  const int copy = dup(descriptor);
  close(descriptor);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(two));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(0x100000, 2 * kMiB));
  books_.Settle();
  EXPECT_EQ(charged(), 2 * kMiB);  // so does the duplicate of the descriptor
  close(copy);
  // Memory that has ended is credited before anything is refused.
  account_->SetLimit(2 * kMiB);
  const auto three = Create(2 * kMiB);
  EXPECT_EQ(account_->Usage().denied, 0u);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(three));
  EXPECT_EQ(charged(), 0u);
  close(pipe[1]);
}

TEST_F(BooksHandles, AnImportFromElsewhereIsChargedOnceToWhoMapsItFirst) {
  const auto handle = ImportShared(1000);
  EXPECT_EQ(charged(), 0u);  // this driver does not report the size of the memory
  account_->SetLimit(kMiB);
  const Answer refused = Map(0x100000, handle, 2 * kMiB);
  EXPECT_EQ(refused.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(refused.at_quota);
  EXPECT_EQ(driver_.calls("MemMap"), 0);
  ExpectRight();
  account_->SetLimit(4 * kMiB);
  ASSERT_TRUE(Map(0x100000, handle, 2 * kMiB).ok());
  ASSERT_TRUE(Map(0x900000, handle, 2 * kMiB).ok());
  ASSERT_TRUE(books_.MemMap(second(), 0x500000, 2 * kMiB, 0, handle, 0).ok());
  EXPECT_EQ(charged(), 2 * kMiB);
  EXPECT_EQ(second_account_->charged(), 0u);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(handle));
  for (const CUdeviceptr address : {0x100000u, 0x500000u}) {
    EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(address, 2 * kMiB));
  }
  EXPECT_EQ(charged(), 2 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemUnmap(0x900000, 2 * kMiB));
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, WhatIsMappedIntoASparseArrayStaysUntilTheStreamHasUnmappedIt) {
  CUarrayMapInfo tile{};
  tile.resourceType = CU_RESOURCE_TYPE_ARRAY;
  tile.resource.array = reinterpret_cast<CUarray>(uintptr_t{0xa});
  tile.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  tile.subresource.sparseLevel.extentWidth = tile.subresource.sparseLevel.extentHeight = 64;
  tile.subresource.sparseLevel.extentDepth = 1;
  tile.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  tile.memHandle.memHandle = Create(2 * kMiB);
  CUarrayMapInfo next = tile;
  next.subresource.sparseLevel.offsetX = 64;
  next.memHandle.memHandle = Create(4 * kMiB);
  CUarrayMapInfo both[] = {tile, next};
  EXPECT_EQ(CUDA_SUCCESS, books_.MemMapArrayAsync(both, 2, stream()));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(tile.memHandle.memHandle));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(next.memHandle.memHandle));
  EXPECT_EQ(charged(), 6 * kMiB);
  driver_.busy = true;
  tile.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
  EXPECT_EQ(CUDA_SUCCESS, books_.MemMapArrayAsync(&tile, 1, stream()));
  books_.Settle();
  EXPECT_EQ(charged(), 6 * kMiB);  // the stream has not reached the operation yet
  driver_.busy = false;
  books_.Settle();
  EXPECT_EQ(charged(), 4 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.ArrayDestroy(tile.resource.array));
  EXPECT_EQ(charged(), 0u);
}

// Accepts as many parts as a driver does; a larger count cannot be the length of the list.
CUresult TakesUpTo5000(CUarrayMapInfo*, unsigned count, CUstream) {
  return count <= 5000 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

TEST_F(BooksHandles, AListOfPartsIsNotReadBeyondWhatTheDriverTakes) {
  driver_.table.MemMapArrayAsync = TakesUpTo5000;
  CUarrayMapInfo part{};
  part.resource.array = reinterpret_cast<CUarray>(uintptr_t{0xa});
  part.subresource.sparseLevel.extentWidth = part.subresource.sparseLevel.extentHeight = 64;
  part.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, books_.MemMapArrayAsync(&part, UINT32_MAX, stream()));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, books_.MemMapArrayAsync(nullptr, UINT32_MAX, stream()));
  const auto memory = Create(2 * kMiB);
  part.memHandle.memHandle = memory;
  std::vector<CUarrayMapInfo> parts(5000, part);
  EXPECT_EQ(CUDA_SUCCESS, books_.MemMapArrayAsync(parts.data(), 5000, stream()));
  EXPECT_EQ(CUDA_SUCCESS, books_.MemRelease(memory));
  EXPECT_EQ(charged(), 2 * kMiB);
  EXPECT_EQ(CUDA_SUCCESS, books_.ArrayDestroy(part.resource.array));
  books_.Settle();  // each part replaced the previous one
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, ALargerPitchIsFoundOutOnce) {
  driver_.pitch_unit = 4096;
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  ASSERT_TRUE(books_.MemAllocPitch(payer(), &pointer, &pitch, 100, 1024, 4).ok());
  EXPECT_EQ(charged(), 4 * kMiB);
  ASSERT_TRUE(books_.MemAllocPitch(payer(), &pointer, &pitch, 5000, 1024, 4).ok());
  EXPECT_EQ(charged(), 12 * kMiB);
  driver_.pitch_unit = 65536;
  account_->SetLimit(charged() + 63 * kMiB);
  EXPECT_TRUE(books_.MemAllocPitch(payer(), &pointer, &pitch, 100, 1024, 4).at_quota);
  EXPECT_EQ(driver_.calls("MemAllocPitch"), 3);
  EXPECT_EQ(driver_.calls("MemFree"), 1);  // it was in hand
  EXPECT_TRUE(books_.MemAllocPitch(payer(), &pointer, &pitch, 100, 1024, 4).at_quota);
  EXPECT_EQ(driver_.calls("MemAllocPitch"), 3);
  EXPECT_EQ(charged(), 12 * kMiB);
}

TEST_F(BooksHandles, ACardThatHandsOutPagesIsChargedThem) {
  Books books(driver_.table, nullptr, {.page = kCardPage});
  CUdeviceptr small = 0, half = 0, more = 0, pitched = 0, managed = 0;
  size_t pitch = 0;
  ASSERT_TRUE(books.MemAlloc(payer(), &small, 1).ok());
  EXPECT_EQ(charged(), 512u);
  ASSERT_TRUE(books.MemAlloc(payer(), &half, kMiB).ok());
  EXPECT_EQ(charged(), kMiB + 512);
  ASSERT_TRUE(books.MemAlloc(payer(), &more, kMiB + 1).ok());
  EXPECT_EQ(charged(), 3 * kMiB + 512);
  ASSERT_TRUE(books.MemAllocPitch(payer(), &pitched, &pitch, 1, 5000, 4).ok());  // 2.5 MB
  EXPECT_EQ(charged(), 7 * kMiB + 512);
  ASSERT_TRUE(books.MemAllocManaged(payer(), &managed, 2 * kMiB, 1).ok());
  EXPECT_EQ(charged(), 9 * kMiB + 512);
  CUdeviceptr all = 0;
  EXPECT_TRUE(books.MemAlloc(payer(), &all, UINT64_MAX - 5).at_quota);
  for (const CUdeviceptr pointer : {small, half, more, pitched, managed}) {
    EXPECT_EQ(CUDA_SUCCESS, books.MemFree(pointer));
  }
  EXPECT_EQ(charged(), 0u);
}

TEST_F(BooksHandles, ACardIsAskedHowItPadsArrays) {
  Books books(driver_.table, nullptr, {.page = kCardPage});
  CUDA_ARRAY_DESCRIPTOR shape{};
  shape.Width = shape.Height = 1024;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  for (const auto& [needs, bytes] : {std::pair{5 * kMiB, 6 * kMiB}, {0 * kMiB, 4 * kMiB}}) {
    driver_.array_needs = needs;
    ASSERT_TRUE(books.ArrayCreate(payer(), &array, &shape).ok());
    EXPECT_EQ(charged(), bytes);
    EXPECT_EQ(CUDA_SUCCESS, books.ArrayDestroy(array));
    EXPECT_EQ(charged(), 0u);
  }
  EXPECT_EQ(driver_.calls("Array3DCreate deferred"), 1);
  EXPECT_EQ(driver_.calls("ArrayDestroy"), 3);
}

}  // namespace
}  // namespace gpushare::books
