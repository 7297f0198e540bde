// SPDX-License-Identifier: Apache-2.0
// When the driver is asked for the current context, and when its answer is remembered.
#include "driver/current_context.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>

namespace gpushare::driver {
namespace {

int asked;
CUcontext current;
std::function<void()> meanwhile;

CUresult GetCurrent(CUcontext* context) {
  ++asked;
  *context = current;
  if (meanwhile) meanwhile();
  return CUDA_SUCCESS;
}

CUcontext ContextOf(uintptr_t number) { return reinterpret_cast<CUcontext>(number * 64); }

// Begin() and the like affect the whole process, so each test runs in its own process.
void InAProcess(const std::function<void(const Table&)>& test) {
  EXPECT_EXIT(
      {
        Table table;
        table.CtxGetCurrent = &GetCurrent;
        asked = 0;
        current = ContextOf(1);
        test(table);
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

int AskedFor(const Table& table, CUcontext expected) {
  const int before = asked;
  CUcontext found = nullptr;
  EXPECT_EQ(CurrentContext::Get(table, &found), CUDA_SUCCESS);
  EXPECT_EQ(found, expected);
  return asked - before;
}

TEST(CurrentContextTest, NothingIsKeptBeforeSomebodySeesToIt) {
  InAProcess([](const Table& table) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    { const CurrentContext::Change change(CurrentContext::kOfAll); }  // does not begin it
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
  });
}

// An SDK in the same process may have ended contexts before the shim is active.
TEST(CurrentContextTest, AnEndBeforeItBeginsDoesNotKeepItFromBeginning) {
  InAProcess([](const Table& table) {
    for (int i = 0; i < 3; ++i) {
      const CurrentContext::Change change(CurrentContext::kOfAll);
    }
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    CurrentContext::Begin();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
    { const CurrentContext::Change change(CurrentContext::kOfAll); }
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
  });
}

TEST(CurrentContextTest, ItIsKeptUntilAChange) {
  InAProcess([](const Table& table) {
    CurrentContext::Begin();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
    {
      const CurrentContext::Change change;
      EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);  // from a signal handler
      current = ContextOf(2);
    }
    EXPECT_EQ(AskedFor(table, ContextOf(2)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(2)), 0);
    CurrentContext::Begin();  // a second call changes nothing
    EXPECT_EQ(AskedFor(table, ContextOf(2)), 0);
  });
}

TEST(CurrentContextTest, ThatThereIsNoneIsNotKept) {
  InAProcess([](const Table& table) {
    CurrentContext::Begin();
    current = nullptr;
    EXPECT_EQ(AskedFor(table, nullptr), 1);
    EXPECT_EQ(AskedFor(table, nullptr), 1);
  });
}

TEST(CurrentContextTest, AChangeOfAThreadIsNoOthersButAnEndIs) {
  InAProcess([](const Table& table) {
    CurrentContext::Begin();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    std::thread([] { const CurrentContext::Change change; }).join();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
    std::thread([&] {
      EXPECT_EQ(CurrentContext::Kept(), nullptr);
      const CurrentContext::Change change(CurrentContext::kOfAll);
    }).join();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
  });
}

// An answer from before the end may be the context that ended.
TEST(CurrentContextTest, AnAnswerOfBeforeAnEndIsNotKept) {
  InAProcess([](const Table& table) {
    CurrentContext::Begin();
    meanwhile = [] { const CurrentContext::Change change(CurrentContext::kOfAll); };
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    meanwhile = nullptr;
    EXPECT_EQ(CurrentContext::Kept(), nullptr);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 0);
  });
}

TEST(CurrentContextTest, OnceThereAreOtherWaysNothingIsKeptInAnyThread) {
  InAProcess([](const Table& table) {
    CurrentContext::Begin();
    EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    std::thread([] { CurrentContext::End(); }).join();
    CurrentContext::Begin();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    { const CurrentContext::Change change(CurrentContext::kOfAll); }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
    CurrentContext::End();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
  });
}

TEST(CurrentContextTest, WhoNeverBeganMayEndIt) {
  InAProcess([](const Table& table) {
    CurrentContext::End();
    CurrentContext::Begin();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AskedFor(table, ContextOf(1)), 1);
  });
}

}  // namespace
}  // namespace gpushare::driver
