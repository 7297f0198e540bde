// SPDX-License-Identifier: Apache-2.0
// A copy that waits for room while what it waits for, or the thread itself, comes to an end: in the midst of the question that it
// asks the driver.
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
// What happens first where this thread asks of an event, once.
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
  // The tenant's stream is one of a context beside the bed's, which it returns.
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
  EXPECT_EQ(in_query, nullptr);  // it has asked
  EXPECT_EQ(state, PTHREAD_CANCEL_DISABLE);
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
  EXPECT_EQ(state, PTHREAD_CANCEL_ENABLE);  // as it was
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
  ASSERT_CU(Copy(other));  // it is known
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
