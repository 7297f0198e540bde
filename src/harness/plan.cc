// SPDX-License-Identifier: Apache-2.0
#include "harness/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

using nlohmann::json;

std::vector<int64_t> Counts(const std::vector<Nanos>& times) {
  std::vector<int64_t> counts;
  counts.reserve(times.size());
  for (const Nanos each : times) counts.push_back(each.count());
  return counts;
}

std::vector<Nanos> Times(const std::vector<int64_t>& counts) {
  std::vector<Nanos> times;
  times.reserve(counts.size());
  for (const int64_t each : counts) times.emplace_back(each);
  return times;
}

// The library throws for what is missing or of another type.
template <typename T, typename Body>
absl::StatusOr<T> Parsed(std::string_view text, const char* what, const Body& body) {
  try {
    return body(json::parse(text));
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", error.what()));
  }
}

}  // namespace

std::string FormatPlan(const Plan& plan) {
  json tenants = json::array();
  for (const TenantPlan& each : plan.tenants) {
    tenants.push_back({{"name", each.name},
                       {"trace", each.trace},
                       {"spec", each.spec},
                       {"mode", static_cast<int>(each.mode)},
                       {"high_priority", each.high_priority},
                       {"arrivals", Counts(each.arrivals)}});
  }
  return json({{"barrier", plan.barrier},
               {"parties", plan.parties},
               {"simulated", plan.simulated},
               {"outcome", plan.outcome},
               {"length", plan.length.count()},
               {"sample", plan.sample.count()},
               {"fine", plan.fine.count()},
               {"tenants", std::move(tenants)}})
      .dump();
}

absl::StatusOr<Plan> ParsePlan(std::string_view text) {
  return Parsed<Plan>(text, "plan", [](const json& from) {
    Plan plan;
    from.at("barrier").get_to(plan.barrier);
    from.at("parties").get_to(plan.parties);
    from.at("simulated").get_to(plan.simulated);
    from.at("outcome").get_to(plan.outcome);
    plan.length = Nanos(from.at("length").get<int64_t>());
    plan.sample = Nanos(from.at("sample").get<int64_t>());
    plan.fine = Nanos(from.at("fine").get<int64_t>());
    for (const json& each : from.at("tenants")) {
      TenantPlan& tenant = plan.tenants.emplace_back();
      each.at("name").get_to(tenant.name);
      each.at("trace").get_to(tenant.trace);
      each.at("spec").get_to(tenant.spec);
      tenant.mode = static_cast<player::PlayMode>(each.at("mode").get<int>());
      each.at("high_priority").get_to(tenant.high_priority);
      tenant.arrivals = Times(each.at("arrivals").get<std::vector<int64_t>>());
    }
    return plan;
  });
}

std::string FormatOutcome(const Outcome& outcome) {
  json tenants = json::array();
  for (const TenantOutcome& each : outcome.tenants) {
    std::vector<int64_t> arrivals, latencies;
    for (const player::Request& request : each.requests) {
      arrivals.push_back(request.arrival.count());
      latencies.push_back(request.latency.count());
    }
    tenants.push_back({{"name", each.name},
                       {"used", each.used_ns},
                       {"fine", each.fine_ns},
                       {"arrivals", arrivals},
                       {"latencies", latencies},
                       {"launches", each.launches}});
  }
  return json({{"error", outcome.error}, {"tenants", std::move(tenants)}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<Outcome> ParseOutcome(std::string_view text) {
  return Parsed<Outcome>(text, "outcome", [](const json& from) {
    Outcome outcome;
    from.at("error").get_to(outcome.error);
    for (const json& each : from.at("tenants")) {
      TenantOutcome& tenant = outcome.tenants.emplace_back();
      each.at("name").get_to(tenant.name);
      each.at("used").get_to(tenant.used_ns);
      each.at("fine").get_to(tenant.fine_ns);
      each.at("launches").get_to(tenant.launches);
      const auto arrivals = each.at("arrivals").get<std::vector<int64_t>>();
      const auto latencies = each.at("latencies").get<std::vector<int64_t>>();
      for (size_t i = 0; i < std::min(arrivals.size(), latencies.size()); ++i) {
        tenant.requests.push_back({Nanos(arrivals[i]), Nanos(latencies[i])});
      }
    }
    return outcome;
  });
}

}  // namespace gpushare::harness
