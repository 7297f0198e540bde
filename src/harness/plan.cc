// SPDX-License-Identifier: Apache-2.0
#include "harness/plan.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "harness/json_error.h"
#include "harness/whole.h"

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

json AllocationsJson(const Allocations& from) {
  std::vector<int> families;
  for (const MemoryFamily each : from.families) families.push_back(static_cast<int>(each));
  return {{"sizes", from.sizes},
          {"families", families},
          {"keep", from.keep},
          {"every", from.every.count()}};
}

Allocations ParseAllocations(const json& from) {
  Allocations to;
  from.at("sizes").get_to(to.sizes);
  to.families.clear();
  for (const int each : from.at("families").get<std::vector<int>>()) {
    to.families.push_back(static_cast<MemoryFamily>(each));
  }
  from.at("keep").get_to(to.keep);
  to.every = Nanos(from.at("every").get<int64_t>());
  return to;
}

// A missing value is encoded as a negative one.
std::optional<double> PartOf(const json& from) {
  const auto part = from.get<double>();
  return part < 0 ? std::nullopt : std::optional<double>(part);
}

json FaultJson(const Fault& from) {
  return {{"kind", static_cast<int>(from.kind)}, {"at", from.at.count()}, {"sms", from.sms}};
}

Fault ParseFault(const json& from) {
  return {static_cast<Fault::Kind>(from.at("kind").get<int>()), Nanos(from.at("at").get<int64_t>()),
          from.at("sms").get<int64_t>()};
}

// Encodes each request as [at, bytes, held, granted].
json MemoryJson(const std::vector<MemoryRequest>& requests) {
  json list = json::array();
  for (const MemoryRequest& each : requests) {
    list.push_back({each.at.count(), each.bytes, each.held, each.granted});
  }
  return list;
}

std::vector<MemoryRequest> ParseMemory(const json& from) {
  std::vector<MemoryRequest> requests;
  for (const json& each : from) {
    requests.push_back({Nanos(each.at(0).get<int64_t>()), each.at(1).get<uint64_t>(),
                        each.at(2).get<uint64_t>(), each.at(3).get<bool>()});
  }
  return requests;
}

json CallsJson(const std::vector<CallCost>& calls) {
  json list = json::array();
  for (const CallCost& each : calls) {
    list.push_back(
        {{"call", each.call}, {"ns", each.ns}, {"bare_ns", each.bare_ns}, {"ratio", each.ratio}});
  }
  return list;
}

// `from` and `to` of each absence, alternating.
std::vector<int64_t> Ends(const std::vector<player::Absence>& absences) {
  std::vector<int64_t> ends;
  for (const player::Absence& each : absences) {
    ends.push_back(each.from.count());
    ends.push_back(each.to.count());
  }
  return ends;
}

std::vector<player::Absence> AbsencesBetween(const std::vector<int64_t>& ends) {
  std::vector<player::Absence> absences;
  for (size_t i = 0; i + 1 < ends.size(); i += 2) {
    absences.push_back({Nanos(ends[i]), Nanos(ends[i + 1])});
  }
  return absences;
}

json BatchesJson(const std::vector<player::BatchPass>& batches) {
  json list = json::array();
  for (const player::BatchPass& each : batches) {
    list.push_back({each.most, each.first_step, each.steps});
  }
  return list;
}

std::vector<player::BatchPass> ParseBatches(const json& from) {
  std::vector<player::BatchPass> batches;
  for (const json& each : from) {
    batches.push_back(
        {each.at(0).get<size_t>(), each.at(1).get<size_t>(), each.at(2).get<size_t>()});
  }
  return batches;
}

// Encodes a growing count as the text of its differences. A run has 20,000 values per second, and this form is read in a tenth of
// the time that JSON numbers take.
std::string Steps(const std::vector<int64_t>& counts) {
  std::string text;
  uint64_t before = 0;
  for (const int64_t each : counts) {
    absl::StrAppend(&text, static_cast<int64_t>(static_cast<uint64_t>(each) - before), " ");
    before = static_cast<uint64_t>(each);
  }
  return text;
}
std::vector<int64_t> ParseSteps(const std::string& text) {
  std::vector<int64_t> counts;
  uint64_t sum = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int64_t step = 0;
    const auto read = std::from_chars(at, end, step);
    if (read.ec != std::errc() || read.ptr == end || *read.ptr != ' ') {
      throw std::invalid_argument("'fine' has more than numbers");
    }
    sum += static_cast<uint64_t>(step);
    counts.push_back(static_cast<int64_t>(sum));
    at = read.ptr + 1;
  }
  return counts;
}

// Turns the JSON library's exceptions about missing or mistyped members into a status.
template <typename T, typename Body>
absl::StatusOr<T> Parsed(std::string_view text, const char* what, const Body& body) {
  try {
    return body(json::parse(text));
  } catch (const json::parse_error&) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": it is no JSON"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", WhyWrong(error)));
  }
}

}  // namespace

std::string FormatPlan(const Plan& plan) {
  json tenants = json::array();
  for (const TenantPlan& each : plan.tenants) {
    tenants.push_back({{"name", each.name},
                       {"trace", each.trace},
                       {"spec", each.spec},
                       {"plays", each.plays},
                       {"mode", static_cast<int>(each.mode)},
                       {"high_priority", each.high_priority},
                       {"arrivals", Counts(each.arrivals)},
                       {"allocations", AllocationsJson(each.allocations)},
                       {"fault", FaultJson(each.fault)},
                       {"batches", BatchesJson(each.batches)},
                       {"batch_wait", each.batch_wait.count()},
                       {"share", each.share.value_or(-1)},
                       {"cap", each.cap.value_or(-1)},
                       {"absences", Ends(each.absences)}});
  }
  return json({{"barrier", plan.barrier},
               {"parties", plan.parties},
               {"driver", plan.driver},
               {"stamps", plan.stamps},
               {"outcome", plan.outcome},
               {"length", plan.length.count()},
               {"sample", plan.sample.count()},
               {"fine", plan.fine.count()},
               {"tolerant", plan.tolerant},
               {"calls", plan.calls},
               {"green", plan.green},
               {"sm_time", plan.sm_time},
               {"tenants", std::move(tenants)}})
      .dump();
}

absl::StatusOr<Plan> ParsePlan(std::string_view text) {
  return Parsed<Plan>(text, "plan", [](const json& from) {
    Plan plan;
    from.at("barrier").get_to(plan.barrier);
    from.at("parties").get_to(plan.parties);
    from.at("driver").get_to(plan.driver);
    from.at("stamps").get_to(plan.stamps);
    from.at("outcome").get_to(plan.outcome);
    plan.length = Nanos(from.at("length").get<int64_t>());
    plan.sample = Nanos(from.at("sample").get<int64_t>());
    plan.fine = Nanos(from.at("fine").get<int64_t>());
    from.at("tolerant").get_to(plan.tolerant);
    from.at("calls").get_to(plan.calls);
    from.at("green").get_to(plan.green);
    from.at("sm_time").get_to(plan.sm_time);
    for (const json& each : from.at("tenants")) {
      TenantPlan& tenant = plan.tenants.emplace_back();
      each.at("name").get_to(tenant.name);
      each.at("trace").get_to(tenant.trace);
      each.at("spec").get_to(tenant.spec);
      each.at("plays").get_to(tenant.plays);
      tenant.mode = static_cast<player::PlayMode>(each.at("mode").get<int>());
      each.at("high_priority").get_to(tenant.high_priority);
      tenant.arrivals = Times(each.at("arrivals").get<std::vector<int64_t>>());
      tenant.allocations = ParseAllocations(each.at("allocations"));
      tenant.fault = ParseFault(each.at("fault"));
      tenant.share = PartOf(each.at("share"));
      tenant.cap = PartOf(each.at("cap"));
      tenant.batches = ParseBatches(each.at("batches"));
      tenant.batch_wait = Nanos(each.at("batch_wait").get<int64_t>());
      tenant.absences = AbsencesBetween(each.at("absences").get<std::vector<int64_t>>());
    }
    return plan;
  });
}

std::string FormatOutcome(const Outcome& outcome) {
  json tenants = json::array();
  for (const TenantOutcome& each : outcome.tenants) {
    std::vector<int64_t> arrivals, latencies, begun;
    for (const player::Request& request : each.requests) {
      arrivals.push_back(request.arrival.count());
      latencies.push_back(request.latency.count());
      begun.push_back(request.begun.count());
    }
    tenants.push_back({{"name", each.name},
                       {"used", each.used_ns},
                       {"fine", Steps(each.fine_ns)},
                       {"work", each.work_ns},
                       {"away", Ends(each.away)},
                       {"arrivals", arrivals},
                       {"latencies", latencies},
                       {"begun", begun},
                       {"launches", each.launches},
                       {"memory", MemoryJson(each.memory)},
                       {"most_bytes", each.most_bytes},
                       {"error", each.error},
                       {"broke_at", each.broke_at.value_or(Nanos(-1)).count()}});
  }
  return json({{"error", outcome.error},
               {"not_supported", outcome.not_supported},
               {"sms", outcome.sms},
               {"tenants", std::move(tenants)},
               {"calls", CallsJson(outcome.calls)},
               {"setup_cpu", outcome.setup_cpu_ns},
               {"play_cpu", outcome.play_cpu_ns},
               {"ready", outcome.ready_ns}})
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

absl::StatusOr<Outcome> ParseOutcome(std::string_view text) {
  return Parsed<Outcome>(text, "outcome", [](const json& from) {
    Outcome outcome;
    from.at("error").get_to(outcome.error);
    from.at("not_supported").get_to(outcome.not_supported);
    for (const char* const key : {"sms", "setup_cpu", "play_cpu", "ready", "tenants"}) {
      AllWhole(from.at(key));
    }
    from.at("sms").get_to(outcome.sms);
    for (const json& each : from.at("calls")) {
      outcome.calls.push_back({each.at("call").get<std::string>(), each.at("ns").get<double>(),
                               each.at("bare_ns").get<double>(), each.at("ratio").get<double>()});
    }
    from.at("setup_cpu").get_to(outcome.setup_cpu_ns);
    from.at("play_cpu").get_to(outcome.play_cpu_ns);
    from.at("ready").get_to(outcome.ready_ns);
    for (const json& each : from.at("tenants")) {
      TenantOutcome& tenant = outcome.tenants.emplace_back();
      each.at("name").get_to(tenant.name);
      each.at("used").get_to(tenant.used_ns);
      tenant.fine_ns = ParseSteps(each.at("fine").get_ref<const std::string&>());
      each.at("work").get_to(tenant.work_ns);
      tenant.away = AbsencesBetween(each.at("away").get<std::vector<int64_t>>());
      each.at("launches").get_to(tenant.launches);
      tenant.memory = ParseMemory(each.at("memory"));
      each.at("most_bytes").get_to(tenant.most_bytes);
      each.at("error").get_to(tenant.error);
      const Nanos broke_at(each.at("broke_at").get<int64_t>());
      if (broke_at >= Nanos(0)) tenant.broke_at = broke_at;
      const auto arrivals = each.at("arrivals").get<std::vector<int64_t>>();
      const auto latencies = each.at("latencies").get<std::vector<int64_t>>();
      const auto begun = each.at("begun").get<std::vector<int64_t>>();
      for (size_t i = 0; i < std::min({arrivals.size(), latencies.size(), begun.size()}); ++i) {
        tenant.requests.push_back({Nanos(arrivals[i]), Nanos(latencies[i]), Nanos(begun[i])});
      }
    }
    return outcome;
  });
}

}  // namespace gpushare::harness
