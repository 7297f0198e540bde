// SPDX-License-Identifier: Apache-2.0
#include "harness/run.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/children.h"
#include "harness/environment.h"
#include "harness/folder.h"
#include "harness/questions/question.h"
#include "harness/start.h"
#include "workload/arrivals.h"

namespace gpushare::harness {
namespace {

using Kind = Method::Kind;
namespace fs = std::filesystem;

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(
                           absl::StrCat(path, ": the disk is full, or it cannot be written"));
}

// The first argument of each program: it ends when this process does.
std::string ThisProcess() { return absl::StrCat(getpid()); }

class OneRun {
 public:
  OneRun(const Bed& bed, const Scenario& scenario, const Case& one, const Method& method,
         const RunOptions& options, const Folder& folder)
      : bed_(bed),
        scenario_(scenario),
        case_(one),
        method_(method),
        options_(options),
        folder_(folder) {}

  absl::StatusOr<Outcome> Do() {
    GPUSHARE_RETURN_IF_ERROR(StartLine::Make(folder_ / "start"));
    std::error_code error;
    fs::create_symlink(bed_.simulated, folder_ / "simulated.so", error);
    if (error)
      return absl::UnavailableError(absl::StrCat(folder_ / "simulated.so", ": ", error.message()));
    GPUSHARE_RETURN_IF_ERROR(MakePlans());
    const bool broker = method_.kind == Kind::kPreloaded;
    places_ = plans_.size() + (broker ? 1 : 0);
    Children children(bed_.interrupted);
    if (broker) GPUSHARE_RETURN_IF_ERROR(StartBroker(&children));
    for (size_t i = 0; i < plans_.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(WriteText(PlanPath(i), FormatPlan(plans_[i])));
      GPUSHARE_RETURN_IF_ERROR(children.Start(ProgramOf(i)));
    }
    GPUSHARE_RETURN_IF_ERROR(children.Wait(bed_.limit));
    return Collect();
  }

 private:
  std::string PlanPath(size_t i) const { return folder_ / absl::StrCat("plan-", i); }

  absl::Status MakePlans() {
    const bool apart = HasProcesses(method_);
    std::mt19937_64 random(options_.seed);
    for (size_t i = 0; i < case_.tenants.size(); ++i) {
      const Tenant& tenant = case_.tenants[i];
      std::vector<Nanos> arrivals;
      if (tenant.mode == player::PlayMode::kOpenLoop) {
        const Nanos one_pass = workload::Summarize(tenant.work).total;
        arrivals = workload::PoissonArrivals(
            tenant.load * 1e9 / static_cast<double>(one_pass.count()), scenario_.length, random);
      }
      // Here: the requests of the others take their part of the random numbers.
      if (options_.only.value_or(i) != i) continue;
      if (plans_.empty() || apart) {
        Plan& plan = plans_.emplace_back();
        plan.barrier = folder_ / "start";
        plan.simulated = folder_ / "simulated.so";
        plan.outcome = folder_ / absl::StrCat("outcome-", plans_.size() - 1);
        plan.length = scenario_.length;
        plan.sample = kSample;
        plan.fine = scenario_.question->fine;
        asks_.push_back(tenant.ask);
      }
      TenantPlan part;
      part.name = tenant.name;
      part.trace = folder_ / absl::StrCat(tenant.name, ".csv");
      part.spec = SpecOf(tenant.ask);
      part.mode = tenant.mode;
      part.high_priority = tenant.ask.high_priority;
      part.arrivals = std::move(arrivals);
      GPUSHARE_RETURN_IF_ERROR(WriteText(part.trace, workload::FormatTrace(tenant.work)));
      plans_.back().tenants.push_back(std::move(part));
    }
    for (Plan& plan : plans_) plan.parties = static_cast<uint32_t>(plans_.size());
    return absl::OkStatus();
  }

  // What all of a run's programs have in common, and which of them this is.
  Variables EnvironmentAt(size_t place) const {
    std::string simulated = absl::StrCat("seed=", options_.seed, ",", case_.gpu);
    if (places_ > 1) {
      absl::StrAppend(&simulated, ",shared=", folder_.name(), ",processes=", places_,
                      ",place=", place);
    }
    Variables variables = WithoutThoseOfSharing(environ);
    variables["GPUSHARE_DRIVER"] = "sim";
    variables["GPUSHARE_SIM_DRIVER"] = bed_.simulated;
    variables["GPUSHARE_SIM"] = simulated;
    variables["LD_LIBRARY_PATH"] = bed_.simulated.substr(0, bed_.simulated.rfind('/'));
    return variables;
  }

  absl::Status StartBroker(Children* children) {
    const std::string socket = folder_ / "broker.sock";
    Program broker = {"the broker",
                      {bed_.programs + "/broker", ThisProcess(), socket},
                      EnvironmentAt(0),
                      folder_ / "broker.log"};
    for (const Plan& plan : plans_) {
      broker.command.push_back(plan.tenants.front().name);
      broker.command.push_back(plan.tenants.front().spec);
    }
    GPUSHARE_RETURN_IF_ERROR(children->Start(broker));
    return children->WaitUntil([&] { return access(socket.c_str(), F_OK) == 0; }, bed_.limit);
  }

  Program ProgramOf(size_t i) const {
    const bool broker = method_.kind == Kind::kPreloaded;
    Program program;
    program.name = HasProcesses(method_) ? absl::StrCat("tenant ", plans_[i].tenants.front().name)
                                         : "the program of all tenants";
    program.command = {
        bed_.programs + (method_.kind == Kind::kInProcess ? "/virtual_devices" : "/native"),
        ThisProcess(), PlanPath(i)};
    program.environment = EnvironmentAt(i + (broker ? 1 : 0));
    program.log = folder_ / absl::StrCat("log-", i);
    if (broker) {
      program.environment["LD_PRELOAD"] = bed_.preload;
      program.environment["GPUSHARE_BROKER"] = folder_ / "broker.sock";
      program.environment["GPUSHARE_TENANT"] = plans_[i].tenants.front().name;
    } else if (method_.kind == Kind::kLibrary) {
      for (auto& [variable, value] : EnvironmentOf(method_, asks_[i])) {
        program.environment[variable] = std::move(value);
      }
      program.environment["LD_PRELOAD"] = method_.library;
    }
    return program;
  }

  absl::StatusOr<Outcome> Collect() const {
    Outcome all;
    for (const Plan& plan : plans_) {
      std::ifstream file(plan.outcome, std::ios::binary);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      GPUSHARE_ASSIGN_OR_RETURN(Outcome outcome, ParseOutcome(text));
      if (!outcome.error.empty()) return absl::InternalError(outcome.error);
      for (size_t i = 0; i < std::min(outcome.tenants.size(), plan.tenants.size()); ++i) {
        TenantOutcome& tenant = all.tenants.emplace_back(std::move(outcome.tenants[i]));
        // They are served in the order in which they come.
        const std::vector<Nanos>& arrivals = plan.tenants[i].arrivals;
        const size_t served = std::min(tenant.requests.size(), arrivals.size());
        tenant.unserved.assign(arrivals.begin() + static_cast<std::ptrdiff_t>(served),
                               arrivals.end());
      }
    }
    return all;
  }

  const Bed& bed_;
  const Scenario& scenario_;
  const Case& case_;
  const Method& method_;
  const RunOptions& options_;
  const Folder& folder_;
  std::vector<Plan> plans_;
  std::vector<Ask> asks_;  // of each plan's first tenant
  size_t places_ = 1;
};

}  // namespace

absl::StatusOr<Outcome> Run(const Bed& bed, const Scenario& scenario, const Case& one,
                            const Method& method, const RunOptions& options) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> folder, Folder::Make(bed.temporary));
  absl::StatusOr<Outcome> outcome = OneRun(bed, scenario, one, method, options, *folder).Do();
  // Programs that end by themselves leave nothing of the GPU that they shared.
  if (!outcome.ok()) bed.gpu.Forget(folder->name());
  return outcome;
}

}  // namespace gpushare::harness
