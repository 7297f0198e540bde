// SPDX-License-Identifier: Apache-2.0
#include "harness/timing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/stretches.h"
#include "harness/values.h"
#include "spec/text.h"
#include "workload/arrivals.h"
#include "workload/trace.h"

namespace gpushare::harness {
namespace {

using yaml::Node;

constexpr char kModes[] = "backlog|sync|requests|batches";  // in the order of player::PlayMode
constexpr char kArrivals[] = "poisson|uniform";             // in the order of Tenant::Arrivals

template <typename Enum>
yaml::Reader::Take Word(const yaml::Reader& in, const char* words, Enum* out) {
  return [&in, words, out](const Node& value, const std::string& place) {
    size_t which = 0;
    GPUSHARE_RETURN_IF_ERROR(ReadWord(in, value, place, words, &which));
    *out = static_cast<Enum>(which);
    return absl::OkStatus();
  };
}

// One in each period.
std::vector<Nanos> UniformArrivals(double per_second, Nanos length, std::mt19937_64& random) {
  std::vector<Nanos> arrivals;
  const double period = 1e9 / per_second;
  // Not at once with those of other tenants of the same rate.
  const double phase = static_cast<double>(random() >> 11) * 0x1p-53;
  const double end = static_cast<double>(length.count());
  for (double i = phase; i * period < end; ++i) {
    arrivals.emplace_back(static_cast<int64_t>(i * period));
  }
  return arrivals;
}

}  // namespace

std::vector<yaml::Reader::Rule> TimingRules(const yaml::Reader& in, Tenant* tenant) {
  return {{"mode", Word(in, kModes, &tenant->mode)},
          {"load",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadPart(in, value, place, &tenant->load);
           }},
          {"rate",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadRate(in, value, place, &tenant->rate);
           }},
          {"arrivals", Word(in, kArrivals, &tenant->arrivals)},
          {"wait",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadTime(in, value, place, Nanos(0), Seconds(10), Micros(1), &tenant->wait);
           }},
          {"goal",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadTime(in, value, place, Micros(1), Seconds(60), Micros(1), &tenant->goal);
           }},
          {"active", [&in, tenant](const Node& value, const std::string& place) {
             return ReadStretches(in, value, place, kSample, &tenant->active);
           }}};
}

std::string CheckTiming(const Tenant& tenant) {
  const bool batches = tenant.mode == player::PlayMode::kBatches;
  if (batches != !tenant.batches.empty()) {
    return "'batches' are of the mode 'batches', which needs them";
  }
  if (!batches && tenant.wait > Nanos(0)) return "'wait' is of the mode 'batches'";
  const char* const mode = batches ? "batches" : "requests";
  if (ServesRequests(tenant)) {
    if (tenant.work.empty()) return absl::StrCat("the mode '", mode, "' needs 'work'");
    if ((tenant.load > 0) != (tenant.rate > 0)) return "";
    return absl::StrCat("the mode '", mode, "' needs either 'load' or 'rate'");
  }
  if (tenant.load > 0 || tenant.rate > 0) {
    return "'load' and 'rate' are of the modes 'requests' and 'batches'";
  }
  if (tenant.arrivals != Tenant::Arrivals::kPoisson || tenant.goal > Nanos(0)) {
    return "'arrivals' and 'goal' are of the modes 'requests' and 'batches'";
  }
  return "";
}

std::string CheckTiming(const Tenant& tenant, Nanos length) {
  if (tenant.active.empty() || tenant.active.back().to <= length) return "";
  return absl::StrCat("'", tenant.name, "' is active until ",
                      spec::FormatDuration(tenant.active.back().to), ", after the end of the run");
}

double RequestsPerSecond(const Tenant& tenant) {
  if (tenant.rate > 0) return tenant.rate;
  if (!tenant.batches.empty()) {
    // As if all batches were full.
    const player::BatchPass& greatest = tenant.batches.back();
    Nanos pass{0};
    for (size_t i = 0; i < greatest.steps; ++i) {
      pass += tenant.work.kernels()[greatest.first_step + i].duration;
    }
    return tenant.load * static_cast<double>(greatest.most) * 1e9 /
           static_cast<double>(pass.count());
  }
  return tenant.load * 1e9 / static_cast<double>(workload::Summarize(tenant.work).total.count());
}

std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random) {
  if (!ServesRequests(tenant)) return {};
  const double per_second = RequestsPerSecond(tenant);
  std::vector<Nanos> arrivals = tenant.arrivals == Tenant::Arrivals::kUniform
                                    ? UniformArrivals(per_second, length, random)
                                    : workload::PoissonArrivals(per_second, length, random);
  if (tenant.active.empty()) return arrivals;
  std::erase_if(arrivals, [&](Nanos at) {
    return std::none_of(tenant.active.begin(), tenant.active.end(),
                        [at](const Stretch& each) { return at >= each.from && at < each.to; });
  });
  return arrivals;
}

std::vector<player::Absence> AbsencesOf(const Tenant& tenant, Nanos length) {
  std::vector<player::Absence> absences;
  if (tenant.active.empty() || ServesRequests(tenant)) return absences;
  for (const Stretch& each : Between(tenant.active, {Nanos(0), length})) {
    absences.push_back({each.from, each.to});
  }
  return absences;
}

}  // namespace gpushare::harness
