// SPDX-License-Identifier: Apache-2.0
// The question `memory`: memory asked for against memory got, over a whole run.
//   TENANT.granted    % granted of the requests that fitted into its quota beside what it held
//   TENANT.refused    % refused of those that did not fit
//   TENANT.most_over  MiB; the most that it held above its quota, by the device's own account
//   hurt              number of requests of all tenants that fitted and were refused
#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

constexpr double kMiB = 1 << 20;

std::string CheckMemory(const Scenario&, const Case& one) {
  for (const Tenant& tenant : one.tenants) {
    if (!tenant.ask.memory.has_value() || tenant.allocations.empty()) {
      return "each tenant needs 'memory' and 'allocate' for the question 'memory'";
    }
  }
  return "";
}

std::optional<double> Percent(size_t part, size_t of) {
  if (of == 0) return std::nullopt;
  return 100 * static_cast<double>(part) / static_cast<double>(of);
}

void MemoryFigures(const Played& played, std::vector<Figure>* figures) {
  size_t hurt = 0;
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    const TenantOutcome& tenant = played.outcome.tenants[i];
    const uint64_t quota = played.one.tenants[i].ask.memory.value_or(0);
    size_t fitting = 0, granted = 0, exceeding = 0, refused = 0;
    for (const MemoryRequest& request : tenant.memory) {
      if (FitsInto(quota, request)) {
        ++fitting;
        granted += request.granted ? 1 : 0;
      } else {
        ++exceeding;
        refused += request.granted ? 0 : 1;
      }
    }
    hurt += fitting - granted;
    const uint64_t over = tenant.most_bytes - std::min(tenant.most_bytes, quota);
    figures->push_back(
        {tenant.name + ".granted", "%", Percent(granted, fitting), Figure::Better::kHigher});
    figures->push_back(
        {tenant.name + ".refused", "%", Percent(refused, exceeding), Figure::Better::kHigher});
    figures->push_back({tenant.name + ".most_over", "MiB", static_cast<double>(over) / kMiB,
                        Figure::Better::kLower});
  }
  figures->push_back({"hurt", "", static_cast<double>(hurt), Figure::Better::kLower});
}

std::string TellMemory(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst over = report::WorstOf(scenario, method, ".most_over");
  const report::Worst hurt = report::WorstOf(scenario, method, "hurt");
  if (over.row == nullptr || hurt.row == nullptr) return "";
  const std::string above =
      over.median.value <= 0
          ? "No tenant ever had more memory than its quota"
          : absl::StrCat(over.row->name.substr(0, over.row->name.rfind('.')), " had ",
                         report::Interval(over.median), " MiB more than its quota",
                         report::InCase(scenario, over));
  const std::string refused =
      hurt.median.value <= 0
          ? "every request within one was granted"
          : absl::StrCat(report::Counted(hurt.median, "request"), " that fitted into one refused",
                         report::InCase(scenario, hurt));
  return absl::StrCat(above, "; ", refused, ". ");
}

}  // namespace

const Question& MemoryQuestion() {
  static const Question question = {
      .name = "memory",
      .asks = "Does each tenant get the memory of its quota, and no more?",
      .tenant_keys = {"memory", "allocate"},
      .check = CheckMemory,
      .of_time = false,
      .figures = MemoryFigures,
      .titles = {{".granted", "requests within its quota that were granted"},
                 {".refused", "requests beyond its quota that were refused"},
                 {".most_over", "memory above its quota, at most"},
                 {"hurt", "requests within a quota that were refused"}},
      .told = TellMemory};
  return question;
}

}  // namespace gpushare::harness
