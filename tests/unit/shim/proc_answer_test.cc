// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress with drivers that match symbols.def and drivers that differ slightly.
#include "shim/proc_answer.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "driver/symbols.h"

namespace gpushare::shim {
namespace {

using driver::Symbol;

// The functions of a driver by name, and since which version it has them. A function is the symbol itself, or an
// unknown one.
class PlayedDriver {
 public:
  explicit PlayedDriver(const std::function<int(const Symbol&)>& since) {
    for (const Symbol& symbol : driver::Symbols()) {
      entries_[symbol.base].push_back({since(symbol), symbol.per_thread_stream, &symbol});
    }
  }
  // Adds an unknown ABI of every name.
  void AddNewer(int since) {
    for (auto& [base, entries] : entries_) {
      bool per_thread = false;
      for (const Entry& each : entries) per_thread = per_thread || each.per_thread;
      entries.push_back({since, false, &newer_});
      if (per_thread) entries.push_back({since, true, &newer_of_thread_});
    }
  }
  const void* Ask(std::string_view name, int version, bool per_thread) const {
    const auto at = entries_.find(name);
    if (at == entries_.end()) return nullptr;
    const Entry *plain = nullptr, *of_thread = nullptr;
    for (const Entry& each : at->second) {
      const Entry*& best = each.per_thread ? of_thread : plain;
      if (each.since <= version && (best == nullptr || best->since <= each.since)) best = &each;
    }
    const Entry* const found = per_thread && of_thread != nullptr ? of_thread : plain;
    return found == nullptr ? nullptr : found->function;
  }
  bool Knows(const void* function) const {
    return function != &newer_ && function != &newer_of_thread_;
  }

 private:
  struct Entry {
    int since;
    bool per_thread;
    const void* function;
  };
  std::map<std::string_view, std::vector<Entry>> entries_;
  const int newer_ = 0, newer_of_thread_ = 0;
};

bool HasHook(const Symbol& symbol) { return symbol.hooked; }

std::set<std::string_view> Hooked() {
  std::set<std::string_view> bases;
  for (const Symbol& symbol : driver::Symbols()) {
    if (HasHook(symbol)) bases.insert(symbol.base);
  }
  return bases;
}

// Calls `check` with every name at every version that changes anything, for both kinds of streams.
template <typename Check>
int ForAll(const PlayedDriver& played, const Check& check) {
  std::set<std::string_view> names{"cuNoSuchThing"};
  std::set<int> versions{0, 13000, 13010, 99999};
  for (const Symbol& symbol : driver::Symbols()) {
    names.insert(symbol.base);
    for (const int near : {-1, 0, 1}) versions.insert(symbol.version + near);
  }
  int asked = 0;
  for (const std::string_view name : names) {
    for (const int version : versions) {
      for (const bool per_thread : {false, true}) {
        const void* const given = played.Ask(name, version, per_thread);
        if (given == nullptr) continue;  // null is the right answer
        ++asked;
        const ProcAnswer answer = AnswerFor(
            {name, version, per_thread}, given,
            [&](int at) { return played.Ask(name, at, per_thread); }, HasHook);
        SCOPED_TRACE(std::string(name) + " " + std::to_string(version) + " " +
                     std::to_string(per_thread));
        check(name, given, answer);
        if (::testing::Test::HasFailure()) return asked;
      }
    }
  }
  return asked;
}

// Hooked functions are answered with the hook for their symbol, and all others with the driver's function.
void IsRight(const void* given, const ProcAnswer& answer) {
  const auto* const symbol = static_cast<const Symbol*>(given);
  EXPECT_EQ(answer.what, HasHook(*symbol) ? ProcAnswer::kOurs : ProcAnswer::kDrivers);
  EXPECT_EQ(answer.symbol, HasHook(*symbol) ? symbol : nullptr);
}

TEST(ProcAnswer, IsTheSymbolThatTheDriverGave) {
  const PlayedDriver played([](const Symbol& symbol) { return symbol.version; });
  const int asked = ForAll(played, [](std::string_view, const void* given,
                                      const ProcAnswer& answer) { IsRight(given, answer); });
  EXPECT_GT(asked, 20'000);
}

// A driver may have entry points earlier or later than the table says: this must not bypass any limit.
TEST(ProcAnswer, ADriverMayHaveItFromAnotherVersionOn) {
  for (const int moved : {-1000, -20, -1, 1, 20, 1000}) {
    SCOPED_TRACE(moved);
    const PlayedDriver played([moved](const Symbol& symbol) { return symbol.version + moved; });
    int ours = 0;
    ForAll(played, [&](std::string_view, const void* given, const ProcAnswer& answer) {
      const auto* const symbol = static_cast<const Symbol*>(given);
      EXPECT_FALSE(HasHook(*symbol) && answer.what == ProcAnswer::kDrivers);
      ours += answer.what == ProcAnswer::kOurs;
    });
    EXPECT_GT(ours, 1000);
  }
}

// The first ABI of a name, from a driver that has it before the known version.
TEST(ProcAnswer, WhatIsOlderThanKnownIsOursAllTheSame) {
  const PlayedDriver played([](const Symbol& symbol) { return symbol.version - 10; });
  int checked = 0;
  for (const std::string_view base : Hooked()) {
    const Symbol* oldest = nullptr;
    int of_name = 0;
    for (const Symbol& symbol : driver::Symbols()) {
      if (symbol.base != base) continue;
      ++of_name;
      oldest = &symbol;
    }
    if (of_name != 1) continue;
    const void* const given = played.Ask(base, oldest->version - 5, false);
    const ProcAnswer answer = AnswerFor(
        {base, oldest->version - 5, false}, given,
        [&](int at) { return played.Ask(base, at, false); }, HasHook);
    EXPECT_EQ(answer.what, ProcAnswer::kOurs) << base;
    EXPECT_EQ(answer.symbol, oldest) << base;
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

TEST(ProcAnswer, AnAbiThatIsNotKnownIsNotFoundWhereAnythingOfItsNameIsHooked) {
  PlayedDriver played([](const Symbol& symbol) { return symbol.version; });
  played.AddNewer(13010);
  const std::set<std::string_view> hooked = Hooked();
  // The current context limits nothing, and is queried again once a program has such a function.
  const std::set<std::string_view> kOnlyContexts = {
      "cuCtxAttach",     "cuCtxCreate",   "cuCtxPopCurrent",  "cuCtxPushCurrent",
      "cuCtxSetCurrent", "cuGLCtxCreate", "cuGetExportTable", "cuVDPAUCtxCreate"};
  int refused = 0, passed = 0, unseens = 0;
  ForAll(played, [&](std::string_view name, const void* given, const ProcAnswer& answer) {
    if (played.Knows(given)) return IsRight(given, answer);
    const bool unseen = kOnlyContexts.count(name) > 0;
    EXPECT_EQ(answer.what, unseen                   ? ProcAnswer::kUnseen
                           : hooked.count(name) > 0 ? ProcAnswer::kTooNew
                                                    : ProcAnswer::kDrivers);
    ++(unseen ? unseens : hooked.count(name) > 0 ? refused : passed);
  });
  EXPECT_GT(refused, 100);
  EXPECT_GT(unseens, 8);
  EXPECT_GT(passed, 100);
}

}  // namespace
}  // namespace gpushare::shim
