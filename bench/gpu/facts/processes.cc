// SPDX-License-Identifier: Apache-2.0
// Several contexts and processes on one device: how they take turns, and how long the memory of a dead process stays allocated.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "gpu.h"
#include "groups.h"

extern char** environ;

namespace gpushare::facts {
namespace {

constexpr double kGapThresholdNs = 20 * kNsPerUs;
constexpr size_t kGapCapacity = 4096;

// Another process of this program, in a role. Both directions of the conversation consist of lines.
class Actor {
 public:
  Actor(const std::string& role, const std::string& argument) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) StopFailed("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::string arguments[] = {"gpu-facts", "--role", role, argument};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), nullptr};
    const int failed = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    if (failed != 0) StopFailed(std::string("no child process: ") + std::strerror(failed));
    out_ = fdopen(to[1], "w");
    in_ = fdopen(from[0], "r");
  }
  ~Actor() {
    Kill();
    if (out_ != nullptr) fclose(out_);
    if (in_ != nullptr) fclose(in_);
  }
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  void Say(const char* line) {
    std::fprintf(out_, "%s\n", line);
    std::fflush(out_);
  }
  // The next line. If it says why the child stops, this process stops too.
  std::string Hear() {
    char line[512];
    if (std::fgets(line, sizeof(line), in_) == nullptr) StopFailed("a child process ended early");
    std::string text(line);
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.starts_with("U\t\t")) StopUnsupported(text.substr(3));
    if (text.starts_with("E\t\t")) StopFailed(text.substr(3));
    return text;
  }
  void Expect(const std::string& word) {
    const std::string heard = Hear();
    if (heard != word) StopFailed("a child process said '" + heard + "' instead of '" + word + "'");
  }
  void Signal() { kill(pid_, SIGKILL); }
  bool Ended() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ <= 0;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
  FILE* in_ = nullptr;
};

struct Gap {
  double at, length;
};
struct GapRun {
  double total = 0;
  std::vector<Gap> gaps;
};

// The memory that the kernel `gaps` writes to, and what it wrote.
struct GapWatch {
  CUdeviceptr out = 0;
  uint64_t duration_ns;

  void Launch(const Gpu& gpu, CUfunction function, CUstream stream) {
    MUST(gpu.cu, cuMemAlloc, &out, 16 * (kGapCapacity + 1));
    uint64_t cost = duration_ns, threshold = static_cast<uint64_t>(kGapThresholdNs),
             capacity = kGapCapacity;
    void* parameters[] = {&cost, &duration_ns, &threshold, &capacity, &out};
    MUST(gpu.cu, cuLaunchKernel, function, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters, nullptr);
  }
  GapRun Read(const Gpu& gpu) const {
    std::vector<uint64_t> words(2 * (kGapCapacity + 1));
    MUST(gpu.cu, cuMemcpyDtoH, words.data(), out, words.size() * sizeof(uint64_t));
    GapRun run;
    run.total = static_cast<double>(words[1]);
    for (size_t i = 0; i < std::min<size_t>(words[0], kGapCapacity); ++i) {
      run.gaps.push_back(
          {static_cast<double>(words[2 + 2 * i]), static_cast<double>(words[3 + 2 * i])});
    }
    return run;
  }
};

// Adds what a run shows about turns: how long the process was on and off, and for which part of the time between its first and
// last gap it was on.
void CollectTurns(const GapRun& run, std::vector<double>& on, std::vector<double>& off,
                  std::vector<double>& share) {
  double on_sum = 0, off_sum = 0;
  for (size_t i = 0; i < run.gaps.size(); ++i) {
    off.push_back(run.gaps[i].length / kNsPerMs);
    off_sum += run.gaps[i].length;
    if (i == 0) continue;
    const double length = run.gaps[i].at - (run.gaps[i - 1].at + run.gaps[i - 1].length);
    on.push_back(length / kNsPerMs);
    on_sum += length;
  }
  if (on_sum + off_sum > 0) share.push_back(on_sum / (on_sum + off_sum));
}

GapRun HearGaps(Actor& actor) {
  GapRun run;
  for (;;) {
    const std::string line = actor.Hear();
    Gap gap{};
    if (std::sscanf(line.c_str(), "total %lf", &run.total) == 1) return run;
    if (std::sscanf(line.c_str(), "gap %lf %lf", &gap.at, &gap.length) != 2) {
      StopFailed("a child process said '" + line + "' instead of a gap");
    }
    run.gaps.push_back(gap);
  }
}

void WatchGaps(const std::string& milliseconds) {
  const Gpu gpu = OpenGpu();
  gpu.NeedExecution();
  CUstream stream = gpu.NewStream();
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) _exit(0);
  GapWatch watch{.duration_ns = std::strtoull(milliseconds.c_str(), nullptr, 10) * 1'000'000};
  watch.Launch(gpu, gpu.gaps, stream);
  gpu.Sync(stream);
  const GapRun run = watch.Read(gpu);
  for (const Gap& gap : run.gaps) std::printf("gap %.0f %.0f\n", gap.at, gap.length);
  std::printf("total %.0f\n", run.total);
  std::fflush(stdout);
}

// Holds memory until killed: "BYTES idle" or "BYTES busy" (with a kernel running).
void HoldMemory(const std::string& argument) {
  const Gpu gpu = OpenGpu(/*warm=*/false);
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) _exit(0);
  const size_t bytes = std::strtoull(argument.c_str(), nullptr, 10);
  CUdeviceptr pointer = 0;
  MUST(gpu.cu, cuMemAlloc, &pointer, bytes);
  MUST(gpu.cu, cuMemsetD8, pointer, static_cast<unsigned char>(1), bytes);
  MUST(gpu.cu, cuStreamSynchronize, nullptr);
  if (argument.ends_with("busy")) gpu.Spin(gpu.NewStream(), gpu.sms, 10'000 * kNsPerMs);
  std::cout << "held" << std::endl;
  std::getline(std::cin, line);  // until the parent process ends
  _exit(0);
}

size_t FreeMemory(const Gpu& gpu) {
  size_t free = 0, total = 0;
  MUST(gpu.cu, cuMemGetInfo, &free, &total);
  return free;
}

struct Teardown {
  double gone_ns = 0;   // from the signal until the process could be reaped
  double freed_ns = 0;  // until its memory was free again
  double context_bytes = 0;
};

Teardown KillHolder(const Gpu& gpu, size_t bytes, const char* state) {
  constexpr size_t kNear = size_t{32} << 20;
  constexpr int64_t kPatience = 20'000'000'000;
  const size_t free_before = FreeMemory(gpu);
  Actor holder("hold", std::to_string(bytes) + " " + state);
  holder.Expect("ready");
  const size_t free_with_context = FreeMemory(gpu);
  holder.Say("hold");
  holder.Expect("held");
  const size_t free_held = FreeMemory(gpu);
  if (free_with_context < free_held + bytes / 2) {
    StopUnsupported("another process's memory does not show in cuMemGetInfo of this driver");
  }
  Teardown result;
  result.context_bytes = static_cast<double>(free_before) - static_cast<double>(free_with_context);
  const int64_t start = Now();
  holder.Signal();
  while (result.gone_ns == 0 || result.freed_ns == 0) {
    if (result.gone_ns == 0 && holder.Ended()) result.gone_ns = static_cast<double>(Now() - start);
    if (result.freed_ns == 0 && FreeMemory(gpu) + kNear >= free_before) {
      result.freed_ns = static_cast<double>(Now() - start);
    }
    if (Now() - start > kPatience)
      StopFailed("the memory of a killed process was not free after 20 s");
  }
  return result;
}

}  // namespace

void MeasureContextSlice() {
  constexpr char kMilliseconds[] = "400";
  {
    Actor alone("gaps", kMilliseconds);
    alone.Expect("ready");
    alone.Say("go");
    const GapRun run = HearGaps(alone);
    double off = 0;
    for (const Gap& gap : run.gaps) off += gap.length;
    ReportValue("context_alone_off", off / kNsPerMs);
  }
  Actor a("gaps", kMilliseconds), b("gaps", kMilliseconds);
  a.Expect("ready");
  b.Expect("ready");
  a.Say("go");
  b.Say("go");
  std::vector<double> on, off, share;
  CollectTurns(HearGaps(a), on, off, share);
  CollectTurns(HearGaps(b), on, off, share);
  Report("context_turn", on);
  Report("context_off", off);
  Report("context_share", share);

  // Two contexts in one process.
  a.Kill();
  b.Kill();
  const Gpu gpu = OpenGpu();
  CUstream first_stream = gpu.NewStream();
  GapWatch first{.duration_ns = 400'000'000}, second{.duration_ns = 400'000'000};
  Gpu other = gpu;
  MUST(gpu.cu, create_context, &other.context, 0u, gpu.device);
  OpenKernels(other);
  CUstream second_stream = other.NewStream();
  second.Launch(other, other.gaps, second_stream);
  MUST(gpu.cu, cuCtxSetCurrent, gpu.context);
  first.Launch(gpu, gpu.gaps, first_stream);
  gpu.Sync(first_stream);
  std::vector<double> turns, offs, shares;
  CollectTurns(first.Read(gpu), turns, offs, shares);
  MUST(gpu.cu, cuCtxSetCurrent, other.context);
  other.Sync(second_stream);
  CollectTurns(second.Read(other), turns, offs, shares);
  Report("context_turn_one_process", turns);
  Report("context_off_one_process", offs);
}

void MeasureTeardown() {
  const Gpu gpu = OpenGpu(/*warm=*/false);
  constexpr size_t kMib = size_t{1} << 20;
  size_t total = 0;
  MUST(gpu.cu, cuDeviceTotalMem, &total, gpu.device);
  const size_t large = std::min(total / 4, 16'384 * kMib);
  std::vector<double> context_bytes;
  const auto measure = [&](size_t bytes, const char* state, const char* gone, const char* freed) {
    std::vector<double> gone_ms, freed_ms;
    for (int i = 0; i < 3; ++i) {
      const Teardown teardown = KillHolder(gpu, bytes, state);
      gone_ms.push_back(teardown.gone_ns / kNsPerMs);
      freed_ms.push_back(teardown.freed_ns / kNsPerMs);
      context_bytes.push_back(teardown.context_bytes / static_cast<double>(kMib));
    }
    Report(gone, gone_ms);
    Report(freed, freed_ms);
  };
  measure(64 * kMib, "idle", "kill_gone_64mib", "kill_freed_64mib");
  measure(large, "idle", "kill_gone_16gib", "kill_freed_16gib");
  measure(large, "busy", "kill_gone_16gib_busy", "kill_freed_16gib_busy");
  Report("context_memory", context_bytes);
}

int PlayRole(const std::string& role, const std::string& argument) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (role == "gaps") {
    WatchGaps(argument);
    return 0;
  }
  if (role == "hold") {
    HoldMemory(argument);
    return 0;
  }
  return -1;
}

}  // namespace gpushare::facts
