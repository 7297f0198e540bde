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

constexpr char kModes[] = "backlog|sync|requests";  // in the order of player::PlayMode
constexpr char kArrivals[] = "poisson|uniform";     // in the order of Tenant::Arrivals

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
          {"active", [&in, tenant](const Node& value, const std::string& place) {
             return ReadStretches(in, value, place, kSample, &tenant->active);
           }}};
}

std::string CheckTiming(const Tenant& tenant) {
  const bool requests = tenant.mode == player::PlayMode::kOpenLoop;
  if (requests && tenant.work.empty()) return "the mode 'requests' needs 'work'";
  if (requests && (tenant.load > 0) == (tenant.rate > 0)) {
    return "the mode 'requests' needs either 'load' or 'rate'";
  }
  if (!requests && (tenant.load > 0 || tenant.rate > 0)) {
    return "'load' and 'rate' are of the mode 'requests'";
  }
  if (!requests && tenant.arrivals != Tenant::Arrivals::kPoisson) {
    return "'arrivals' is of the mode 'requests'";
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
  return tenant.load * 1e9 / static_cast<double>(workload::Summarize(tenant.work).total.count());
}

std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random) {
  if (tenant.mode != player::PlayMode::kOpenLoop) return {};
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
  if (tenant.active.empty() || tenant.mode == player::PlayMode::kOpenLoop) return absences;
  for (const Stretch& each : Between(tenant.active, {Nanos(0), length})) {
    absences.push_back({each.from, each.to});
  }
  return absences;
}

}  // namespace gpushare::harness
