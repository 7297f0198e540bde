// SPDX-License-Identifier: Apache-2.0
#include "cli/demo/scenario.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>

#include "base/status_macros.h"
#include "gpushare/spec.h"
#include "workload/arrivals.h"
#include "workload/models.h"
#include "workload/spin.h"

namespace gpushare::cli {
namespace {

// Peak rates by the GPU's name, the H200's if it is unknown; the number of SMs is the GPU's own.
workload::GpuRates RatesFor(const GpuProbe& gpu) {
  std::string name = gpu.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  workload::GpuRates rates = *workload::RatesOf("h200");
  for (const std::string& known : workload::KnownRates()) {
    if (name.find(known) != std::string::npos) rates = *workload::RatesOf(known);
  }
  if (gpu.sm_count > 0) rates.sms = gpu.sm_count;
  return rates;
}

Nanos PartOf(Nanos length, double part) {
  return Nanos(std::llround(static_cast<double>(length.count()) * part));
}

// A training job's request in the form that the policy takes: a share, a weight, or nothing.
std::string TrainingPolicy(const std::string& name, int percent, int weight) {
  const std::string policy = ",policy=" + name;
  if (name == "weight") return "weight=" + std::to_string(weight) + policy;
  const std::string share = "compute=" + std::to_string(percent) + "%" + policy;
  return VirtualDeviceSpec::Parse(share).ok() ? share : policy.substr(1);
}

// The built-in networks of the four tenants.
struct Builtin {
  const char* what;
  workload::KernelTrace trace;
};

absl::StatusOr<std::vector<Builtin>> Builtins(const workload::GpuRates& rates) {
  using workload::Pass;
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace service, workload::Resnet50({.batch = 8}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace vision,
                            workload::Resnet50({.pass = Pass::kTraining, .batch = 64}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace language,
                            workload::BertBase({.pass = Pass::kTraining, .batch = 32}, rates));
  GPUSHARE_ASSIGN_OR_RETURN(workload::ModelTrace batch,
                            workload::GptPrefill({.batch = 8}, 1024, rates));
  return std::vector<Builtin>{{"ResNet-50 inference, batch 8", std::move(service.trace)},
                              {"ResNet-50 training, batch 64", std::move(vision.trace)},
                              {"BERT-base training, batch 32", std::move(language.trace)},
                              {"GPT prefill, 8 x 1024 tokens", std::move(batch.trace)}};
}

// The requests per second that give the load, based on the device time of a request alone.
absl::StatusOr<double> RequestRate(const workload::KernelTrace& trace, const DemoOptions& options) {
  // The approximate host time of a launch and of a synchronisation, which may exceed the device time.
  constexpr double kLaunch = 3e-6, kReturn = 10e-6;
  constexpr double kMostBusy = 0.95;
  constexpr double kMostRequests = 1e7;  // all are kept in memory

  const workload::TraceSummary request = workload::Summarize(trace);
  const double device_s = static_cast<double>(request.total.count()) / 1e9;
  const double host_s = kReturn + kLaunch * static_cast<double>(request.kernels);
  const double rate = options.load / device_s;
  const char* const why =
      rate * std::max(device_s, host_s) > kMostBusy ? "more than a host can launch"
      : rate * options.seconds > kMostRequests      ? "more than 10 million in the run"
                                                    : nullptr;
  if (why == nullptr) return rate;
  char text[200];
  std::snprintf(text, sizeof(text),
                ": its %g us of device time make a load of %g %% with %.0f requests a second, %s; "
                "give a longer trace, or lower --load or --seconds",
                device_s * 1e6, options.load * 100, rate, why);
  return absl::InvalidArgumentError("trace " + trace.label() + text);
}

}  // namespace

absl::StatusOr<Scenario> MakeScenario(const DemoOptions& options, const GpuProbe& gpu) {
  GPUSHARE_ASSIGN_OR_RETURN(std::vector<Builtin> workloads, Builtins(RatesFor(gpu)));
  std::vector<std::string> names;
  names.reserve(workloads.size());
  for (Builtin& workload : workloads) names.emplace_back(workload.what);
  for (size_t i = 0; i < std::min(options.traces.size(), workloads.size()); ++i) {
    GPUSHARE_ASSIGN_OR_RETURN(workloads[i].trace, workload::ReadTraceFile(options.traces[i]));
    // Reported here, not when the module is loaded, since the file is at fault.
    GPUSHARE_RETURN_IF_ERROR(workload::MakeSpinModule(workloads[i].trace).status());
    names[i] = workloads[i].trace.label();
  }

  Scenario scenario;
  scenario.length = Nanos(std::llround(options.seconds * 1e9));
  scenario.leaves = PartOf(scenario.length, 0.4);
  scenario.returns = PartOf(scenario.length, 0.6);

  TenantPlan service;
  service.name = "online";
  service.asked = "priority";
  service.spec = "memory=10%,priority=high";
  service.mode = player::PlayMode::kOpenLoop;
  GPUSHARE_ASSIGN_OR_RETURN(const double rate, RequestRate(workloads[0].trace, options));
  std::mt19937_64 engine(options.seed);
  service.arrivals = workload::PoissonArrivals(rate, scenario.length, engine);

  TenantPlan vision;
  vision.name = "train-a";
  vision.spec = "memory=40%," + TrainingPolicy(options.policy, 50, 5);
  vision.absences = {{scenario.leaves, scenario.returns}};
  vision.memory.rotate_every = Millis(500);
  vision.memory.too_much = 0.6;
  vision.memory.ask_every = Seconds(1);

  TenantPlan language;
  language.name = "train-b";
  language.spec = "memory=25%," + TrainingPolicy(options.policy, 30, 3);
  language.memory.rotate_every = Millis(500);

  TenantPlan batch;
  batch.name = "batch";
  batch.asked = "the rest";
  // With the lowest priority it would get nothing beside training jobs that are always backlogged.
  batch.spec = "memory=15%,policy=best-effort";
  if (options.policy != "best-effort") batch.spec += ",priority=normal";
  batch.mode = player::PlayMode::kBacklog;
  batch.memory.too_much = 2;
  batch.memory.ask_every = Seconds(2);

  for (TenantPlan* plan : {&service, &vision, &language, &batch}) {
    const size_t i = scenario.tenants.size();
    plan->workload = names[i];
    plan->trace = std::move(workloads[i].trace);
    scenario.tenants.push_back(std::move(*plan));
  }
  return scenario;
}

}  // namespace gpushare::cli
