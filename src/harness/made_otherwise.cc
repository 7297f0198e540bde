// SPDX-License-Identifier: Apache-2.0
#include "harness/made_otherwise.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spec/text.h"

namespace gpushare::harness {
namespace {

// The length of each scenario's runs, which is the same for all of its runs.
std::map<std::string, std::string> TimesOf(const Results& results) {
  std::map<std::string, std::string> times;
  for (const Result& run : results.runs) {
    if (run.length <= Nanos(0)) continue;
    std::string told = absl::StrCat(spec::FormatDuration(run.length), " with a warm-up of ",
                                    spec::FormatDuration(run.warm_up), ", windows of ",
                                    spec::FormatDuration(run.course.window));
    times.emplace(run.scenario, std::move(told));
  }
  return times;
}

}  // namespace

std::vector<Otherwise> MadeOtherwise(const Results& before, const Results& after) {
  std::vector<Otherwise> made;
  const auto add = [&](const char* what, const std::string& one, const std::string& other) {
    if (one != other) made.push_back({what, one, other});
  };
  const auto add_told = [&](const char* what, const std::string& one, const std::string& other) {
    if (!one.empty() && !other.empty()) add(what, one, other);
  };
  const Circumstances &one = before.circumstances, &other = after.circumstances;
  add("gpu", one.gpu, other.gpu);
  add("driver", one.driver, other.driver);
  add("profile", one.profile, other.profile);
  add("machine", one.machine, other.machine);
  add("gpushare", one.version, other.version);
  const auto known = [](const std::string& commit) { return commit == "unknown" ? "" : commit; };
  add_told("commit", known(one.commit), known(other.commit));
  add("seed", absl::StrCat(one.seed), absl::StrCat(other.seed));
  const std::map<std::string, std::string> times = TimesOf(before);
  for (const auto& [scenario, told] : TimesOf(after)) {
    const auto first = times.find(scenario);
    if (first == times.end() || first->second == told) continue;
    made.push_back({absl::StrCat("length of ", scenario), first->second, told});
  }
  return made;
}

}  // namespace gpushare::harness
