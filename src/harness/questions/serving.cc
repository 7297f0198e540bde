// SPDX-License-Identifier: Apache-2.0
// The question `serving`: servers that batch the requests in their queues, beside other tenants' work.
//   TENANT.p50 .p99           us from a request's arrival, including its time in the queue
//   TENANT.served             % of its requests that were served
//   TENANT.throughput         requests answered per second
//   TENANT.goodput            requests per second that were answered within its `goal`
//   TENANT.batch              average number of requests in a batch
//   TENANT.p50_ratio .p99_ratio .goodput_ratio   those figures ÷ the tenant's alone
//   TENANT.share              % of the time, for each of the other tenants
//   work                      % of what the same tenants do ungated (work_done.h)
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"
#include "harness/questions/requests.h"
#include "harness/questions/work_done.h"
#include "harness/report/sentences.h"

namespace gpushare::harness {
namespace {

using Better = Figure::Better;

std::string CheckServing(const Scenario&, const Case& one) {
  const auto batches = [](const Tenant& tenant) {
    return tenant.mode == player::PlayMode::kBatches;
  };
  if (std::any_of(one.tenants.begin(), one.tenants.end(), batches)) return "";
  return "one tenant has the mode 'batches' for the question 'serving'";
}

// The requests answered since the warm-up.
struct Answered {
  size_t requests = 0, in_time = 0, batches = 0;
};
Answered AnsweredBy(const Scenario& scenario, const Tenant& tenant, const TenantOutcome& outcome) {
  Answered answered;
  Nanos last{
      -1};  // requests are in the order of their batches; those of a batch are answered at the same time
  for (const player::Request& request : outcome.requests) {
    const Nanos at = request.arrival + request.latency;
    if (at < scenario.warm_up || at > scenario.length) continue;
    ++answered.requests;
    if (tenant.goal > Nanos(0) && request.latency <= tenant.goal) ++answered.in_time;
    if (at != last) ++answered.batches;
    last = at;
  }
  return answered;
}

void AddServer(const Played& played, size_t i, std::vector<Figure>* figures) {
  const Scenario& scenario = played.scenario;
  const Tenant& tenant = played.one.tenants[i];
  const TenantOutcome& outcome = played.outcome.tenants[i];
  const double seconds = static_cast<double>((scenario.length - scenario.warm_up).count()) / 1e9;
  const auto add = [&](const char* name, const char* unit, std::optional<double> value,
                       Better better) {
    figures->push_back({outcome.name + name, unit, value, better});
  };
  AddQuantiles(played, i, {{".p50", 0.5}, {".p99", 0.99}}, figures);
  AddServed(played, i, figures);
  const Answered answered = AnsweredBy(scenario, tenant, outcome);
  add(".throughput", "1/s", static_cast<double>(answered.requests) / seconds, Better::kHigher);
  const double in_time = static_cast<double>(answered.in_time) / seconds;
  if (tenant.goal > Nanos(0)) add(".goodput", "1/s", in_time, Better::kHigher);
  std::optional<double> mean;
  if (answered.batches > 0) {
    mean = static_cast<double>(answered.requests) / static_cast<double>(answered.batches);
  }
  add(".batch", "", mean, Better::kNeither);
  AddRatioToAlone(played, i, figures, {".p50_ratio", 0.5});
  AddRatioToAlone(played, i, figures);
  for (const TenantOutcome& by_itself : played.alone.tenants) {
    if (by_itself.name != outcome.name || tenant.goal == Nanos(0)) continue;
    const auto alone = static_cast<double>(AnsweredBy(scenario, tenant, by_itself).in_time);
    std::optional<double> ratio;
    if (alone > 0) ratio = static_cast<double>(answered.in_time) / alone;
    add(".goodput_ratio", "x", ratio, Better::kHigher);
  }
}

void ServingFigures(const Played& played, std::vector<Figure>* figures) {
  for (size_t i = 0; i < played.outcome.tenants.size(); ++i) {
    if (ServesRequests(played.one.tenants[i])) {
      AddServer(played, i, figures);
      continue;
    }
    AddShareOfTime(played, i, figures);
  }
  AddWorkDone(played, figures);
}

std::string TellServing(const report::ScenarioReport& scenario, size_t method) {
  const report::Worst good = report::LeastOf(scenario, method, ".goodput_ratio");
  std::string text = TellWorstRatio(scenario, method);
  if (good.row == nullptr) return text;
  return absl::StrCat(text, good.row->name.substr(0, good.row->name.rfind('.')), " answered ",
                      report::Interval(good.median), " times as many requests in time as alone",
                      report::InCase(scenario, good), ". ");
}

}  // namespace

const Question& ServingQuestion() {
  static const Question question = {
      .name = "serving",
      .asks = "What do servers that batch their requests answer beside others' work, and how late?",
      .check = CheckServing,
      .with_alone = true,
      .with_ungated = true,
      .figures = ServingFigures,
      .titles = {{".throughput", "requests answered"},
                 {".goodput", "requests answered in time"},
                 {".batch", "requests in a batch"},
                 {".p50_ratio", "median of latencies ÷ that alone"},
                 {".goodput_ratio", "requests answered in time ÷ those alone"}},
      .told = TellServing};
  return question;
}

}  // namespace gpushare::harness
