// SPDX-License-Identifier: Apache-2.0
// Host memory runs out in the middle of a call of the books, at each of its allocations in turn. Memory that the
// driver has handed out then either goes back to it or stays charged. books_test.cc tests the same for allocations of
// every family.
#include <unistd.h>

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "tests/contract/books_bed.h"
#include "tests/contract/books_families.h"
#include "tests/contract/failing_memory.h"

namespace gpushare::books {
namespace {

class BooksHostMemory : public BooksTest {
 protected:
  void SetUp() override {
    BooksTest::SetUp();
    auto* const reserve =
        reinterpret_cast<CUresult (*)(CUdeviceptr*, size_t, size_t, CUdeviceptr,
                                      unsigned long long)>(driver_->Symbol("cuMemAddressReserve"));
    ASSERT_CU(reserve(&address_, 16 * kGranule, 0, 0, 0));
  }

  // Runs `calls` once for each allocation that can fail. Each try has new books, since tables that have room do not
  // allocate.
  void AtEachAllocation(const std::function<void()>& prepare, const std::function<void()>& calls,
                        const std::function<void()>& clean_up) {
    constexpr int kMost = 40;
    int failures = 0;
    for (int nth = 1; nth <= kMost; ++nth) {
      SCOPED_TRACE(nth);
      books_ = std::make_unique<Books>(*cu_);
      prepare();
      const int failed = work::FailingMemory::failed();
      {
        const work::FailingMemory none(nth);
        try {
          calls();
        } catch (const std::bad_alloc&) {
        }
      }
      const bool fell = work::FailingMemory::failed() > failed;
      failures += fell ? 1 : 0;
      // The streams finish their work, including the events that are recorded after frees.
      sim_->spend(1'000'000);
      ExpectExact();
      clean_up();
      sim_->spend(1'000'000);
      ExpectExact();
      ASSERT_EQ(account_->charged(), 0u);
      ASSERT_EQ(Used(), 0u);
      if (!fell) break;
      ASSERT_LT(nth, kMost);
    }
    EXPECT_GT(failures, 0);
  }

  CUmemGenericAllocationHandle Create() {
    CUmemAllocationProp properties = OnDevice();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_TRUE(books_->MemCreate(payer(), &handle, kGranule, &properties, 0).ok());
    return handle;
  }

  CUdeviceptr address_ = 0;
};

TEST_F(BooksHostMemory, LateFrees) {
  CUdeviceptr busy = 0;
  std::vector<CUdeviceptr> pointers(3);
  size_t freed = 0;
  const auto prepare = [&] {
    ASSERT_TRUE(books_->MemAlloc(payer(), &busy, 2 * kMiB).ok());
    for (CUdeviceptr& pointer : pointers) {
      ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kMiB).ok());
    }
    ASSERT_CU(cu_->MemcpyDtoDAsync(busy, busy + kMiB, kMiB, stream_));
    freed = 0;
  };
  const auto free = [&] {
    for (; freed < pointers.size(); ++freed) {
      EXPECT_CU(books_->MemFreeAsync(pointers[freed], stream_));
    }
  };
  AtEachAllocation(prepare, free, [&] {
    free();
    EXPECT_CU(books_->MemFree(busy));
    EXPECT_CU(cu_->StreamSynchronize(stream_));
  });
}

TEST_F(BooksHostMemory, ExportsAndImports) {
  CUmemGenericAllocationHandle handle = 0, past = 0;
  int file = -1, others = -1;
  bool theirs = false;
  std::vector<CUmemGenericAllocationHandle> imported;
  imported.reserve(8);
  const auto import = [&](int one) {
    CUmemGenericAllocationHandle again = 0;
    if (books_
            ->MemImportFromShareableHandle(payer(), &again, reinterpret_cast<void*>(intptr_t{one}),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
            .ok()) {
      imported.push_back(again);
    } else {
      EXPECT_EQ(again, 0u);
    }
  };
  const auto prepare = [&] {
    handle = Create();
    CUmemAllocationProp properties = OnDevice();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ASSERT_CU(cu_->MemCreate(&past, kGranule, &properties, 0));
    ASSERT_CU(cu_->MemExportToShareableHandle(&others, past,
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ASSERT_CU(cu_->MemRelease(past));
    before_ += kGranule;  // another process's memory until it is imported
    theirs = true;
    file = -1;
    imported.clear();
  };
  const auto calls = [&] {
    if (books_->MemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                           0) == CUDA_SUCCESS) {
      import(file);
    } else {
      EXPECT_EQ(file, -1);
    }
    const size_t before = imported.size();
    import(others);
    if (imported.size() == before) return;
    before_ -= kGranule;
    theirs = false;
  };
  AtEachAllocation(prepare, calls, [&] {
    for (const auto one : imported) EXPECT_CU(books_->MemRelease(one));
    EXPECT_CU(books_->MemRelease(handle));
    for (const int one : {file, others}) {
      if (one >= 0) close(one);
    }
    if (theirs) before_ -= kGranule;
  });
}

TEST_F(BooksHostMemory, MappingsAndReferencesByAddress) {
  CUmemGenericAllocationHandle handle = 0, again = 0;
  unsigned mapped = 0;
  bool held = false, all = false;
  const auto prepare = [&] {
    handle = Create();
    mapped = 0;
    held = all = false;
  };
  const auto calls = [&] {
    for (; mapped < 5; ++mapped) {
      if (!books_->MemMap(payer(), address_ + mapped * kGranule, kGranule, 0, handle, 0).ok()) {
        return;
      }
    }
    if (books_->MemRetainAllocationHandle(&again, reinterpret_cast<void*>(address_)) !=
        CUDA_SUCCESS) {
      return;
    }
    held = true;
    all = books_->MemUnmap(address_, 5 * kGranule) == CUDA_SUCCESS;
  };
  AtEachAllocation(prepare, calls, [&] {
    EXPECT_CU(books_->MemRelease(handle));
    if (held) {
      EXPECT_CU(books_->MemRelease(again));
    }
    for (unsigned i = 0; !all && i < mapped; ++i) {
      EXPECT_CU(books_->MemUnmap(address_ + i * kGranule, kGranule));
    }
  });
}

// The payer for another process's memory is created when the memory is imported, which needs host memory.
TEST_F(BooksHostMemory, AnImportForWhosePayerThereIsNone) {
  CUmemAllocationProp properties = OnDevice();
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle past = 0, again = 0;
  int file = -1;
  ASSERT_CU(cu_->MemCreate(&past, kGranule, &properties, 0));
  ASSERT_CU(
      cu_->MemExportToShareableHandle(&file, past, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  const auto none = [](CUdevice) -> std::optional<Payer> { throw std::bad_alloc(); };
  Answer answer;
  EXPECT_NO_THROW(answer = books_->MemImportFromShareableHandle(
                      none, &again, reinterpret_cast<void*>(intptr_t{file}),
                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(again, 0u);
  close(file);
  ASSERT_CU(cu_->MemRelease(past));
  ExpectExact();
  EXPECT_EQ(Used(), 0u);
}

TEST_F(BooksHostMemory, TheEndOfAContext) {
  auto* const create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(
      driver_->Symbol("cuCtxCreate_v2"));
  CUcontext other = nullptr, popped = nullptr;
  ASSERT_CU(create(&other, 0, 0));
  for (const Family& family : Families()) {
    const std::string name = family.name;
    if (name != "direct" && name != "array" && name != "external") continue;
    for (int i = 0; i < 3; ++i) {
      uint64_t thing = 0;
      ASSERT_TRUE(family.take(*books_, payer(), kMiB, nullptr, &thing).ok());
    }
  }
  CUdeviceptr busy = 0, late = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &busy, 2 * kMiB).ok());
  ASSERT_TRUE(books_->MemAlloc(payer(), &late, kMiB).ok());
  ASSERT_CU(cu_->MemcpyDtoDAsync(busy, busy + kMiB, kMiB, nullptr));
  ASSERT_CU(books_->MemFreeAsync(late, nullptr));
  ASSERT_CU(cu_->CtxPopCurrent(&popped));
  // The call needs no host memory.
  const int failed = work::FailingMemory::failed();
  {
    const work::FailingMemory none;
    EXPECT_CU(books_->CtxDestroy(other));
  }
  EXPECT_EQ(work::FailingMemory::failed(), failed);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

}  // namespace
}  // namespace gpushare::books
