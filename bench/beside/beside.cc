// SPDX-License-Identifier: Apache-2.0
// How much of a job can run beside a service? The gate here knows every kernel to come of both. While the service has requests,
// it launches the job's next kernel only if that delays the service by at most a given part of the kernel's own length. It
// decides greedily, one kernel after the other, on a device without a host (model.h). Gates that know less achieve less.
//
//   bench_beside [--traces FOLDER] [--sms N] [--seconds S] [--seed N] [--load PERCENT] [--service TEXT] [--check]
//
// Prints a row for each service, job and allowance: p99 of the service's requests ÷ alone; the bound on that (1.05, and the
// job's longest kernel ÷ that p99); and the work of both in % of what the two do without a gate. Without traces (CSV,
// docs/workloads.md; NAME has "inference" or "training" in it) it uses the project's own networks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "bench/beside/model.h"
#include "workload/models.h"
#include "workload/trace.h"

namespace gpushare::bench {
namespace {

struct Named {
  std::string name;
  Network network;
  double length_us = 0, longest_us = 0;
};

struct Came {
  double p99_us = 0, work = 0;  // `work`: the part done by the end
  size_t served = 0;
};

enum class Gate {
  kNone,   // both run as they come, with equal priority
  kAlone,  // the service, without the job
  kKnows,  // the service first, and the job as far as it may delay the service
};
// The allowance with which nothing is launched beside the service.
constexpr double kNothing = -1;
// Equal times that are computed in two ways differ by less than this.
constexpr double kSame = 1e-6;

Named Take(const workload::KernelTrace& trace, const std::string& name) {
  Named named{name, {}, 0, 0};
  for (const workload::TraceKernel& kernel : trace.kernels()) {
    const double us = static_cast<double>(kernel.duration.count()) / 1e3;
    named.network.push_back({us, kernel.sms});
    named.length_us += us;
    named.longest_us = std::max(named.longest_us, us);
  }
  return named;
}

struct Mixes {
  std::vector<Named> services, jobs;
};

absl::StatusOr<Mixes> Recorded(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".csv") || name.ends_with(".csv.gz")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Mixes mixes;
  for (const auto& file : files) {
    GPUSHARE_ASSIGN_OR_RETURN(const workload::KernelTrace trace, workload::ReadTraceFile(file));
    const std::string name = file.stem().stem();
    if (name.find("inference") != std::string::npos) mixes.services.push_back(Take(trace, name));
    if (name.find("training") != std::string::npos) mixes.jobs.push_back(Take(trace, name));
  }
  if (mixes.services.empty() || mixes.jobs.empty()) {
    return absl::NotFoundError(
        folder +
        ": wanted are traces with \"inference\" and ones with \"training\" in their names");
  }
  return mixes;
}

absl::StatusOr<Mixes> OwnNetworks() {
  GPUSHARE_ASSIGN_OR_RETURN(const workload::GpuRates rates, workload::RatesOf("h200"));
  Mixes mixes;
  GPUSHARE_ASSIGN_OR_RETURN(const auto inference, workload::Resnet50({.batch = 4}, rates));
  mixes.services.push_back(Take(inference.trace, "resnet50 b4 inference"));
  const workload::Pass training = workload::Pass::kTraining;
  GPUSHARE_ASSIGN_OR_RETURN(const auto resnet, workload::Resnet50({training, 32}, rates));
  mixes.jobs.push_back(Take(resnet.trace, "resnet50 b32 training"));
  GPUSHARE_ASSIGN_OR_RETURN(const auto bert, workload::BertBase({training, 8}, rates));
  mixes.jobs.push_back(Take(bert.trace, "bert b8 training"));
  return mixes;
}

double EndOf(Model model, size_t kernels, double now) {
  while (model.done(kService) < kernels) {
    now = model.NextEnd();
    model.Step(now);
  }
  return now;
}

// By how much the job's next kernel, with everything that begins while it runs, delays the end of the service's work.
double Delay(const Model& model, double now) {
  Model with = model;
  with.Give(kJob, 1, now);
  for (const size_t job = with.done(kJob) + 1; with.done(kJob) < job;) with.Step(with.NextEnd());
  const size_t upto = with.done(kService) + (with.left(kService) > 0 ? 1 : 0);
  Model beside = model;
  beside.Give(kJob, 1, now);
  return EndOf(beside, upto, now) - EndOf(model, upto, now);
}

Came Play(const Named& service, const Named& job, int sms, Gate gate, double allowed, double load,
          double seconds, uint64_t seed) {
  Model model(sms, {&service.network, &job.network}, gate != Gate::kNone);
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> gap(load / service.length_us);
  std::vector<double> arrived, latencies;
  const double end = seconds * 1e6;
  double arrives = gap(random), now = 0;
  Came came;
  const size_t request = service.network.size();
  // Requests that arrive before the end are answered after it.
  while (now < end || latencies.size() < arrived.size()) {
    const bool may = gate != Gate::kAlone && model.left(kJob) == 0;
    if (may && (gate == Gate::kNone || model.left(kService) == 0 ||
                (allowed >= 0 && Delay(model, now) <= allowed * model.next(kJob).us + kSame))) {
      model.Give(kJob, 1, now);
    }
    const double next = std::min({model.NextEnd(), arrives, now < end ? end : kNeverUs});
    model.Step(next);
    now = next;
    if (now == end) {
      came.work = model.work_us(kService) + model.work_us(kJob);
      arrives = kNeverUs;
    } else if (now == arrives) {
      arrived.push_back(arrives);
      model.Give(kService, request, now);
      arrives = now + gap(random);
    }
    if (model.done(kService) == (latencies.size() + 1) * request) {
      latencies.push_back(now - arrived[latencies.size()]);
    }
  }
  came.served = latencies.size();
  if (latencies.empty()) return came;
  std::sort(latencies.begin(), latencies.end());
  came.p99_us =
      latencies[static_cast<size_t>(std::ceil(0.99 * static_cast<double>(latencies.size()))) - 1];
  return came;
}

int Main(int argc, char** argv) {
  std::string folder, wanted;  // `wanted`: only services with this in their names
  int sms = 132;
  double seconds = 30, load = 0.5;
  uint64_t seed = 1;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--traces") == 0 && more)
      folder = argv[++i];
    else if (std::strcmp(argv[i], "--sms") == 0 && more)
      sms = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--seconds") == 0 && more)
      seconds = std::max(0.1, std::atof(argv[++i]));
    else if (std::strcmp(argv[i], "--seed") == 0 && more)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else if (std::strcmp(argv[i], "--load") == 0 && more)
      load = std::clamp(std::atof(argv[++i]) / 100, 0.01, 0.95);
    else if (std::strcmp(argv[i], "--service") == 0 && more)
      wanted = argv[++i];
    else if (std::strcmp(argv[i], "--check") == 0)
      check = true;
    else {
      std::fprintf(stderr,
                   "usage: bench_beside [--traces FOLDER] [--sms N] [--seconds S] [--seed N] "
                   "[--load PERCENT] "
                   "[--service TEXT] [--check]\n");
      return 2;
    }
  }
  absl::StatusOr<Mixes> mixes = folder.empty() ? OwnNetworks() : Recorded(folder);
  if (!mixes.ok()) {
    std::fprintf(stderr, "bench_beside: %s\n", mixes.status().ToString().c_str());
    return 2;
  }
  std::printf("%-24s %-26s %8s %10s %10s %8s\n", "service", "job", "allowed", "p99 ratio", "may be",
              "work, %");
  bool fine = true;
  int rows = 0;
  for (const Named& service : mixes->services) {
    if (service.name.find(wanted) == std::string::npos) continue;
    const Named nobody{"", {{1, 1}}, 1, 1};
    const Came alone = Play(service, nobody, sms, Gate::kAlone, 0, load, seconds, seed);
    for (const Named& job : mixes->jobs) {
      const Came native = Play(service, job, sms, Gate::kNone, 0, load, seconds, seed);
      double last = 0;
      for (const double allowed : {kNothing, 0.0, 0.1, 0.2, 0.3, 0.5}) {
        const Came came = Play(service, job, sms, Gate::kKnows, allowed, load, seconds, seed);
        const double work = 100 * came.work / native.work;
        std::printf("%-24.24s %-26.26s %8s %10.3f %10.3f %8.1f\n", service.name.c_str(),
                    job.name.c_str(),
                    allowed < 0 ? "nothing" : std::to_string(allowed).substr(0, 4).c_str(),
                    came.p99_us / alone.p99_us, 1.05 + job.longest_us / alone.p99_us, work);
        std::fflush(stdout);
        ++rows;
        fine &= came.served > 0 && came.p99_us >= alone.p99_us - kSame;
        if (allowed <= 0) fine &= work >= last;  // the work may only grow with the allowance
        last = work;
      }
    }
  }
  if (rows == 0) {
    std::fprintf(stderr, "bench_beside: no service has '%s' in its name\n", wanted.c_str());
    return 2;
  }
  return check && !fine ? 1 : 0;
}

}  // namespace
}  // namespace gpushare::bench

int main(int argc, char** argv) { return gpushare::bench::Main(argc, argv); }
