// SPDX-License-Identifier: Apache-2.0
// The known facts about a name match the list of symbols, and an answer is repeated.
#include "shim/proc_names.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "driver/symbols.h"
#include "gtest/gtest.h"

namespace gpushare::shim {
namespace {

// The function of a symbol is represented by its place in the list.
void* Function(size_t index) { return reinterpret_cast<void*>((index + 1) * 16); }
void* Hook(const driver::Symbol& symbol) {
  const auto index = static_cast<size_t>(&symbol - driver::Symbols().data());
  return symbol.hooked ? reinterpret_cast<void*>((index + 1) * 16 + 1) : nullptr;
}

class ProcNamesTest : public ::testing::Test {
 protected:
  ProcNames names_{driver::Symbols(), &Function, &Hook};
};

TEST_F(ProcNamesTest, EachNameMeansWhatTheListSays) {
  for (const driver::Symbol& symbol : driver::Symbols()) {
    const ProcNames::Name* const name = names_.Find(symbol.base);
    ASSERT_NE(name, nullptr) << symbol.base;
    for (const int version :
         {1000, symbol.version - 1, symbol.version, symbol.version + 1, 99000}) {
      for (const bool per_thread : {false, true}) {
        const driver::Symbol* const meant = driver::AnswerSymbol(symbol.base, version, per_thread);
        const ProcNames::Meaning* const found = name->Meant(version, per_thread);
        ASSERT_EQ(found == nullptr, meant == nullptr) << symbol.base << " " << version;
        if (meant == nullptr) continue;
        EXPECT_EQ(found->exported, Function(static_cast<size_t>(meant - driver::Symbols().data())));
        EXPECT_EQ(found->hook, Hook(*meant));
        EXPECT_TRUE(found->hook == nullptr || name->any_hook());
      }
    }
  }
}

TEST_F(ProcNamesTest, WhatIsNoNameIsNotFound) {
  for (const char* name :
       {"", "c", "cu", "cuMemAlloc_v2", "cuMemAllo", "cuMemAllocx", "cuLaunchKernel_ptsz",
        "a name that no driver has, and longer than any of them is"}) {
    EXPECT_EQ(names_.Find(name), nullptr) << name;
  }
  // Each name with one letter removed, added or changed.
  for (const driver::Symbol& symbol : driver::Symbols()) {
    std::string name(symbol.base);
    name.back() = '~';
    EXPECT_EQ(names_.Find(name), nullptr) << name;
    EXPECT_EQ(names_.Find(std::string(symbol.base) + "~"), nullptr);
  }
}

TEST_F(ProcNamesTest, AnswersAreRememberedByQuestion) {
  ProcNames::Name* const name = names_.Find("cuMemAlloc");
  ASSERT_NE(name, nullptr);
  EXPECT_EQ(name->Find(12000, 0), nullptr);
  EXPECT_EQ(name->Find(0, 0), nullptr);
  name->Remember(12000, 0, Function(1));
  name->Remember(12000, 2, Function(2));
  name->Remember(0, 0, Function(3));
  EXPECT_EQ(name->Find(12000, 0), Function(1));
  EXPECT_EQ(name->Find(12000, 2), Function(2));
  EXPECT_EQ(name->Find(0, 0), Function(3));
  EXPECT_EQ(name->Find(12001, 0), nullptr);
  EXPECT_EQ(name->Find(12000, 1), nullptr);
  for (int bit = 2; bit < 64; ++bit) EXPECT_EQ(name->Find(12000, uint64_t{1} << bit), nullptr);
  // Only a few answers are remembered, and these stay.
  name->Remember(12010, 0, Function(4));
  EXPECT_EQ(name->Find(12010, 0), nullptr);
  EXPECT_EQ(name->Find(12000, 0), Function(1));
  // Other names have their own answers.
  EXPECT_EQ(names_.Find("cuMemFree")->Find(12000, 0), nullptr);
}

TEST_F(ProcNamesTest, ManyThreadsFindNothingOrTheAnswer) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (const driver::Symbol& symbol : driver::Symbols()) {
        ProcNames::Name* const name = names_.Find(symbol.base);
        for (int version = 12000; version < 12003; ++version) {
          void* const answer = reinterpret_cast<void*>(static_cast<uintptr_t>(version));
          void* const found = name->Find(version, 0);
          EXPECT_TRUE(found == nullptr || found == answer) << t;
          if (found == nullptr) name->Remember(version, 0, answer);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpushare::shim
