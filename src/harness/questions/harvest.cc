// SPDX-License-Identifier: Apache-2.0
// What best effort makes of the time that a service leaves over, and what that costs the service:
//   busy               % of the time; native's is that of the same tenants ungated
//   left_over          % of the time; no request was waiting or being served, nor was one until `grace` before
//   harvest            % of the time left over; device time that the others had in it
//   taken              % of the time in which requests were waiting or being served; the same
//   TENANT.share       % of the time, of each of the others
//   TENANT.p99         us, of each tenant that serves requests
//   TENANT.served      % of the requests that came
//   TENANT.p99_ratio   the 99th percentile ÷ that alone
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/questions/requests.h"
#include "harness/report/sentences.h"
#include "harness/stretches.h"
#include "harness/values.h"

namespace gpushare::harness {
namespace {

constexpr Nanos kHarvestFine = Micros(100);
constexpr Nanos kGraceByDefault = Micros(30);  // of the arbiter's high_grace

std::string CheckHarvest(const Scenario&, const Case& one) {
  const auto services = std::count_if(one.tenants.begin(), one.tenants.end(), ServesRequests);
  if (services > 0 && services < static_cast<std::ptrdiff_t>(one.tenants.size())) return "";
  return "one tenant has the mode 'requests' and another one has not for the question 'harvest'";
}

void HarvestFigures(const Played& played, std::vector<Figure>* figures) {
  using Better = Figure::Better;
  const std::vector<TenantOutcome>& tenants = played.outcome.tenants;
  const Span measured = played.windows.measured();
  const Stretch all = {static_cast<int64_t>(measured.first) * kSample,
                       static_cast<int64_t>(measured.last) * kSample};
  std::vector<Stretch> each;
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (!ServesRequests(played.one.tenants[i])) continue;
    for (const Stretch& one : Serving(tenants[i], played.scenario.length)) each.push_back(one);
  }
  const Nanos grace(static_cast<int64_t>(played.scenario.settings.at("grace")));
  const std::vector<Stretch> serving = Within(United(each), all);
  const std::vector<Stretch> left_over = Between(United(each, grace), all);
  double harvested = 0, taken = 0;
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (ServesRequests(played.one.tenants[i])) continue;
    AddShareOfTime(played, i, figures);
    harvested += UsedIn(tenants[i], kHarvestFine, left_over);
    taken += UsedIn(tenants[i], kHarvestFine, serving);
  }
  const auto percent = [](double part, double of) {
    return of > 0 ? std::optional<double>(100 * part / of) : std::nullopt;
  };
  figures->push_back(
      {"busy", "%", 100 * UsedByAll(played.outcome, measured) / measured.ns(), Better::kHigher});
  figures->push_back({"left_over", "%", percent(LengthOf(left_over), measured.ns())});
  figures->push_back({"harvest", "%", percent(harvested, LengthOf(left_over)), Better::kHigher});
  figures->push_back({"taken", "%", percent(taken, LengthOf(serving)), Better::kLower});
  for (size_t i = 0; i < tenants.size(); ++i) {
    if (!ServesRequests(played.one.tenants[i])) continue;
    AddQuantiles(played, i, {{".p99", 0.99}}, figures);
    AddServed(played, i, figures);
    AddRatioToAlone(played, i, figures);
  }
}

std::string TellHarvest(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst least = report::LeastOf(scenario, method, "harvest");
  if (least.row == nullptr) {
    const bool none = report::LeastOf(scenario, method, "left_over").row != nullptr;
    return absl::StrCat(none ? "Requests left no time over. " : "",
                        TellWorstRatio(scenario, method));
  }
  return absl::StrCat("Best effort had ", report::Interval(least.median),
                      " % of the time that requests left over", report::InCase(scenario, least),
                      ". ", TellWorstRatio(scenario, method));
}

}  // namespace

const Question& HarvestQuestion() {
  static const Question question = {
      .name = "harvest",
      .asks =
          "How much of the time that requests leave over do the others get, and how much longer "
          "do requests take for it?",
      .keys = {{.name = "grace",
                .read =
                    [](const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       double* out) {
                      Nanos grace{0};
                      const absl::Status read =
                          ReadTime(in, value, place, Nanos(0), Millis(100), Micros(1), &grace);
                      *out = static_cast<double>(grace.count());
                      return read;
                    },
                .otherwise = static_cast<double>(kGraceByDefault.count())}},
      .check = CheckHarvest,
      .with_alone = true,
      .fine = kHarvestFine,
      .figures = HarvestFigures,
      .titles = {{"left_over", "time that requests leave over"},
                 {"harvest", "time left over that the others had"},
                 {"taken", "time of requests that the others had"},
                 {".p99", "99th percentile of latencies"},
                 {".served", "requests served"},
                 {".p99_ratio", "99th percentile of latencies ÷ that alone"}},
      .told = TellHarvest};
  return question;
}

}  // namespace gpushare::harness
