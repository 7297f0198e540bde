// SPDX-License-Identifier: Apache-2.0
// scripts/check-symbols compares symbols.def with the toolkit.
#include "driver/symbols.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "driver/table.h"

namespace gpushare::driver {
namespace {

TEST(Symbols, AreSortedUniqueAndMany) {
  const auto symbols = Symbols();
  EXPECT_GE(symbols.size(), 640u);
  for (size_t i = 1; i < symbols.size(); ++i) EXPECT_LT(symbols[i - 1].name, symbols[i].name);
}

TEST(Symbols, AreFoundByExportedName) {
  const Symbol* symbol = FindSymbol("cuMemcpyHtoDAsync_v2_ptsz");
  ASSERT_NE(symbol, nullptr);
  EXPECT_EQ(symbol->base, "cuMemcpyHtoDAsync");
  EXPECT_EQ(symbol->version, 7000);
  EXPECT_EQ(symbol->klass, SymbolClass::copy);
  EXPECT_TRUE(symbol->per_thread_stream);
  EXPECT_TRUE(symbol->hooked);
  EXPECT_EQ(FindSymbol("cuMemcpyHtoDAsync_v3"), nullptr);
  EXPECT_EQ(FindSymbol(""), nullptr);
  EXPECT_EQ(FindSymbol("zz"), nullptr);
}

std::string Answer(const char* base, int version, bool per_thread) {
  const Symbol* symbol = AnswerSymbol(base, version, per_thread);
  return symbol == nullptr ? "" : std::string(symbol->name);
}

TEST(Symbols, AnswerByNameVersionAndStreamVariant) {
  EXPECT_EQ(Answer("cuMemAlloc", 3010, false), "cuMemAlloc");
  EXPECT_EQ(Answer("cuMemAlloc", 3020, false), "cuMemAlloc_v2");
  EXPECT_EQ(Answer("cuMemAlloc", 13000, false), "cuMemAlloc_v2");
  EXPECT_EQ(Answer("cuCtxCreate", 2000, false), "cuCtxCreate");
  EXPECT_EQ(Answer("cuCtxCreate", 11030, false), "cuCtxCreate_v2");
  EXPECT_EQ(Answer("cuCtxCreate", 11040, false), "cuCtxCreate_v3");
  EXPECT_EQ(Answer("cuCtxCreate", 13000, false), "cuCtxCreate_v4");
  EXPECT_EQ(Answer("cuMemcpyHtoD", 12000, true), "cuMemcpyHtoD_v2_ptds");
  EXPECT_EQ(Answer("cuLaunchKernel", 12000, true), "cuLaunchKernel_ptsz");
  EXPECT_EQ(Answer("cuLaunchKernel", 12000, false), "cuLaunchKernel");
  // There is no variant, so the plain function serves. It also serves if the version is too old for the variant.
  EXPECT_EQ(Answer("cuMemAlloc", 12000, true), "cuMemAlloc_v2");
  EXPECT_EQ(Answer("cuLaunchKernel", 4000, true), "cuLaunchKernel");
  EXPECT_EQ(Answer("cuGetProcAddress", 11030, false), "cuGetProcAddress");
  EXPECT_EQ(Answer("cuGetProcAddress", 12000, false), "cuGetProcAddress_v2");
}

TEST(Symbols, AnswerTellsUnknownFromTooOld) {
  bool known = true;
  EXPECT_EQ(AnswerSymbol("cuNoSuchCall", 13000, false, &known), nullptr);
  EXPECT_FALSE(known);
  EXPECT_EQ(AnswerSymbol("cuMemAlloc_v2", 13000, false, &known), nullptr);  // bases only
  EXPECT_FALSE(known);
  EXPECT_EQ(AnswerSymbol("cuGraphLaunch", 9000, false, &known), nullptr);
  EXPECT_TRUE(known);
}

// Every entry of the table is a listed symbol, and the exported names that are looked up include the name that
// cuda.h's macros make of the prototype's name. So the type and the ABI are of one version.
struct TableEntry {
  const char* declared;
  std::vector<const char*> exported;
};
#define GPUSHARE_SPELLING_(x) #x
#define GPUSHARE_SPELLING(x) GPUSHARE_SPELLING_(x)
#define X(field, prototype, need, ...) \
  TableEntry{GPUSHARE_SPELLING(prototype), std::vector<const char*>{__VA_ARGS__}},
const TableEntry kEntries[] = {
#include "driver/entries.def"
};
#undef X

// A variant for the per-thread default stream has the type of its base.
std::string WithoutVariant(const std::string& name) {
  const bool variant = name.size() > 5 && name.compare(name.size() - 5, 5, "_ptds") == 0;
  return variant ? name.substr(0, name.size() - 5) : name;
}

TEST(Table, EntriesAgreeWithSymbolsAndHeader) {
  size_t own = 0;
  for (const TableEntry& entry : kEntries) {
    for (const char* name : entry.exported) ASSERT_NE(FindSymbol(name), nullptr) << name;
    // Types that no header declares are gpushare's own.
    if (std::string(entry.declared).rfind("gpushare::driver::prototypes::", 0) == 0) {
      ++own;
      continue;
    }
    ASSERT_NE(FindSymbol(entry.declared), nullptr) << entry.declared;
    EXPECT_TRUE(std::any_of(entry.exported.begin(), entry.exported.end(), [&](const char* name) {
      return FindSymbol(name)->base == FindSymbol(entry.declared)->base;
    })) << entry.declared;
    // A toolkit older than an ABI declares the previous one, with the same signature.
    EXPECT_TRUE(std::any_of(entry.exported.begin(), entry.exported.end(), [&](const char* name) {
      return WithoutVariant(name) == entry.declared;
    })) << entry.declared;
  }
  EXPECT_EQ(own, 12u) << "see driver/prototypes.h";
}

}  // namespace
}  // namespace gpushare::driver
