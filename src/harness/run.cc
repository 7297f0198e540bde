// SPDX-License-Identifier: Apache-2.0
#include "harness/run.h"

#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "harness/children.h"
#include "harness/start.h"
#include "workload/arrivals.h"

namespace gpushare::harness {
namespace {

using Kind = Method::Kind;
namespace fs = std::filesystem;

// Files of one run, gone with it.
class Folder {
 public:
  static absl::StatusOr<std::unique_ptr<Folder>> Make() {
    std::string path = absl::StrCat(fs::temp_directory_path().string(), "/gpushare-bench-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path);
    return std::unique_ptr<Folder>(new Folder(std::move(path)));
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  std::string name() const { return fs::path(path_).filename().string(); }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
};

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(
                           absl::StrCat(path, ": the disk is full, or it cannot be written"));
}

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
    Children children;
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
    for (const Tenant& tenant : case_.tenants) {
      const bool serves = tenant.mode == player::PlayMode::kOpenLoop;
      if (options_.requests_alone && !serves) continue;
      if (plans_.empty() || apart) {
        Plan& plan = plans_.emplace_back();
        plan.barrier = folder_ / "start";
        plan.simulated = folder_ / "simulated.so";
        plan.outcome = folder_ / absl::StrCat("outcome-", plans_.size() - 1);
        plan.length = scenario_.length;
        plan.sample = kSample;
        asks_.push_back(tenant.ask);
      }
      TenantPlan part;
      part.name = tenant.name;
      part.trace = folder_ / absl::StrCat(tenant.name, ".csv");
      part.spec = SpecOf(tenant.ask);
      part.mode = tenant.mode;
      part.high_priority = tenant.ask.high_priority;
      if (serves) {
        const Nanos one_pass = workload::Summarize(tenant.work).total;
        part.arrivals = workload::PoissonArrivals(
            tenant.load * 1e9 / static_cast<double>(one_pass.count()), scenario_.length, random);
      }
      GPUSHARE_RETURN_IF_ERROR(WriteText(part.trace, workload::FormatTrace(tenant.work)));
      plans_.back().tenants.push_back(std::move(part));
    }
    for (Plan& plan : plans_) plan.parties = static_cast<uint32_t>(plans_.size());
    return absl::OkStatus();
  }

  // What all of a run's programs have in common, and which of them this is.
  std::vector<std::pair<std::string, std::string>> EnvironmentAt(size_t place) const {
    std::string simulated = absl::StrCat("seed=", options_.seed, ",", case_.gpu);
    if (places_ > 1) {
      absl::StrAppend(&simulated, ",shared=", folder_.name(), ",processes=", places_,
                      ",place=", place);
    }
    return {{"GPUSHARE_DRIVER", "sim"},
            {"GPUSHARE_SIM", simulated},
            {"LD_LIBRARY_PATH", fs::path(bed_.simulated).parent_path().string()}};
  }

  absl::Status StartBroker(Children* children) {
    const std::string socket = folder_ / "broker.sock";
    Program broker = {"the broker",
                      {bed_.programs + "/broker", socket},
                      EnvironmentAt(0),
                      folder_ / "broker.log"};
    for (const Plan& plan : plans_) {
      broker.command.push_back(plan.tenants.front().name);
      broker.command.push_back(plan.tenants.front().spec);
    }
    GPUSHARE_RETURN_IF_ERROR(children->Start(broker));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!fs::exists(socket)) {
      if (std::chrono::steady_clock::now() > until) {
        return absl::DeadlineExceededError("the broker did not listen within 20 s");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return absl::OkStatus();
  }

  Program ProgramOf(size_t i) const {
    const bool broker = method_.kind == Kind::kPreloaded;
    Program program;
    program.name = HasProcesses(method_) ? absl::StrCat("tenant ", plans_[i].tenants.front().name)
                                         : "the program of all tenants";
    program.command = {
        bed_.programs + (method_.kind == Kind::kInProcess ? "/virtual_devices" : "/native"),
        PlanPath(i)};
    program.environment = EnvironmentAt(i + (broker ? 1 : 0));
    program.log = folder_ / absl::StrCat("log-", i);
    if (broker) {
      program.environment.emplace_back("LD_PRELOAD", bed_.preload);
      program.environment.emplace_back("GPUSHARE_BROKER", folder_ / "broker.sock");
      program.environment.emplace_back("GPUSHARE_TENANT", plans_[i].tenants.front().name);
    } else if (method_.kind == Kind::kLibrary) {
      for (auto& variable : EnvironmentOf(method_, asks_[i])) {
        program.environment.push_back(std::move(variable));
      }
      program.environment.emplace_back("LD_PRELOAD", method_.library);
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
      for (TenantOutcome& tenant : outcome.tenants) all.tenants.push_back(std::move(tenant));
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
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> folder, Folder::Make());
  return OneRun(bed, scenario, one, method, options, *folder).Do();
}

}  // namespace gpushare::harness
