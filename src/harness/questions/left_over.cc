// SPDX-License-Identifier: Apache-2.0
#include "harness/questions/left_over.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/report/sentences.h"
#include "harness/stretches.h"
#include "harness/values.h"

namespace gpushare::harness {
namespace {

constexpr Nanos kGraceByDefault = Micros(30);  // the arbiter's default for high_grace

Stretch AllOf(const Played& played) {
  const Span measured = played.windows.measured();
  return {static_cast<int64_t>(measured.first) * kSample,
          static_cast<int64_t>(measured.last) * kSample};
}

// The stretches of all request-serving tenants, unsorted.
template <typename Of>
std::vector<Stretch> OfServices(const Played& played, const Of& of) {
  std::vector<Stretch> each;
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    if (!ServesRequests(played.one.tenants[i])) continue;
    for (const Stretch& one : of(played.outcome.tenants[i])) each.push_back(one);
  }
  return each;
}

// The other tenants' device time in % of the stretches; nullopt without stretches.
std::optional<double> HadByOthers(const Played& played, const std::vector<Stretch>& in) {
  if (in.empty()) return std::nullopt;
  double had = 0;
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    if (ServesRequests(played.one.tenants[i])) continue;
    had += UsedIn(played.outcome.tenants[i], kLeftOverFine, in);
  }
  return 100 * had / LengthOf(in);
}

}  // namespace

OwnKey GraceKey() {
  const auto take = [](const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       double* out) {
    Nanos grace{0};
    const absl::Status read = ReadTime(in, value, place, Nanos(0), Millis(100), Micros(1), &grace);
    *out = static_cast<double>(grace.count());
    return read;
  };
  return {.name = "grace", .read = take, .otherwise = static_cast<double>(kGraceByDefault.count())};
}

bool HasLeftOver(const Case& one) {
  const auto services = std::count_if(one.tenants.begin(), one.tenants.end(), ServesRequests);
  return services > 0 && services < static_cast<std::ptrdiff_t>(one.tenants.size());
}

void AddLeftOver(const Played& played, std::vector<Figure>* figures) {
  const Stretch all = AllOf(played);
  const Nanos grace(static_cast<int64_t>(played.scenario.settings.at("grace")));
  const std::vector<Stretch> left_over = Between(United(OfServices(played, InFlight), grace), all);
  const double time = played.windows.measured().ns();
  figures->push_back({"left_over", "%", 100 * LengthOf(left_over) / time});
  figures->push_back({"harvest", "%", HadByOthers(played, left_over), Figure::Better::kHigher});
}

void AddTaken(const Played& played, std::vector<Figure>* figures) {
  const auto serving = [&](const TenantOutcome& tenant) {
    return Serving(tenant, played.scenario.length);
  };
  const std::vector<Stretch> in = Within(United(OfServices(played, serving)), AllOf(played));
  figures->push_back({"taken", "%", HadByOthers(played, in), Figure::Better::kLower});
}

std::vector<FigureTitle> LeftOverTitles() {
  return {{"left_over", "time that requests leave over"},
          {"harvest", "time left over that the others had"},
          {"taken", "time of requests that the others had"}};
}

std::string TellLeftOver(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst least = report::LeastOf(scenario, method, "harvest");
  if (least.row == nullptr) {
    const bool none = report::LeastOf(scenario, method, "left_over").row != nullptr;
    return none ? "Requests left no time over. " : "";
  }
  return absl::StrCat("Best effort had ", report::Interval(least.median),
                      " % of the time that requests left over", report::InCase(scenario, least),
                      ". ");
}

}  // namespace gpushare::harness
