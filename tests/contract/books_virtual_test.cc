// SPDX-License-Identifier: Apache-2.0
// Virtual memory and multicast objects: charged until the last reference, mapping and binding are gone.
#include <unistd.h>

#include <map>

#include "tests/contract/books_bed.h"

namespace gpushare::books {
namespace {

class BooksVirtual : public BooksTest {
 protected:
  void SetUp() override {
    BooksTest::SetUp();
    auto* const reserve =
        Symbol<CUresult(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long)>(
            "cuMemAddressReserve");
    ASSERT_CU(reserve(&address_, 8 * kGranule, 0, 0, 0));
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  template <typename F>
  F* Symbol(const char* name) {
    return reinterpret_cast<F*>(driver_->Symbol(name));
  }
  CUmemGenericAllocationHandle Create(uint64_t granules = 1) {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_TRUE(books_->MemCreate(payer(), &handle, granules * kGranule, &properties_, 0).ok());
    return handle;
  }
  CUresult Map(unsigned at, CUmemGenericAllocationHandle handle) {
    return books_->MemMap(payer(), address_ + at * kGranule, kGranule, 0, handle, 0).result;
  }
  CUresult Unmap(unsigned at, unsigned count = 1) {
    return books_->MemUnmap(address_ + at * kGranule, count * kGranule);
  }
  CUmemGenericAllocationHandle Multicast() {
    CUmulticastObjectProp properties{};
    properties.numDevices = 1;
    properties.size = 4 * kGranule;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_CU(books_->MulticastCreate(&handle, &properties));
    EXPECT_CU((Symbol<CUresult(CUmemGenericAllocationHandle, CUdevice)>("cuMulticastAddDevice")(
        handle, 0)));
    return handle;
  }
  int Export(CUmemGenericAllocationHandle handle) {
    int file = -1;
    EXPECT_CU(books_->MemExportToShareableHandle(&file, handle,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return file;
  }
  CUresult Import(int file, CUmemGenericAllocationHandle* handle) {
    return books_
        ->MemImportFromShareableHandle(payer(), handle,
                                       reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        .result;
  }
  int ExportPast(uint64_t granules, CUmemGenericAllocationHandle* handle) {
    int file = -1;
    EXPECT_CU(cu_->MemCreate(handle, granules * kGranule, &properties_, 0));
    EXPECT_CU(cu_->MemExportToShareableHandle(&file, *handle,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return file;
  }
  void ExpectCharged(uint64_t granules) {
    ExpectExact();
    EXPECT_EQ(account_->charged(), granules * kGranule);
  }

  CUdeviceptr address_ = 0;
  CUmemAllocationProp properties_{};
};

TEST_F(BooksVirtual, AHandleThatIsReleasedWhileMappedStaysChargedUntilTheLastMappingGoes) {
  const auto handle = Create();
  EXPECT_CU(Map(0, handle));
  EXPECT_CU(Map(3, handle));
  EXPECT_CU(books_->MemRelease(handle));
  ExpectCharged(1);
  EXPECT_CU(Unmap(0));
  ExpectCharged(1);
  EXPECT_CU(Unmap(3));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, OneUnmappingOfSeveralMappings) {
  const auto one = Create(), two = Create();
  EXPECT_CU(Map(1, one));
  EXPECT_CU(Map(2, two));
  EXPECT_CU(books_->MemRelease(one));
  EXPECT_NE(Unmap(1, 3), CUDA_SUCCESS);  // the third part is not mapped
  EXPECT_NE(Unmap(5), CUDA_SUCCESS);
  ExpectCharged(2);
  EXPECT_CU(Unmap(1, 2));
  ExpectCharged(1);
  EXPECT_CU(books_->MemRelease(two));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, RetainedAndImportedHandlesAreTheSameMemory) {
  const auto handle = Create(2);
  EXPECT_TRUE(books_->MemMap(payer(), address_, 2 * kGranule, 0, handle, 0).ok());
  CUmemGenericAllocationHandle again = 0, imported = 0;
  EXPECT_CU(books_->MemRetainAllocationHandle(&again, reinterpret_cast<void*>(address_ + 5000)));
  EXPECT_NE(books_->MemRetainAllocationHandle(&imported, this), CUDA_SUCCESS);
  const int file = Export(handle);
  EXPECT_CU(Import(file, &imported));
  close(file);
  ExpectCharged(2);
  EXPECT_CU(books_->MemRelease(handle));
  EXPECT_CU(books_->MemUnmap(address_, 2 * kGranule));
  EXPECT_CU(books_->MemRelease(again));
  ExpectCharged(2);
  EXPECT_CU(books_->MemRelease(imported));
  ExpectCharged(0);
  EXPECT_EQ(books_->MemRelease(imported), CUDA_ERROR_INVALID_VALUE);
  ExpectCharged(0);
}

TEST_F(BooksVirtual, WhatWasExportedStaysChargedUntilEveryDescriptorIsClosed) {
  const auto handle = Create(2);
  const int one = Export(handle), two = Export(handle), copy = dup(one);
  EXPECT_CU(books_->MemRelease(handle));
  ExpectCharged(2);
  close(one);
  close(two);
  ExpectCharged(2);
  CUmemGenericAllocationHandle imported = 0;
  EXPECT_CU(Import(copy, &imported));
  ExpectCharged(2);
  EXPECT_CU(books_->MemRelease(imported));
  ExpectCharged(2);
  close(copy);
  ExpectCharged(0);
}

TEST_F(BooksVirtual, ManyExportsThatAreClosedAreForgotten) {
  for (int i = 0; i < 300; ++i) {
    const auto handle = Create();
    close(Export(handle));
    EXPECT_CU(books_->MemRelease(handle));
  }
  ExpectCharged(0);
}

// As if another process had exported it.
TEST_F(BooksVirtual, WhatWasExportedPastTheBooksIsChargedToWhoImportsIt) {
  CUmemGenericAllocationHandle past = 0, imported = 0, again = 0;
  const int file = ExportPast(1, &past);
  EXPECT_CU(Import(file, &imported));
  close(file);
  EXPECT_CU(cu_->MemRelease(past));
  ExpectCharged(1);
  EXPECT_CU(Map(0, imported));
  EXPECT_CU(Map(1, imported));
  EXPECT_CU(books_->MemRetainAllocationHandle(&again, reinterpret_cast<void*>(address_)));
  EXPECT_CU(books_->MemRelease(again));
  ExpectCharged(1);
  EXPECT_CU(books_->MemRelease(imported));
  EXPECT_CU(Unmap(0, 2));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, AnImportsSizeIsFoundWithoutAMapping) {
  for (const uint64_t granules : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 15u, 16u, 17u}) {
    CUmemGenericAllocationHandle past = 0, imported = 0, again = 0;
    const int file = ExportPast(granules, &past);
    const uint64_t unmaps = sim_->calls("cuMemUnmap");
    EXPECT_CU(Import(file, &imported));
    EXPECT_EQ(sim_->calls("cuMemUnmap") - unmaps, 1u);  // each waits for the device
    EXPECT_CU(Import(file, &again));
    close(file);
    EXPECT_CU(cu_->MemRelease(past));
    ExpectCharged(granules);
    EXPECT_CU(books_->MemRelease(again));
    ExpectCharged(granules);
    EXPECT_CU(books_->MemRelease(imported));
    ExpectCharged(0);
  }
}

// Runs on a driver that unmaps one mapping per call, and rejects ranges of several.
TEST_F(BooksVirtual, AnImportsSizeIsFoundOnADriverThatEndsOneMappingInACall) {
  static std::map<CUdeviceptr, size_t> mappings;
  static const driver::Table* real = nullptr;
  static size_t most = 0;
  mappings.clear();
  real = cu_;
  driver::Table table = *cu_;
  table.MemMap = [](CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle of,
                    unsigned long long flags) {
    const CUresult result = real->MemMap(at, bytes, offset, of, flags);
    if (result == CUDA_SUCCESS) mappings[at] = bytes;
    return result;
  };
  table.MemUnmap = [](CUdeviceptr at, size_t bytes) {
    const auto one = mappings.find(at);
    if (one == mappings.end() || one->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    mappings.erase(one);
    return real->MemUnmap(at, bytes);
  };
  table.MemAddressReserve = [](CUdeviceptr* at, size_t bytes, size_t alignment, CUdeviceptr hint,
                               unsigned long long flags) {
    return bytes > most ? CUDA_ERROR_OUT_OF_MEMORY
                        : real->MemAddressReserve(at, bytes, alignment, hint, flags);
  };
  for (const bool little : {false, true}) {
    most = little ? size_t{1} << 30 : SIZE_MAX;
    Books books(table);
    for (const uint64_t granules : {1u, 2u, 9u, 400u}) {
      const auto account = NewAccount(kLimit * 32);
      CUmemGenericAllocationHandle past = 0, imported = 0;
      const int file = ExportPast(granules, &past);
      EXPECT_CU(
          books
              .MemImportFromShareableHandle({.account = account.get()}, &imported,
                                            reinterpret_cast<void*>(static_cast<intptr_t>(file)),
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
              .result);
      close(file);
      EXPECT_CU(cu_->MemRelease(past));
      EXPECT_EQ(account->charged(), granules * kGranule);
      EXPECT_TRUE(mappings.empty());
      EXPECT_CU(books.MemRelease(imported));
      EXPECT_EQ(account->charged(), 0u);
    }
  }
}

TEST_F(BooksVirtual, AnImportPastTheQuotaIsRefusedAndKeepsNothing) {
  CUmemGenericAllocationHandle past = 0, imported = 0;
  account_->SetLimit(4 * kGranule);
  const int file = ExportPast(5, &past);
  EXPECT_EQ(Import(file, &imported), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(imported, 0u);
  close(file);
  EXPECT_CU(cu_->MemRelease(past));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, RefusedCallsLeaveTheBooksAsTheyAre) {
  const auto handle = Create();
  EXPECT_FALSE(books_->MemMap(payer(), address_, 2 * kGranule, 0, handle, 0).ok());
  EXPECT_FALSE(books_->MemMap(payer(), address_, kGranule, 0, 12345, 0).ok());
  EXPECT_CU(Map(0, handle));
  EXPECT_NE(Map(0, handle), CUDA_SUCCESS);
  Inject("error call=cuMemRelease code=3 nth=1");
  EXPECT_EQ(books_->MemRelease(handle), CUDA_ERROR_NOT_INITIALIZED);
  ExpectCharged(1);
  Inject("error call=cuMemUnmap code=3 nth=1");
  EXPECT_EQ(Unmap(0), CUDA_ERROR_NOT_INITIALIZED);
  ExpectCharged(1);
  EXPECT_CU(books_->MemRelease(handle));
  ExpectCharged(1);
  EXPECT_CU(Unmap(0));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, WhatIsBoundToAMulticastObjectStaysUntilItIsUnboundOrTheObjectGoes) {
  const auto object = Multicast(), one = Create(), two = Create(), three = Create();
  ExpectCharged(3);  // the object itself costs nothing
  EXPECT_CU(books_->MulticastBindMem(object, 0, one, 0, kGranule, 0));
  EXPECT_CU(books_->MulticastBindMem(object, kGranule, two, 0, kGranule, 0));
  EXPECT_CU(Map(0, three));
  EXPECT_CU(books_->MulticastBindAddr(object, 2 * kGranule, address_, kGranule, 0));
  EXPECT_NE(books_->MulticastBindMem(object, 0, two, 0, kGranule, 0), CUDA_SUCCESS);
  EXPECT_CU(Unmap(0));
  for (const auto handle : {one, two, three}) EXPECT_CU(books_->MemRelease(handle));
  ExpectCharged(3);
  EXPECT_NE(books_->MulticastUnbind(object, 0, kGranule, 2 * kGranule), CUDA_SUCCESS);
  ExpectCharged(3);
  EXPECT_CU(books_->MulticastUnbind(object, 0, kGranule, kGranule));
  ExpectCharged(2);
  EXPECT_CU(Map(4, object));
  EXPECT_CU(books_->MemRelease(object));
  ExpectCharged(2);
  EXPECT_CU(Unmap(4));
  ExpectCharged(0);
}

TEST_F(BooksVirtual, MemoryOfTheHostIsNotCharged) {
  properties_.location = {CU_MEM_LOCATION_TYPE_HOST, 0};
  CUmemGenericAllocationHandle handle = 0;
  account_->SetLimit(0);
  const Answer answer = books_->MemCreate(payer(), &handle, kGranule, &properties_, 0);
  EXPECT_FALSE(answer.at_quota);  // the simulated driver does not support it
  EXPECT_EQ(answer.result, CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace gpushare::books
