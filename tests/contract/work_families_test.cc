// SPDX-License-Identifier: Apache-2.0
// Every call that puts work on a device is either held or passed for a documented reason.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "driver/symbols.h"
#include "work/calls.h"

namespace gpushare::work {
namespace {

struct Family {
  std::string name, how;  // how: the kind from HELD, or the reason
  bool held;
  int times = 1;
};

std::map<std::string, Family> Families() {
  std::map<std::string, Family> families;
  const auto add = [&](const char* name, const char* how, bool held) {
    const auto [at, inserted] = families.try_emplace(name, Family{name, how, held});
    if (!inserted) ++at->second.times;
  };
#define HELD(entry, function, how) add(#entry, #how, true);
#define PASSED(entry, reason) add(#entry, reason, false);
#include "work/families.def"
#undef HELD
#undef PASSED
  return families;
}

// Lets the compiler check that the function exists.
[[maybe_unused]] void NameTheFunctions() {
#define HELD(entry, function, how) \
  static_cast<void>([](Calls& calls, auto... rest) { return calls.function(rest...); });
#define PASSED(entry, reason)
#include "work/families.def"
#undef HELD
#undef PASSED
}

std::string WithoutVariant(std::string name) {
  for (const char* suffix : {"_ptds", "_ptsz"}) {
    const size_t at = name.size() - 5;
    if (name.size() > 5 && name.compare(at, 5, suffix) == 0) return name.substr(0, at);
  }
  return name;
}

TEST(WorkFamilies, EveryLaunchAndCopyIsHeldOrPassedForAReason) {
  const std::map<std::string, Family> families = Families();
  size_t seen = 0;
  for (const driver::Symbol& symbol : driver::Symbols()) {
    const bool work =
        symbol.klass == driver::SymbolClass::launch || symbol.klass == driver::SymbolClass::copy;
    const std::string base = WithoutVariant(std::string(symbol.name));
    if (!work || !symbol.hooked) {
      EXPECT_EQ(families.count(base), 0u) << symbol.name << " is no hooked launch or copy";
      continue;
    }
    const auto at = families.find(base);
    ASSERT_NE(at, families.end()) << symbol.name << " is not in work/families.def";
    EXPECT_EQ(at->second.times, 1) << symbol.name;
    EXPECT_FALSE(at->second.how.empty()) << symbol.name;
    seen += base == symbol.name;
  }
  EXPECT_EQ(seen, families.size()) << "a family that no symbol is of";
  EXPECT_GE(seen, 80u);
}

// The row of docs/launches.md that names the call agrees with the list.
TEST(WorkFamilies, TheDocsSayTheSame) {
  std::ifstream file(GPUSHARE_SOURCE_DIR "/docs/launches.md");
  ASSERT_TRUE(file.is_open());
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| ", 0) == 0) rows.push_back(line);
  }
  const auto row_of = [&](const std::string& name) {
    for (const std::string& row : rows) {
      if (row.find("`" + name + "`") != std::string::npos) return row;
    }
    return std::string();
  };
  const std::map<std::string, std::string> words = {
      {"kernel", "| kernel |"}, {"alone", "| alone |"}, {"graph", "| graph |"},
      {"host", "| host |"},     {"bytes", "| bytes |"}, {"memory", "| memory |"},
      {"either", "| either |"}};
  for (const auto& [name, family] : Families()) {
    std::string spelt = name;
    const bool of_old = !family.held && family.how == "32-bit addresses";
    if (of_old) continue;  // the old variants share one row
    const std::string row = row_of(spelt);
    ASSERT_FALSE(row.empty()) << name << " is in no row of docs/launches.md";
    const std::string want = family.held ? words.at(family.how) : "| passed: " + family.how + " |";
    EXPECT_NE(row.find(want), std::string::npos) << name << ": " << want << " in\n" << row;
  }
  EXPECT_NE(row_of("_v2").find("| passed: 32-bit addresses |"), std::string::npos);
}

}  // namespace
}  // namespace gpushare::work
