// SPDX-License-Identifier: Apache-2.0
// The question `scale`: sharing among many tenants that are all backlogged.
//   GROUP.share  % of the time used by all, for the tenants of one scenario entry together
//   worst_off    the largest difference between a tenant's share and what it asked for, in % of the latter
//   busy         % of the time
//   launch       us of processor time per launch, by the machine's clock
//   setup        us of processor time per tenant until it could launch
// If each tenant has a process and a GPU of its own (`apart`), by the machine's clock since the first was started:
//   ready_p50    ms until half of them could launch
//   ready_last   ms until all could
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/questions/question.h"
#include "harness/report/sentences.h"
#include "harness/statistics.h"
#include "harness/values.h"

namespace gpushare::harness {
namespace {

absl::Status ReadApart(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       double* out) {
  bool apart = false;
  GPUSHARE_RETURN_IF_ERROR(in.Bool(value, place, &apart));
  *out = apart ? 1 : 0;
  return absl::OkStatus();
}

std::string CheckScale(const Scenario&, const Case& one) {
  for (const Tenant& tenant : one.tenants) {
    if (ServesRequests(tenant)) {
      return "the mode 'backlog' or 'sync' is wanted for the question 'scale'";
    }
    if (!tenant.ask.share.has_value() && !IsApart(one)) {
      return "each tenant needs 'share' for the question 'scale'";
    }
  }
  // Checked here, since the run itself could not tell later that there was no room.
  if (IsApart(one) && one.tenants.size() > kMostApart) {
    return absl::StrCat("at most ", kMostApart, " tenants are allowed where they are apart");
  }
  return "";
}

void FiguresApart(const Outcome& outcome, std::vector<Figure>* figures) {
  std::vector<double> ready_ms;
  for (const int64_t ns : outcome.ready_ns) ready_ms.push_back(static_cast<double>(ns) / 1e6);
  figures->push_back({"ready_p50", "ms", Quantile(ready_ms, 0.5), Figure::Better::kLower, true});
  figures->push_back({"ready_last", "ms", Quantile(ready_ms, 1), Figure::Better::kLower, true});
}

std::optional<double> Us(int64_t ns, uint64_t of) {
  if (of == 0) return std::nullopt;
  return static_cast<double>(ns) / 1e3 / static_cast<double>(of);
}

std::string GroupName(const Case& one, size_t group) {
  for (const Tenant& tenant : one.tenants) {
    if (tenant.group == group) return tenant.entry;
  }
  return "";
}

void ScaleFigures(const Played& played, std::vector<Figure>* figures) {
  const Outcome& outcome = played.outcome;
  if (IsApart(played.one)) return FiguresApart(outcome, figures);
  const Span measured = played.windows.measured();
  const double all = UsedByAll(outcome, measured);
  double asked_by_all = 0;
  for (const Tenant& tenant : played.one.tenants) asked_by_all += *tenant.ask.share;
  std::optional<double> worst;
  uint64_t launches = 0;
  std::map<size_t, double> by_group;
  for (size_t i = 0; i < outcome.tenants.size(); ++i) {
    launches += outcome.tenants[i].launches;
    if (all <= 0) continue;
    by_group[played.one.tenants[i].group] += Used(outcome.tenants[i], measured) / all;
    const double asked = *played.one.tenants[i].ask.share / asked_by_all;
    const double off = Used(outcome.tenants[i], measured) / all / asked - 1;
    worst = std::max(worst.value_or(0), std::fabs(off));
  }
  for (const auto& [group, share] : by_group) {
    figures->push_back({GroupName(played.one, group) + ".share", "%", 100 * share});
  }
  figures->push_back({"worst_off", "%", PercentOf(worst), Figure::Better::kLower});
  figures->push_back({"busy", "%", 100 * all / measured.ns(), Figure::Better::kHigher});
  figures->push_back(
      {"launch", "us", Us(outcome.play_cpu_ns, launches), Figure::Better::kLower, true});
  figures->push_back({"setup", "us", Us(outcome.setup_cpu_ns, outcome.tenants.size()),
                      Figure::Better::kLower, true});
}

std::string TellScale(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst off = report::WorstOf(scenario, method, "worst_off");
  const report::Worst launch = report::WorstOf(scenario, method, "launch");
  const report::Worst ready = report::WorstOf(scenario, method, "ready_last");
  std::string text;
  if (off.row != nullptr && launch.row != nullptr) {
    absl::StrAppend(&text, "No tenant's share was further off what it asked for than ",
                    report::Interval(off.median), " % of that", report::InCase(scenario, off),
                    "; a launch took ", report::Interval(launch.median), " ",
                    report::UnitName("us"), " of processor time at most",
                    report::InCase(scenario, launch), ". ");
  }
  if (ready.row != nullptr) {
    absl::StrAppend(&text, "All processes could launch after ", report::Interval(ready.median),
                    " ms", report::InCase(scenario, ready), ". ");
  }
  return text;
}

}  // namespace

const Question& ScaleQuestion() {
  static const Question question = {
      .name = "scale",
      .asks = "What becomes of shares and costs where there are many tenants?",
      .keys = {{"apart", OwnKey::Of::kCase, ReadApart}},
      .tenant_keys = {"count"},
      .most_tenants = 10'000,
      .check = CheckScale,
      .of_time = false,
      .sparse = true,
      .figures = ScaleFigures,
      .titles = {{"worst_off", "worst tenant: distance from what it asked for, in parts of that"},
                 {"launch", "processor time of a launch"},
                 {"setup", "processor time until a tenant can launch"},
                 {"ready_p50", "until half of the processes can launch"},
                 {"ready_last", "until all processes can launch"}},
      .told = TellScale};
  return question;
}

}  // namespace gpushare::harness
