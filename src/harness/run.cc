// SPDX-License-Identifier: Apache-2.0
#include "harness/run.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "harness/children.h"
#include "harness/environment.h"
#include "harness/folder.h"
#include "harness/log.h"
#include "harness/questions/question.h"
#include "harness/spans.h"
#include "harness/start.h"
#include "harness/timing.h"

namespace gpushare::harness {
namespace {

using Kind = Method::Kind;
namespace fs = std::filesystem;

constexpr char kMpsControl[] = "nvidia-cuda-mps-control";
constexpr Nanos kMpsLimit = Seconds(20);
// How long a library's server may take to become ready or to end; and how long to wait for one that does not tell when it is
// ready.
constexpr Nanos kServerLimit = Seconds(20), kServerHeadStart = Seconds(1);
// A long `harvest` of many tenants tells of itself in some hundred megabytes.
constexpr size_t kMostTold = size_t{2} << 30;

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(
                           absl::StrCat(path, ": the disk is full, or it cannot be written"));
}

bool IsOnPath(const std::string& program) {
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe)
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (access(absl::StrCat(folder, "/", program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The first argument of each program, which ends when this process does.
std::string ThisProcess() { return absl::StrCat(getpid()); }

// Whether the cost of calls is measured in a separate run. On a simulated GPU that is shared with a broker process, every call
// also looks at that process.
bool CallsAreApart(const Method& method, const Bed& bed) {
  return method.kind == Kind::kPreloaded && !bed.card.has_value();
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
        folder_(folder),
        apart_(options.apart || IsApart(one)) {}

  absl::StatusOr<Outcome> Do() {
    GPUSHARE_RETURN_IF_ERROR(CheckLibrary());
    GPUSHARE_RETURN_IF_ERROR(StartLine::Make(folder_ / "start"));
    const std::string& driver = bed_.card.has_value() ? bed_.card->driver : bed_.simulated;
    GPUSHARE_RETURN_IF_ERROR(Link(driver, folder_ / "driver.so"));
    if (bed_.card.has_value()) {
      // Links the driver alone, not the other libraries in its folder.
      fs::create_directory(folder_ / "loader");
      GPUSHARE_RETURN_IF_ERROR(Link(driver, folder_ / "loader/libcuda.so.1"));
    }
    GPUSHARE_RETURN_IF_ERROR(MakePlans());
    const bool broker = method_.kind == Kind::kPreloaded;
    places_ = apart_ ? 1 : plans_.size() + (broker ? 1 : 0);
    const Time begun = base::RealClock().Now();
    Children children(bed_.interrupted);
    if (broker) GPUSHARE_RETURN_IF_ERROR(StartBroker(&children));
    const bool mps = method_.kind == Kind::kMps;
    if (mps) GPUSHARE_RETURN_IF_ERROR(StartMps(&children));
    if (!method_.server.empty()) GPUSHARE_RETURN_IF_ERROR(StartServer(&children));
    for (size_t i = 0; i < plans_.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(WriteText(PlanPath(i), FormatPlan(plans_[i])));
      GPUSHARE_RETURN_IF_ERROR(children.Start(ProgramOf(i)));
    }
    GPUSHARE_RETURN_IF_ERROR(
        children.Wait(bed_.card.has_value() ? bed_.limit + scenario_.length : bed_.limit));
    if (mps) GPUSHARE_RETURN_IF_ERROR(EndMps(&children));
    if (!method_.server.empty()) children.Dismiss(kServerLimit);
    GPUSHARE_RETURN_IF_ERROR(CheckPreloaded());
    GPUSHARE_ASSIGN_OR_RETURN(Outcome outcome, Collect());
    for (int64_t& ready : outcome.ready_ns) ready -= begun.time_since_epoch().count();
    return outcome;
  }

 private:
  static absl::Status Link(const std::string& to, const std::string& path) {
    std::error_code error;
    fs::create_symlink(fs::absolute(to), path, error);
    return error ? absl::UnavailableError(absl::StrCat(path, ": ", error.message()))
                 : absl::OkStatus();
  }

  // If the library is missing, the loader only warns, and the run would measure the driver without it.
  absl::Status CheckLibrary() const {
    if (method_.kind != Kind::kLibrary || access(method_.library.c_str(), R_OK) == 0) {
      return absl::OkStatus();
    }
    return absl::ErrnoToStatus(errno, method_.library);
  }
  absl::Status CheckPreloaded() const {
    if (method_.kind != Kind::kLibrary) return absl::OkStatus();
    for (size_t i = 0; i < plans_.size(); ++i) {
      const std::string log = BeginOfLog(LogPath(i));
      for (const std::string& line : std::vector<std::string>(absl::StrSplit(log, '\n'))) {
        if (!absl::StrContains(line, "cannot be preloaded")) continue;
        return absl::FailedPreconditionError(Printable(line, 400));
      }
    }
    return absl::OkStatus();
  }

  std::string LogPath(size_t i) const { return folder_ / absl::StrCat("log-", i); }
  std::string PlanPath(size_t i) const { return folder_ / absl::StrCat("plan-", i); }

  absl::Status MakePlans() {
    const bool apart = HasProcesses(method_);
    std::mt19937_64 random(options_.seed);
    for (size_t i = 0; i < case_.tenants.size(); ++i) {
      const Tenant& tenant = case_.tenants[i];
      std::vector<Nanos> arrivals = ArrivalsOf(tenant, scenario_.length, random);
      // After ArrivalsOf(): the tenants that are left out still consume their random numbers.
      if (options_.only.value_or(i) != i) continue;
      if (plans_.empty() || apart) {
        Plan& plan = plans_.emplace_back();
        plan.barrier = folder_ / "start";
        plan.driver = folder_ / "driver.so";
        plan.stamps = bed_.card.has_value();
        plan.outcome = folder_ / absl::StrCat("outcome-", plans_.size() - 1);
        plan.length = apart_ ? kSample : scenario_.length;
        plan.sample = SampleEvery();
        plan.tolerant = scenario_.question->tolerant;
        plan.green = method_.kind == Kind::kSpatial;
        plan.sm_time = plan.green || options_.sm_time;
        plan.calls = scenario_.question->calls && (options_.apart || !CallsAreApart(method_, bed_));
        asks_.push_back(tenant.ask);
      }
      if (!scenario_.question->fine_of_others || !ServesRequests(tenant)) {
        plans_.back().fine = scenario_.question->fine;
      }
      TenantPlan part;
      part.name = tenant.name;
      part.trace = folder_ / absl::StrCat("work-", tenant.group, ".csv");
      part.plays = !tenant.work.empty();
      Ask ask = tenant.ask;
      if (apart) ask.own_context = false;  // a program of its own has its own context
      if (method_.kind == Kind::kSpatial) {
        part.share = std::exchange(ask.share, std::nullopt);
        part.cap = std::exchange(ask.cap, std::nullopt);
      }
      part.spec = SpecOf(ask);
      part.mode = tenant.mode;
      part.high_priority = tenant.ask.high_priority;
      part.arrivals = std::move(arrivals);
      part.absences = AbsencesOf(tenant, scenario_.length);
      part.batches = tenant.batches;
      part.batch_wait = tenant.wait;
      part.allocations = tenant.allocations;
      part.fault = tenant.fault;
      const bool is_written = i > 0 && case_.tenants[i - 1].group == tenant.group;
      if (!is_written || options_.only.has_value()) {
        GPUSHARE_RETURN_IF_ERROR(WriteText(part.trace, workload::FormatTrace(WorkOf(tenant))));
      }
      plans_.back().tenants.push_back(std::move(part));
    }
    for (Plan& plan : plans_) plan.parties = static_cast<uint32_t>(plans_.size());
    return absl::OkStatus();
  }

  // A tenant without work gets one kernel, which is never launched, since a trace must not be empty.
  static workload::KernelTrace WorkOf(const Tenant& tenant) {
    if (!tenant.work.empty()) return tenant.work;
    workload::KernelTrace none("none");
    none.Add("none", workload::Bound::kUnknown, 1, Micros(1));
    return none;
  }

  // The variables of the run's program number `place`.
  Variables EnvironmentAt(size_t place) const {
    if (bed_.card.has_value()) return EnvironmentOnCard();
    std::string simulated = absl::StrCat("seed=", options_.seed, ",", case_.gpu);
    if (places_ > 1) {
      absl::StrAppend(&simulated, ",shared=", folder_.name(), ",processes=", places_,
                      ",place=", place);
    } else if (apart_) {
      absl::StrAppend(&simulated, ",clock=wall");
    }
    Variables variables = WithoutThoseOfSharing(environ);
    variables["GPUSHARE_DRIVER"] = "sim";
    variables["GPUSHARE_SIM_DRIVER"] = bed_.simulated;
    variables["GPUSHARE_SIM"] = simulated;
    variables["LD_LIBRARY_PATH"] = bed_.simulated.substr(0, bed_.simulated.rfind('/'));
    return variables;
  }

  Variables EnvironmentOnCard() const {
    Variables variables = WithoutThoseOfSharing(environ);
    variables["GPUSHARE_DRIVER"] = bed_.card->driver;
    variables["CUDA_VISIBLE_DEVICES"] = bed_.card->uuid;
    // The caller's path follows, since the driver may need libraries there.
    const std::string path = base::GetEnv("LD_LIBRARY_PATH").value_or("");
    variables["LD_LIBRARY_PATH"] = absl::StrCat(folder_ / "loader", path.empty() ? "" : ":", path);
    // A private pipe directory: the machine's own MPS daemon would take the programs of all methods.
    variables["CUDA_MPS_PIPE_DIRECTORY"] = folder_ / "mps";
    if (bed_.card->settings.has_value()) variables["GPUSHARE_SIM"] = *bed_.card->settings;
    return variables;
  }

  // Runs in the foreground, so that the daemon is this process's child, and its server a child of that.
  absl::Status StartMps(Children* children) const {
    if (!IsOnPath(kMpsControl)) {
      return absl::UnimplementedError(absl::StrCat("there is no ", kMpsControl, " on the PATH"));
    }
    std::error_code error;
    fs::create_directory(folder_ / "mps", error);
    Program daemon = {"the MPS control daemon",
                      {bed_.programs + "/with_parent", ThisProcess(), kMpsControl, "-f"},
                      EnvironmentOnCard(),
                      folder_ / "mps.log"};
    daemon.environment["CUDA_MPS_LOG_DIRECTORY"] = folder_ / "mps";
    daemon.serves = true;
    GPUSHARE_RETURN_IF_ERROR(children->Start(daemon));
    return children->WaitUntil([&] { return access((folder_ / "mps/control").c_str(), F_OK) == 0; },
                               kMpsLimit);
  }
  // Asks MPS to quit. If it does not, it is ended with the run's other programs.
  absl::Status EndMps(Children* children) const {
    Program quit = {"the end of MPS",
                    {bed_.programs + "/with_parent", ThisProcess(), "/bin/sh", "-c",
                     absl::StrCat("echo quit | ", kMpsControl)},
                    EnvironmentOnCard(),
                    folder_ / "mps.log"};
    GPUSHARE_RETURN_IF_ERROR(children->Start(quit));
    return children->Wait(kMpsLimit);
  }

  // Starts a library's server. One that does not use %READY% gets kServerHeadStart.
  absl::Status StartServer(Children* children) const {
    const std::string ready = folder_ / "server-ready";
    Program server = {
        absl::StrCat("the server of ", method_.name),
        {bed_.programs + "/with_parent", "--group", ThisProcess(), "/bin/sh", "-c",
         absl::StrReplaceAll(method_.server, {{"%FOLDER%", folder_.path()}, {"%READY%", ready}})},
        WithoutThoseOfSharing(environ),
        folder_ / "server.log"};
    server.serves = server.stays = true;
    GPUSHARE_RETURN_IF_ERROR(children->Start(server));
    if (absl::StrContains(method_.server, "%READY%")) {
      return children->WaitUntil([&] { return access(ready.c_str(), F_OK) == 0; }, kServerLimit);
    }
    const Time until = base::RealClock().Now() + kServerHeadStart;
    return children->WaitUntil([&] { return base::RealClock().Now() >= until; }, kServerLimit);
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
    const std::string ready = socket + ".ready";
    return children->WaitUntil([&] { return access(ready.c_str(), F_OK) == 0; }, bed_.limit);
  }

  std::string NameOf(size_t i) const {
    return HasProcesses(method_) ? absl::StrCat("tenant ", plans_[i].tenants.front().name)
                                 : "the program of all tenants";
  }
  Program ProgramOf(size_t i) const {
    const bool broker = method_.kind == Kind::kPreloaded;
    Program program;
    program.name = NameOf(i);
    program.command = {bed_.programs + (IsLinked(method_) ? "/virtual_devices" : "/native"),
                       ThisProcess(), PlanPath(i)};
    program.environment = EnvironmentAt(i + (broker ? 1 : 0));
    program.log = LogPath(i);
    program.may_be_killed = ProgramIsKilled(plans_[i]);
    if (broker) {
      program.environment["LD_PRELOAD"] = bed_.preload;
      program.environment["GPUSHARE_BROKER"] = folder_ / "broker.sock";
      program.environment["GPUSHARE_TENANT"] = plans_[i].tenants.front().name;
    } else if (method_.kind == Kind::kLibrary || method_.kind == Kind::kMps) {
      for (auto& [variable, value] :
           EnvironmentOf(method_, asks_[i], plans_[i].tenants.front().name, folder_.path())) {
        program.environment[variable] = std::move(value);
      }
      if (method_.kind == Kind::kLibrary) program.environment["LD_PRELOAD"] = method_.library;
    }
    return program;
  }

  // What program number `i` says of its run. A library in it may have written anything there.
  absl::StatusOr<Outcome> ReadOutcome(size_t i) const {
    const std::string& path = plans_[i].outcome;
    std::error_code error;
    const fs::file_status there = fs::status(path, error);
    if (!fs::exists(there)) {
      return absl::InternalError(absl::StrCat(
          NameOf(i), " ended before it had told what came of its run: ", EndOfLog(LogPath(i))));
    }
    const auto unreadable = [&](absl::string_view why) {
      return absl::InternalError(
          absl::StrCat(NameOf(i), " told of its run what cannot be read: ", why));
    };
    if (!fs::is_regular_file(there)) return unreadable("it is no file");
    if (fs::file_size(path, error) > kMostTold) return unreadable("it is more than 2 GiB");
    std::string text;
    if (const int failed = base::ReadFile(path, kMostTold, &text); failed != 0) {
      return unreadable(absl::StrCat(path, ": ", base::WriteError(failed)));
    }
    absl::StatusOr<Outcome> outcome = ParseOutcome(text);
    if (!outcome.ok()) return unreadable(outcome.status().message());
    return outcome;
  }

  absl::StatusOr<Outcome> Collect() const {
    Outcome all;
    std::vector<KernelSpans> spans;
    for (size_t i = 0; i < plans_.size(); ++i) {
      const Plan& plan = plans_[i];
      GPUSHARE_ASSIGN_OR_RETURN(Outcome outcome, ReadOutcome(i));
      if (!outcome.not_supported.empty()) return absl::UnimplementedError(outcome.not_supported);
      if (!outcome.error.empty() && !plan.tolerant) return absl::InternalError(outcome.error);
      all.setup_cpu_ns += outcome.setup_cpu_ns;
      all.play_cpu_ns += outcome.play_cpu_ns;
      all.ready_ns.insert(all.ready_ns.end(), outcome.ready_ns.begin(), outcome.ready_ns.end());
      all.calls.insert(all.calls.end(), outcome.calls.begin(), outcome.calls.end());
      if (plan.stamps) {
        absl::StatusOr<std::vector<KernelSpans>> told = ReadSpans(plan.outcome + ".spans");
        // A program that could not begin has written no spans.
        if (!told.ok() && outcome.error.empty()) return told.status();
        std::vector<KernelSpans> its = told.ok() ? *std::move(told) : std::vector<KernelSpans>();
        its.resize(outcome.error.empty() ? std::min(outcome.tenants.size(), plan.tenants.size())
                                         : plan.tenants.size());
        for (KernelSpans& each : its) spans.push_back(std::move(each));
        all.sms = std::max(all.sms, outcome.sms);
      }
      // The program could not begin.
      if (!outcome.error.empty()) {
        outcome.tenants.resize(plan.tenants.size());
        for (size_t k = 0; k < plan.tenants.size(); ++k) {
          outcome.tenants[k].name = plan.tenants[k].name;
          outcome.tenants[k].error = outcome.error;
        }
      }
      for (size_t k = 0; k < std::min(outcome.tenants.size(), plan.tenants.size()); ++k) {
        TenantOutcome& tenant = all.tenants.emplace_back(std::move(outcome.tenants[k]));
        // A tenant that ended early has samples up to then; its use stays constant afterwards.
        if (!plan.stamps && (plan.tolerant || scenario_.question->sparse)) {
          MakeWhole(&tenant.used_ns);
          MakeWhole(&tenant.work_ns);
        }
        if (ProgramIsKilled(plan) && plan.tenants[k].fault.kind != Fault::Kind::kKilled) {
          tenant.error = "its process was killed";
        }
        // Requests are served in the order of their arrivals.
        const std::vector<Nanos>& arrivals = plan.tenants[k].arrivals;
        const size_t served = std::min(tenant.requests.size(), arrivals.size());
        tenant.unserved.assign(arrivals.begin() + static_cast<std::ptrdiff_t>(served),
                               arrivals.end());
      }
    }
    if (bed_.card.has_value()) TellUsed(spans, &all);
    return all;
  }

  // Fills in the device time from the kernels of all programs together, since concurrent kernels divide it.
  void TellUsed(const std::vector<KernelSpans>& spans, Outcome* all) const {
    const Nanos fine = scenario_.question->fine;
    SpanGrid grid = {.length = scenario_.length,
                     .step = fine > Nanos(0) ? fine : kSample,
                     .sms = std::max(all->sms, 1),
                     .sm_time = plans_.front().sm_time};
    std::vector<std::vector<int64_t>> used = UsedOf(spans, grid);
    const auto each = static_cast<size_t>(kSample / grid.step);
    grid.step = kSample;
    std::vector<std::vector<int64_t>> work = WorkDone(spans, grid);
    for (size_t i = 0; i < all->tenants.size(); ++i) {
      TenantOutcome& tenant = all->tenants[i];
      tenant.used_ns.clear();
      for (size_t at = 0; at < used[i].size(); at += each) tenant.used_ns.push_back(used[i][at]);
      if (fine > Nanos(0)) tenant.fine_ns = std::move(used[i]);
      tenant.work_ns = std::move(work[i]);
    }
    all->sm_mhz = SmMhz(spans);
  }

  Nanos SampleEvery() const {
    if (!scenario_.question->sparse || apart_) return kSample;
    return Nanos(std::gcd(scenario_.warm_up.count(), scenario_.length.count()));
  }

  // Extends the samples to the run's full length at the common interval.
  void MakeWhole(std::vector<int64_t>* used_ns) const {
    const auto each = static_cast<size_t>(SampleEvery() / kSample);
    const auto samples = static_cast<size_t>(scenario_.length / kSample) + 1;
    std::vector<int64_t> whole(samples, 0);
    for (size_t i = 0; i < samples && !used_ns->empty(); ++i) {
      whole[i] = (*used_ns)[std::min(i / each, used_ns->size() - 1)];
    }
    *used_ns = std::move(whole);
  }

  static bool ProgramIsKilled(const Plan& plan) {
    return std::any_of(plan.tenants.begin(), plan.tenants.end(), [](const TenantPlan& each) {
      return each.fault.kind == Fault::Kind::kKilled;
    });
  }

  const Bed& bed_;
  const Scenario& scenario_;
  const Case& case_;
  const Method& method_;
  const RunOptions& options_;
  const Folder& folder_;
  std::vector<Plan> plans_;
  std::vector<Ask> asks_;  // the request of each plan's first tenant
  size_t places_ = 1;
  const bool apart_;
};

absl::StatusOr<Outcome> RunOnce(const Bed& bed, const Scenario& scenario, const Case& one,
                                const Method& method, const RunOptions& options) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::unique_ptr<Folder> folder, Folder::Make(bed.temporary));
  absl::StatusOr<Outcome> outcome = OneRun(bed, scenario, one, method, options, *folder).Do();
  // Programs that end by themselves remove the shared state of their GPU.
  const bool ends_by_itself = !scenario.question->tolerant;
  if (!bed.card.has_value() && (!outcome.ok() || !ends_by_itself)) bed.gpu.Forget(folder->name());
  return outcome;
}

}  // namespace

absl::StatusOr<Outcome> Run(const Bed& bed, const Scenario& scenario, const Case& one,
                            const Method& method, const RunOptions& options) {
  GPUSHARE_ASSIGN_OR_RETURN(Outcome outcome, RunOnce(bed, scenario, one, method, options));
  if (!scenario.question->calls || !CallsAreApart(method, bed) || options.apart) return outcome;
  RunOptions apart = options;
  apart.apart = true;
  GPUSHARE_ASSIGN_OR_RETURN(Outcome calls, RunOnce(bed, scenario, one, method, apart));
  outcome.calls = std::move(calls.calls);
  return outcome;
}

}  // namespace gpushare::harness
