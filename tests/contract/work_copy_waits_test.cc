// SPDX-License-Identifier: Apache-2.0
// A copy waits for room, and the tenant, the context or the thread itself ends in the middle of the event query.
#include <pthread.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "tests/contract/work_bed.h"

namespace gpushare::work {
namespace {

constexpr size_t kManyPieces = size_t{64} << 20;

decltype(driver::Table::EventQuery) real_query;
// Runs once, before the next event query of this thread.
thread_local std::function<void()> in_query;

CUresult Query(CUevent event) {
  if (in_query != nullptr) std::exchange(in_query, nullptr)();
  return real_query(event);
}

class CopyWaitsTest : public WorkTest {
 protected:
  void SetUp() override {
    WorkTest::SetUp();
    real_query = cu_->EventQuery;
    const_cast<driver::Table&>(*cu_).EventQuery = &Query;
    const auto allocate = Symbol<CUresult(void**, size_t, unsigned)>("cuMemHostAlloc");
    ASSERT_CU(allocate(&host_, kManyPieces, 0));
    ASSERT_CU(cu_->MemAlloc(&device_, kManyPieces));
  }
  void TearDown() override {
    in_query = nullptr;
    WorkTest::TearDown();
    const_cast<driver::Table&>(*cu_).EventQuery = real_query;
  }
  CUresult Copy(const Tenant& t) {
    return calls_->MemcpyHtoDAsync(t.payer(), device_, host_, kManyPieces, t.stream);
  }
  // Gives the tenant a stream of a new context, which it returns.
  CUcontext Elsewhere(Tenant& t) {
    const auto create = Symbol<CUresult(CUcontext*, unsigned, CUdevice)>("cuCtxCreate_v2");
    CUcontext made = nullptr, popped = nullptr;
    EXPECT_CU(create(&made, 0, 0));
    t.stream = NewStream(t);
    EXPECT_CU(cu_->CtxPopCurrent(&popped));
    return made;
  }
  void Ends(CUcontext context) {
    EXPECT_CU(calls_->ContextEnds(context, [] { return CUDA_SUCCESS; }));
  }

  void* host_ = nullptr;
  CUdeviceptr device_ = 0;
};

TEST_F(CopyWaitsTest, IsNotCancelledWhereItAsksTheDriver) {
  const Tenant& t = Weighing(1);
  Weighing(1);
  int state = PTHREAD_CANCEL_ENABLE;
  in_query = [&] {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_setcancelstate(state, nullptr);
  };
  ASSERT_CU(Copy(t));
  EXPECT_EQ(in_query, nullptr);  // the query was made
  EXPECT_EQ(state, PTHREAD_CANCEL_DISABLE);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE);  // restored to the previous state
}

TEST_F(CopyWaitsTest, WhatUnwindsItThereLeavesNothingThatOthersWaitFor) {
  Tenant& t = Weighing(1);
  const Tenant& other = Weighing(1);
  const CUcontext context = Elsewhere(t);
  in_query = [] { throw 7; };
  EXPECT_THROW(Copy(t), int);
  std::atomic<int> done{0};
  const auto ending = Thread([&] {
    Ends(context);
    done = 1;
    calls_->Forget(t.gate);
    engine_->RemoveTenant(t.gate);
    done = 2;
  });
  Rest(Millis(50));
  ASSERT_EQ(done, 2);
  ending->Join();
  tenants_.erase(tenants_.begin());
  EXPECT_CU(Copy(other));
}

TEST_F(CopyWaitsTest, AContextThatEndsWaitsForQuestionsOfItsOwnEventsOnly) {
  Tenant &t = Weighing(1), &other = Weighing(1);
  const CUcontext of_t = Elsewhere(t), of_other = Elsewhere(other);
  ASSERT_CU(Copy(other));  // the stream is known now
  std::atomic<bool> own{false}, others{false};
  std::unique_ptr<base::ClockThread> a, b;
  in_query = [&] {
    a = Thread([&] {
      Ends(of_t);
      own = true;
    });
    b = Thread([&] {
      Ends(of_other);
      others = true;
    });
    Rest(Millis(1));
    EXPECT_TRUE(others);
    EXPECT_FALSE(own);
  };
  EXPECT_CU(Copy(t));
  ASSERT_NE(a, nullptr);
  Rest(Millis(1));
  EXPECT_TRUE(own);
  a->Join();
  b->Join();
}

}  // namespace
}  // namespace gpushare::work
