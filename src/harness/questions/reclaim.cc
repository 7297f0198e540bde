// SPDX-License-Identifier: Apache-2.0
// The question `reclaim`: how soon a returning tenant has its share again, and how busy the device was meanwhile.
//   TENANT.reclaim        ms from its return until the start of the first window in which it has its share, less `tolerance`;
//                         the median of its returns. Without such a window, the whole stay counts
//   TENANT.reclaim_worst  the longest of them
//   TENANT.reclaimed      % of its returns that were followed by such a window
//   TENANT.behind         ms of device time; the most that it was behind its share at any time since a return
//   busy_away             % of the time during which any tenant was away
//   busy                  % of the time
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/questions/shares.h"
#include "harness/report/sentences.h"
#include "harness/statistics.h"
#include "harness/stretches.h"
#include "harness/timing.h"
#include "harness/values.h"
#include "spec/text.h"

namespace gpushare::harness {
namespace {

using Better = Figure::Better;

constexpr Nanos kReclaimFine = Micros(100);

// The stays of a tenant that begin after the warm-up: from its return until it leaves again or the run ends.
std::vector<Stretch> StaysOf(const Scenario& scenario, const Tenant& tenant) {
  std::vector<Stretch> stays;
  if (ServesRequests(tenant)) return stays;
  for (const Stretch& each : tenant.active) {
    if (each.from > Nanos(0) && each.from >= scenario.warm_up) stays.push_back(each);
  }
  return stays;
}

std::string CheckReclaim(const Scenario& scenario, const Case& one) {
  if (std::string wrong = CheckShares(one, "reclaim"); !wrong.empty()) return wrong;
  bool any = false;
  for (const Tenant& tenant : one.tenants) {
    for (const Stretch& stay : StaysOf(scenario, tenant)) {
      any = true;
      if (stay.to - stay.from >= scenario.window) continue;
      return absl::StrCat(
          "'", tenant.name, "' is back for ", spec::FormatDuration(stay.to - stay.from),
          ", which is shorter than the window of ", spec::FormatDuration(scenario.window));
    }
  }
  if (any) return "";
  return "a tenant that does not serve requests comes back after the warm-up, by its 'active', for "
         "the question 'reclaim'";
}

double UsedByAllIn(const Played& played, const std::vector<Stretch>& stretches) {
  double sum = 0;
  for (const TenantOutcome& tenant : played.outcome.tenants) {
    sum += UsedIn(tenant, kReclaimFine, stretches);
  }
  return sum;
}

// The time from the start of the stay; nullopt if the tenant never has `wanted` over a window.
std::optional<Nanos> TimeUntilShare(const Played& played, size_t tenant, Stretch stay,
                                    double wanted) {
  const Nanos window = played.scenario.window;
  for (Nanos from = stay.from; from + window <= stay.to; from += kReclaimFine) {
    const std::vector<Stretch> here = {{from, from + window}};
    const double all = UsedByAllIn(played, here);
    const double had = UsedIn(played.outcome.tenants[tenant], kReclaimFine, here);
    if (all > 0 && had >= wanted * all) return from - stay.from;
  }
  return std::nullopt;
}

// The most that the tenant was behind its part of the time that all used since the start of the stay, in ns of device time.
double MostBehind(const Played& played, size_t tenant, Stretch stay, double asked) {
  double most = 0;
  for (Nanos until = stay.from + kReclaimFine; until <= stay.to; until += kReclaimFine) {
    const std::vector<Stretch> since = {{stay.from, until}};
    const double had = UsedIn(played.outcome.tenants[tenant], kReclaimFine, since);
    most = std::max(most, asked * UsedByAllIn(played, since) - had);
  }
  return most;
}

void ReclaimFigures(const Played& played, std::vector<Figure>* figures) {
  const Scenario& scenario = played.scenario;
  const Span measured = played.windows.measured();
  const Stretch all = {static_cast<int64_t>(measured.first) * kSample,
                       static_cast<int64_t>(measured.last) * kSample};
  std::vector<Stretch> away;
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    const Tenant& tenant = played.one.tenants[i];
    const TenantOutcome& outcome = played.outcome.tenants[i];
    for (const player::Absence& each : outcome.away) away.push_back({each.from, each.to});
    const double asked = tenant.ask.share.value_or(0);
    const double wanted = asked * (1 - scenario.settings.at("tolerance"));
    std::vector<double> ms;
    size_t reached = 0;
    double behind = 0;
    for (const Stretch& stay : StaysOf(scenario, tenant)) {
      // A tenant whose earlier work had not ended by then was not away.
      const bool was_away =
          std::any_of(outcome.away.begin(), outcome.away.end(),
                      [&stay](const player::Absence& each) { return each.to == stay.from; });
      if (!was_away || stay.to > all.to) continue;
      const std::optional<Nanos> time = TimeUntilShare(played, i, stay, wanted);
      if (time.has_value()) ++reached;
      behind = std::max(behind, MostBehind(played, i, stay, asked) / 1e6);
      ms.push_back(static_cast<double>(time.value_or(stay.to - stay.from).count()) / 1e6);
    }
    if (StaysOf(scenario, tenant).empty()) continue;
    std::optional<double> middle, worst, part, most_behind;
    if (!ms.empty()) {
      middle = MedianOf(ms).value;
      worst = *std::max_element(ms.begin(), ms.end());
      most_behind = behind;
      part = 100 * static_cast<double>(reached) / static_cast<double>(ms.size());
    }
    figures->push_back({outcome.name + ".reclaim", "ms", middle, Better::kLower});
    figures->push_back({outcome.name + ".reclaim_worst", "ms", worst, Better::kLower});
    figures->push_back({outcome.name + ".reclaimed", "%", part, Better::kHigher});
    figures->push_back({outcome.name + ".behind", "ms", most_behind, Better::kLower});
  }
  away = Within(United(std::move(away)), all);
  std::optional<double> lent;
  if (!away.empty()) lent = 100 * UsedByAllIn(played, away) / LengthOf(away);
  figures->push_back({"busy_away", "%", lent, Better::kHigher});
  figures->push_back(
      {"busy", "%", 100 * UsedByAll(played.outcome, measured) / measured.ns(), Better::kHigher});
}

std::string TellReclaim(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst worst = report::WorstOf(scenario, method, ".reclaim_worst");
  const report::Worst lent = report::LeastOf(scenario, method, "busy_away");
  if (worst.row == nullptr || lent.row == nullptr) return "";
  const report::Worst reached = report::LeastOf(scenario, method, ".reclaimed");
  const std::string tenant = worst.row->name.substr(0, worst.row->name.rfind('.'));
  std::string text =
      absl::StrCat(tenant, " had its share at the latest ", report::Interval(worst.median),
                   " ms after its return", report::InCase(scenario, worst));
  const report::Worst behind = report::WorstOf(scenario, method, ".behind");
  if (behind.row != nullptr) {
    absl::StrAppend(&text, "; ", behind.row->name.substr(0, behind.row->name.rfind('.')),
                    " was at most ", report::Interval(behind.median),
                    " ms of device time behind it", report::InCase(scenario, behind));
  }
  text += ". ";
  if (reached.row != nullptr && reached.median.value < 100) {
    text = absl::StrCat(reached.row->name.substr(0, reached.row->name.rfind('.')),
                        " had its share again after ", report::Interval(reached.median),
                        " % of its returns", report::InCase(scenario, reached), ". ");
  }
  return absl::StrCat(text, "While a tenant was away, the device was busy for ",
                      report::Interval(lent.median), " % of the time",
                      report::InCase(scenario, lent), ". ");
}

}  // namespace

const Question& ReclaimQuestion() {
  static const Question question = {
      .name = "reclaim",
      .asks =
          "How soon does a tenant that comes back have its share again, over a window of "
          "%WINDOW%, and do others use it meanwhile?",
      .keys = {{.name = "tolerance",
                .read = [](const yaml::Reader& in, const yaml::Node& value,
                           const std::string& place,
                           double* out) { return ReadPart(in, value, place, out); },
                .otherwise = 0.1}},
      .check = CheckReclaim,
      .of_used = true,
      .fine = kReclaimFine,
      .figures = ReclaimFigures,
      .titles = {{".reclaim", "median time from its return until it has its share"},
                 {".reclaim_worst", "longest time from its return until it has its share"},
                 {".reclaimed", "returns after which it had its share"},
                 {".behind", "most that it was behind its share after a return"},
                 {"busy_away", "time away in which the device is busy"},
                 {"busy", "time in which the device is busy"}},
      .told = TellReclaim};
  return question;
}

}  // namespace gpushare::harness
