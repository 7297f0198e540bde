// SPDX-License-Identifier: Apache-2.0
// Every entry point that must be seen is hooked, or passed on for a documented reason; docs/coverage.md is made from
// this.
#include "shim/coverage.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "driver/symbols.h"
#include "gtest/gtest.h"
#include "shim/hook.h"

namespace gpushare::shim {
namespace {

using driver::Symbol;
using driver::SymbolClass;
using driver::Symbols;

bool IsHooked(const Symbol& symbol) {
  return FindHook(std::string(symbol.name).c_str()) != nullptr;
}

TEST(Coverage, EveryHookedEntryPointHasAHookOrAReason) {
  for (const Symbol& symbol : Symbols()) {
    if (!symbol.hooked) continue;
    EXPECT_TRUE(IsHooked(symbol) || WhyPassedOn(symbol) != nullptr)
        << symbol.name << ": give it a hook, or a line in src/shim/passed_on.def";
  }
}

TEST(Coverage, NoneHasBothOrIsUnknown) {
  std::set<std::string_view> listed;
#define X(name, reason) EXPECT_TRUE(listed.insert(#name).second) << #name << " is listed twice";
#include "shim/passed_on.def"
#undef X
  for (std::string_view name : listed) {
    const Symbol* symbol = driver::FindSymbol(name);
    ASSERT_NE(symbol, nullptr) << name << " is not in symbols.def";
    EXPECT_TRUE(symbol->hooked) << name << " is not marked as hooked";
    EXPECT_FALSE(IsHooked(*symbol)) << name << " has a hook";
  }
  for (const Symbol& symbol : Symbols()) {
    EXPECT_TRUE(symbol.hooked || !IsHooked(symbol)) << symbol.name << ": mark it in symbols.def";
  }
}

struct ClassText {
  SymbolClass klass;
  const char* name;
};
constexpr ClassText kClasses[] = {{SymbolClass::memory, "memory"},
                                  {SymbolClass::launch, "launch"},
                                  {SymbolClass::copy, "copy"},
                                  {SymbolClass::graph, "graph"},
                                  {SymbolClass::context, "context"},
                                  {SymbolClass::partition, "partition"},
                                  {SymbolClass::stream, "stream"},
                                  {SymbolClass::event, "event"},
                                  {SymbolClass::sync, "sync"},
                                  {SymbolClass::module, "module"},
                                  {SymbolClass::query, "query"},
                                  {SymbolClass::loader, "loader"},
                                  {SymbolClass::host_memory, "host_memory"},
                                  {SymbolClass::texture, "texture"},
                                  {SymbolClass::interop, "interop"},
                                  {SymbolClass::debug, "debug"},
                                  {SymbolClass::pass_through, "pass_through"}};

std::string Document() {
  std::string text =
      "# What gpushare does with each entry point of the driver\n\n"
      "Made from `src/driver/symbols.def`, the hooks of `src/shim` and `src/shim/passed_on.def`; a "
      "test fails when it is "
      "not\ncurrent. *Hooked*: charged, or answered for the share. *Passed on*: ought to be seen, "
      "and is passed on for "
      "the reason\ngiven. *Not looked at*: takes nothing that is shared. A name with ° answers "
      "`CUDA_ERROR_NOT_SUPPORTED` on the simulated\nGPU.\n\n"
      "| class | entry points | hooked | passed on | not looked at | simulated "
      "|\n|---|---|---|---|---|---|\n";
  std::string lists;
  int all[5] = {};
  for (const ClassText& each : kClasses) {
    int count[5] = {};
    std::string hooked, passed, others;
    for (const Symbol& symbol : Symbols()) {
      if (symbol.klass != each.klass) continue;
      const std::string name =
          absl::StrCat("`", std::string(symbol.name), "`", symbol.simulated ? "" : "°");
      ++count[0];
      count[4] += symbol.simulated ? 1 : 0;
      if (IsHooked(symbol)) {
        ++count[1];
        absl::StrAppend(&hooked, hooked.empty() ? "" : ", ", name);
      } else if (symbol.hooked) {
        ++count[2];
        absl::StrAppend(&passed, "- ", name, ": ", WhyPassedOn(symbol), "\n");
      } else {
        ++count[3];
        absl::StrAppend(&others, others.empty() ? "" : ", ", name);
      }
    }
    absl::StrAppend(&text, "| ", each.name, " | ", count[0], " | ", count[1], " | ", count[2],
                    " | ", count[3], " | ", count[4], " |\n");
    for (int i = 0; i < 5; ++i) all[i] += count[i];
    absl::StrAppend(&lists, "\n## ", each.name, "\n");
    if (!hooked.empty()) absl::StrAppend(&lists, "\nHooked: ", hooked, ".\n");
    if (!passed.empty()) absl::StrAppend(&lists, "\nPassed on:\n\n", passed);
    if (!others.empty()) absl::StrAppend(&lists, "\nNot looked at: ", others, ".\n");
  }
  absl::StrAppend(&text, "| **all** | ", all[0], " | ", all[1], " | ", all[2], " | ", all[3], " | ",
                  all[4], " |\n", lists);
  return text;
}

TEST(Coverage, TheDocumentIsCurrent) {
  const std::string path = GPUSHARE_SOURCE "/docs/coverage.md";
  if (std::getenv("GPUSHARE_WRITE_DOCS") != nullptr) std::ofstream(path) << Document();
  std::stringstream found;
  found << std::ifstream(path).rdbuf();
  EXPECT_TRUE(found.str() == Document())
      << "docs/coverage.md: make it anew with GPUSHARE_WRITE_DOCS=1 in this test's environment";
}

}  // namespace
}  // namespace gpushare::shim
