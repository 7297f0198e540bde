// SPDX-License-Identifier: Apache-2.0
// Graph memory: the memory that the driver keeps for graphs is charged to the tenants that launched them.
#include <optional>

#include "tests/contract/books_bed.h"

namespace gpushare::books {
namespace {

class BooksGraph : public BooksTest {
 protected:
  explicit BooksGraph(int devices = 1, uint64_t granule = kGranule)
      : BooksTest("virtual", devices, granule) {}
  template <typename F>
  F* Symbol(const char* name) {
    return reinterpret_cast<F*>(driver_->Symbol(name));
  }
  // A graph that allocates `bytes`, and frees them unless the program is to free them.
  CUgraphExec Make(uint64_t bytes, bool frees = true, CUdeviceptr* pointer = nullptr,
                   int device = 0) {
    CUgraph graph = nullptr;
    EXPECT_CU((Symbol<CUresult(CUgraph*, unsigned)>("cuGraphCreate")(&graph, 0)));
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    parameters.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    parameters.bytesize = bytes;
    CUgraphNode node = nullptr, free = nullptr;
    EXPECT_CU((Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t,
                               CUDA_MEM_ALLOC_NODE_PARAMS*)>("cuGraphAddMemAllocNode")(
        &node, graph, nullptr, 0, &parameters)));
    if (frees) {
      EXPECT_CU((Symbol<CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, size_t, CUdeviceptr)>(
          "cuGraphAddMemFreeNode")(&free, graph, &node, 1, parameters.dptr)));
    }
    if (pointer != nullptr) *pointer = parameters.dptr;
    CUgraphExec exec = nullptr;
    EXPECT_CU(books_->GraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  Answer Launch(CUgraphExec exec, quota::Account* account = nullptr) {
    return books_->GraphLaunch(
        {.account = account != nullptr ? account : account_.get(), .owner = 1}, exec, stream_);
  }
  void Finish() { EXPECT_CU(cu_->StreamSynchronize(stream_)); }
};

TEST_F(BooksGraph, ALaunchIsChargedWithWhatTheDriverTakesUntilItIsTrimmed) {
  CUgraphExec const exec = Make(3 * kMiB);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Launch(exec).ok());
    ExpectExact();
    EXPECT_EQ(account_->charged(), 2 * kGranule);
  }
  Finish();
  EXPECT_CU(books_->GraphExecDestroy(exec));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 2 * kGranule);
  EXPECT_CU(books_->DeviceGraphMemTrim(0));
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksGraph, AtTheQuotaALaunchIsOutOfMemory) {
  CUdeviceptr pointer = 0;
  CUgraphExec const large = Make(kLimit + 1), outlives = Make(kLimit / 2 + kMiB, false, &pointer),
                    other = Make(kLimit / 2);
  const Answer never = Launch(large);
  EXPECT_EQ(never.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(never.at_quota);
  ExpectExact();
  ASSERT_TRUE(Launch(outlives).ok());
  Finish();
  const Answer now = Launch(other);
  EXPECT_TRUE(now.at_quota);
  ExpectExact();
  EXPECT_CU(books_->MemFree(pointer));  // the memory belongs to the graph and stays reserved
  ExpectExact();
  ASSERT_TRUE(Launch(other).ok());
  ExpectExact();
  EXPECT_LE(account_->charged(), kLimit);
}

TEST_F(BooksGraph, WhatGraphsKeepIsGivenUpForOtherFamilies) {
  ASSERT_TRUE(Launch(Make(kLimit)).ok());
  Finish();
  EXPECT_EQ(account_->charged(), kLimit);
  CUdeviceptr pointer = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &pointer, kLimit).ok());
  EXPECT_EQ(account_->Usage().denied, 0u);
  ExpectExact();
}

TEST_F(BooksGraph, ALaunchThatTheDriverRefusesLeavesNothing) {
  CUgraphExec const exec = Make(5 * kMiB);
  Inject("error call=cuGraphLaunch code=2 nth=1");
  const Answer answer = Launch(exec);
  EXPECT_EQ(answer.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(answer.at_quota);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
  ASSERT_TRUE(books_->GraphUpload(payer(), exec, stream_).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 3 * kGranule);
  EXPECT_CU(books_->DevicePrimaryCtxReset(0));
  EXPECT_EQ(account_->charged(), 0u);
}

TEST_F(BooksGraph, AnUploadTakesItsMemoryWhileItsStreamCapturesToo) {
  CUgraphExec const exec = Make(3 * kMiB);
  CUgraph captured = nullptr;
  ASSERT_CU(cu_->StreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  account_->SetLimit(kGranule);
  EXPECT_EQ(books_->GraphUpload(payer(), exec, stream_).result, CUDA_ERROR_OUT_OF_MEMORY);
  ExpectExact();
  EXPECT_EQ(account_->charged(), 0u);
  account_->SetLimit(4 * kGranule);
  ASSERT_TRUE(books_->GraphUpload(payer(), exec, stream_).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 2 * kGranule);
  ASSERT_CU(cu_->StreamEndCapture(stream_, &captured));
}

TEST_F(BooksGraph, WhatALaunchTakesBesideAnotherIsPaidOrItsPayerLaunchesNoMore) {
  // Two graphs that run one after the other share the same memory. If they run at once, each needs its own.
  const auto second = NewAccount(8 * kMiB);
  CUstream other = nullptr;
  ASSERT_CU(cu_->StreamCreateWithPriority(&other, CU_STREAM_NON_BLOCKING, 0));
  CUdeviceptr pointer = 0, held = 0;
  CUgraphExec const mine = Make(8 * kMiB, false, &pointer), theirs = Make(8 * kMiB);
  ASSERT_TRUE(Launch(theirs, second.get()).ok());
  Finish();
  ASSERT_TRUE(Launch(mine).ok());  // uses the same memory, which stays reserved
  Finish();
  books_->Settle();
  EXPECT_EQ(account_->charged() + second->charged(), 8 * kMiB);
  EXPECT_EQ(second->charged(), 0u);
  const Payer theirs_to_pay{.account = second.get(), .owner = 2};
  ASSERT_TRUE(books_->MemAlloc(theirs_to_pay, &held, 8 * kMiB).ok());
  const uint64_t before = Used();
  EXPECT_CU(cu_->MemcpyDtoDAsync(held, held + kMiB, kMiB, other));
  ASSERT_TRUE(books_->GraphLaunch(theirs_to_pay, theirs, other).ok());
  EXPECT_EQ(Used(),
            before + 8 * kMiB);  // beside the first graph, when no quota is left to pay for it
  EXPECT_EQ(second->charged(), 16 * kMiB);  // exceeds its limit
  const Answer refused = books_->GraphLaunch(theirs_to_pay, theirs, other);
  EXPECT_TRUE(refused.at_quota);
  EXPECT_CU(books_->MemFree(pointer));
  EXPECT_TRUE(Launch(mine).ok());  // the excess is not charged to this tenant
  Finish();
  EXPECT_CU(cu_->StreamSynchronize(other));
  EXPECT_CU(books_->MemFree(held));
  ASSERT_TRUE(books_->GraphLaunch(theirs_to_pay, theirs, other).ok());
  EXPECT_CU(cu_->StreamSynchronize(other));
  books_->Settle();
  EXPECT_EQ(account_->charged() + second->charged(), Used());
}

class BooksGraphOfLargeGranules : public BooksGraph {
 protected:
  BooksGraphOfLargeGranules() : BooksGraph(1, 32 * kMiB) {}
};

TEST_F(BooksGraphOfLargeGranules, ALaunchIsRefusedWhereItsGranuleDoesNotFit) {
  CUdeviceptr held = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &held, kLimit - 4 * kMiB).ok());
  CUgraphExec const exec = Make(kMiB);
  const Answer refused = Launch(exec);
  EXPECT_EQ(refused.result, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(refused.at_quota);
  EXPECT_EQ(refused.left, 4 * kMiB);
  EXPECT_EQ(account_->Usage().denied, 1u);
  ExpectExact();  // nothing of it remains
  EXPECT_EQ(Used(), kLimit - 4 * kMiB);
  uint64_t high = 0;
  EXPECT_CU(cu_->DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &high));
  EXPECT_EQ(high, 32 * kMiB);  // so the driver was tried once:
  high = 0;
  EXPECT_CU((Symbol<CUresult(CUdevice, CUgraphMem_attribute, void*)>(
      "cuDeviceSetGraphMemAttribute")(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &high)));
  EXPECT_TRUE(Launch(exec).at_quota);
  EXPECT_CU(cu_->DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &high));
  EXPECT_EQ(high, 0u);
  EXPECT_CU(books_->MemFree(held));
  ASSERT_TRUE(Launch(exec).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 32 * kMiB);
  // A larger graph needs whole granules.
  Finish();
  ASSERT_TRUE(Launch(Make(33 * kMiB)).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 64 * kMiB);
}

TEST_F(BooksGraphOfLargeGranules, WhatOtherGraphsKeepMakesRoom) {
  ASSERT_TRUE(Launch(Make(33 * kMiB)).ok());  // uses both granules
  Finish();
  CUdeviceptr held = 0;
  ASSERT_TRUE(books_->MemAlloc(payer(), &held, 20 * kMiB).ok());
  ASSERT_TRUE(Launch(Make(kMiB)).ok());
  ExpectExact();
  EXPECT_EQ(account_->charged(), 52 * kMiB);
}

class BooksGraphTwoDevices : public BooksGraph {
 protected:
  BooksGraphTwoDevices() : BooksGraph(2) {}
};

TEST_F(BooksGraphTwoDevices, EachDevicePaysForItsOwn) {
  const auto second = NewAccount(4 * kMiB);
  const auto payer_on = [&](CUdevice device) -> std::optional<Payer> {
    if (device > 1) return std::nullopt;
    return Payer{.account = device == 0 ? account_.get() : second.get(), .owner = 1};
  };
  CUgraphExec const there = Make(3 * kMiB, true, nullptr, 1),
                    large = Make(5 * kMiB, true, nullptr, 1);
  ASSERT_TRUE(books_->GraphLaunch(payer_on, there, stream_).ok());
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_EQ(second->charged(), 4 * kMiB);
  Finish();
  EXPECT_TRUE(books_->GraphLaunch(payer_on, large, stream_).at_quota);
  ASSERT_TRUE(books_->GraphUpload(payer_on, there, stream_).ok());
  EXPECT_EQ(second->charged(), 4 * kMiB);
  const auto nobody = [](CUdevice) -> std::optional<Payer> { return std::nullopt; };
  EXPECT_EQ(books_->GraphLaunch(nobody, there, stream_).result, CUDA_ERROR_OUT_OF_MEMORY);
  const auto free = [](CUdevice) { return std::optional(Payer{.account = nullptr}); };
  EXPECT_TRUE(books_->GraphLaunch(free, Make(kMiB), stream_).ok());
  EXPECT_EQ(account_->charged(), 0u);
  EXPECT_EQ(Used(), kGranule);  // which is charged to nobody
}

}  // namespace
}  // namespace gpushare::books
