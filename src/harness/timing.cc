// SPDX-License-Identifier: Apache-2.0
#include "harness/timing.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/stretches.h"
#include "harness/values.h"
#include "spec/text.h"
#include "workload/arrival_trace.h"
#include "workload/arrivals.h"
#include "workload/trace.h"

namespace gpushare::harness {
namespace {

using yaml::Node;

constexpr char kModes[] = "backlog|sync|requests|batches";  // in the order of player::PlayMode
constexpr char kArrivals[] = "poisson|uniform";  // in the order of Tenant::Arrivals, but for kTrace

template <typename Enum>
yaml::Reader::Take Word(const yaml::Reader& in, const char* words, Enum* out) {
  return [&in, words, out](const Node& value, const std::string& place) {
    size_t which = 0;
    GPUSHARE_RETURN_IF_ERROR(ReadWord(in, value, place, words, &which));
    *out = static_cast<Enum>(which);
    return absl::OkStatus();
  };
}

// Reads `arrivals`: a word, or the file that has them.
absl::Status ReadArrivals(const yaml::Reader& in, const Node& value, const std::string& place,
                          const std::string& folder, Tenant* tenant) {
  if (value.kind != Node::Kind::kMap) {
    return Word(in, kArrivals, &tenant->arrivals)(value, place);
  }
  std::string times, gaps;
  const auto path = [&in](std::string* out) {
    return [&in, out](const Node& file, const std::string& below) {
      return in.Text(file, below, "the path of a file with a number of seconds a line", out);
    };
  };
  GPUSHARE_RETURN_IF_ERROR(in.Keys(value, place, {{"times", path(&times)}, {"gaps", path(&gaps)}}));
  if (times.empty() == gaps.empty()) {
    return in.Error(value.line, place, "allowed: either times or gaps");
  }
  const std::string& file = times.empty() ? gaps : times;
  absl::StatusOr<std::vector<Nanos>> traced = workload::ReadArrivalTrace(
      file.front() == '/' ? file : absl::StrCat(folder, file),
      times.empty() ? workload::ArrivalsAs::kGaps : workload::ArrivalsAs::kTimes);
  if (!traced.ok()) return in.Error(value.line, place, std::string(traced.status().message()));
  tenant->arrivals = Tenant::Arrivals::kTrace;
  tenant->traced = *std::move(traced);
  return absl::OkStatus();
}

// One arrival per period.
std::vector<Nanos> UniformArrivals(double per_second, Nanos length, std::mt19937_64& random) {
  std::vector<Nanos> arrivals;
  const double period = 1e9 / per_second;
  // A random phase, so that tenants of equal rates do not send at the same instants.
  const double phase = static_cast<double>(random() >> 11) * 0x1p-53;
  const double end = static_cast<double>(length.count());
  for (double i = phase; i * period < end; ++i) {
    arrivals.emplace_back(static_cast<int64_t>(i * period));
  }
  return arrivals;
}

std::vector<Nanos> TracedArrivals(const Tenant& tenant, Nanos length) {
  const std::vector<Nanos>& all = tenant.traced;
  return {all.begin(), std::lower_bound(all.begin(), all.end(), length)};
}

// All arrivals, including those outside the tenant's active stretches.
std::vector<Nanos> AllArrivals(const Tenant& tenant, Nanos length, std::mt19937_64& random) {
  switch (tenant.arrivals) {
    case Tenant::Arrivals::kTrace:
      return TracedArrivals(tenant, length);
    case Tenant::Arrivals::kUniform:
      return UniformArrivals(RequestsPerSecond(tenant), length, random);
    case Tenant::Arrivals::kPoisson:
      break;
  }
  return workload::PoissonArrivals(RequestsPerSecond(tenant), length, random);
}

}  // namespace

std::vector<yaml::Reader::Rule> TimingRules(const yaml::Reader& in, const std::string& folder,
                                            Tenant* tenant) {
  return {{"mode", Word(in, kModes, &tenant->mode)},
          {"load",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadPart(in, value, place, &tenant->load);
           }},
          {"rate",
           [&in, tenant](const Node& value, const std::string& place) {
             return ReadRate(in, value, place, &tenant->rate);
           }},
          {"arrivals",
           [&in, &folder, tenant](const Node& value, const std::string& place) {
             return ReadArrivals(in, value, place, folder, tenant);
           }},
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
    if (tenant.arrivals == Tenant::Arrivals::kTrace) {
      if (tenant.load == 0 && tenant.rate == 0) return "";
      return "a trace of 'arrivals' says how many come, not 'load' or 'rate'";
    }
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
  if (tenant.arrivals == Tenant::Arrivals::kTrace && tenant.traced.front() >= length) {
    return absl::StrCat("the first of the traced requests of '", tenant.name,
                        "' comes after the end of the run");
  }
  if (tenant.active.empty() || tenant.active.back().to <= length) return "";
  return absl::StrCat("'", tenant.name, "' is active until ",
                      spec::FormatDuration(tenant.active.back().to), ", after the end of the run");
}

double RequestsPerSecond(const Tenant& tenant) {
  if (tenant.rate > 0) return tenant.rate;
  if (!tenant.batches.empty()) {
    // Assumes that all batches are full.
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

double RequestsExpected(const Tenant& tenant, Nanos length) {
  if (tenant.arrivals == Tenant::Arrivals::kTrace) {
    return static_cast<double>(TracedArrivals(tenant, length).size());
  }
  return RequestsPerSecond(tenant) * static_cast<double>(length.count()) / 1e9;
}

std::vector<Nanos> ArrivalsOf(const Tenant& tenant, Nanos length, std::mt19937_64& random) {
  if (!ServesRequests(tenant)) return {};
  std::vector<Nanos> arrivals = AllArrivals(tenant, length, random);
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
