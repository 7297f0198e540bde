// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/record.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/env.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/run/preload_object.h"
#include "record/folder.h"
#include "workload/gzip.h"
#include "workload/iteration.h"
#include "workload/trace.h"

extern char** environ;

namespace gpushare::cli {
namespace {

constexpr char kCommand[] = "bench record";
constexpr long kLookNs = 10'000'000;  // interval for polling the program

void Say(const std::string& what) {
  std::fprintf(stderr, "gpushare %s: %s\n", kCommand, what.c_str());
}

// The absolute path of a file that need not exist; its folder must.
absl::StatusOr<std::string> Absolute(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  char real[PATH_MAX];
  if (realpath(folder.c_str(), real) == nullptr) return absl::ErrnoToStatus(errno, folder);
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return absl::StrCat(real, "/", name);
}

// The folder that the program's processes write to. It is beside the trace, so that a full disk affects both alike. The destructor
// removes it unless it is to be kept.
class Folder {
 public:
  static absl::StatusOr<std::unique_ptr<Folder>> Make(const std::string& out) {
    std::string path = absl::StrCat(out, ".recording-XXXXXX");
    if (mkdtemp(path.data()) == nullptr) return absl::ErrnoToStatus(errno, path);
    return std::unique_ptr<Folder>(new Folder(std::move(path)));
  }
  ~Folder() {
    if (kept_) return;
    if (DIR* const listing = opendir(path_.c_str())) {
      while (const dirent* const entry = readdir(listing)) {
        unlinkat(dirfd(listing), entry->d_name, 0);
      }
      closedir(listing);
    }
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  void Keep() { kept_ = true; }

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  const std::string path_;
  bool kept_ = false;
};

std::string Who(const record::Recorded& one) {
  return absl::StrCat(Printable(one.program, 64), " (process ", one.pid, ")");
}

// ---- Its children ----

// SIGCHLD may have been inherited as ignored. The kernel would then reap children by itself, and their pids could be reused.
void KeepEndsOfChildren() { signal(SIGCHLD, SIG_DFL); }

// How the child ended; with WNOHANG, nullopt while it runs. An error if that can no longer be found out.
absl::StatusOr<std::optional<int>> EndOf(pid_t child, int flags) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, flags);
    if (ended == child) return std::optional<int>(status);
    if (ended == 0) return std::optional<int>();
    if (errno != EINTR) return absl::ErrnoToStatus(errno, "waitpid");
  }
}

// ---- The GPU ----

// Checks that there is a GPU, and whether it is simulated; reports what is wrong. It runs in a child process, since a context of this
// process would keep the program out of a GPU in exclusive mode.
ExitCode LookAtGpu(const RecordOptions& options, bool* simulated) {
  constexpr int kIsSimulated = 64;  // differs from every ExitCode
  const pid_t child = fork();
  if (child < 0) return Fail(kCommand, kExitFailed, absl::ErrnoToStatus(errno, "fork"));
  if (child == 0) {
    ExitCode code = kExitOk;
    {
      const absl::StatusOr<OpenedGpu> opened = OpenGpu(options.kind, options.device);
      if (!opened.ok()) {
        code = Fail(kCommand, ExitCodeOf(opened.status()), opened.status());
      } else if (opened->simulated) {
        code = static_cast<ExitCode>(kIsSimulated);
        if (!opened->note.empty()) {
          Say(absl::StrCat("on the simulated GPU, because ", opened->note));
        }
      }
    }
    _exit(code);
  }
  const absl::StatusOr<std::optional<int>> ended = EndOf(child, /*flags=*/0);
  if (!ended.ok()) {
    return Fail(kCommand, kExitFailed,
                absl::UnknownError(absl::StrCat("how looking at the GPU ended is not known: ",
                                                ended.status().message())));
  }
  const int status = **ended;
  if (WIFSIGNALED(status)) {
    return Fail(kCommand, kExitNoGpu,
                absl::UnavailableError(
                    absl::StrCat("looking at the GPU was ended by signal ", WTERMSIG(status))));
  }
  *simulated = WEXITSTATUS(status) == kIsSimulated;
  return *simulated ? kExitOk : static_cast<ExitCode>(WEXITSTATUS(status));
}

// ---- The program ----

// Appends the library to LD_PRELOAD, like `gpushare run`.
void Preload(const std::string& object) {
  const std::optional<std::string> before = base::GetEnv("LD_PRELOAD");
  const std::string all = before.has_value() ? absl::StrCat(*before, ":", object) : object;
  setenv("LD_PRELOAD", all.c_str(), 1);
}

// Whether every process that launched kernels has recorded as many as were asked for.
bool IsOver(const std::string& folder) {
  const absl::StatusOr<std::vector<record::Recorded>> all = record::ReadFolder(folder);
  bool any = false;
  for (const record::Recorded& one : all.ok() ? *all : std::vector<record::Recorded>{}) {
    if (one.state == record::State::kRecording && one.kernels > 0) return false;
    any = any || one.state != record::State::kRecording;
  }
  return any;
}

// Waits for the program and returns its status (waitpid). Forwards signals, except those of the terminal, which the program receives
// itself.
absl::StatusOr<int> WaitFor(pid_t program, const std::string& folder, bool stop) {
  const std::atomic<int>& interrupted = TellInterrupts();
  bool told = false, stopped = false;
  for (;;) {
    // Until the child is reaped here, its pid cannot be reused.
    GPUSHARE_ASSIGN_OR_RETURN(const std::optional<int> ended, EndOf(program, WNOHANG));
    if (ended.has_value()) return *ended;
    if (const int signal = interrupted; signal != 0 && !told) {
      told = true;
      if (signal != SIGINT || isatty(STDIN_FILENO) == 0) kill(program, signal);
    }
    if (stop && !stopped && IsOver(folder)) {
      stopped = true;
      kill(program, SIGTERM);
    }
    const timespec rest{0, kLookNs};
    nanosleep(&rest, nullptr);
  }
}

// Whether the recorded process still runs: a process with its pid whose environment names the folder.
bool GoesOn(const record::Recorded& one, const std::string& folder) {
  constexpr size_t kMost = 1 << 22;
  std::string text;
  // A zombie has no environment to read.
  if (base::ReadFile(absl::StrCat("/proc/", one.pid, "/environ"), kMost, &text) != 0) return false;
  const std::string wanted = absl::StrCat(record::kFolderVariable, "=", folder);
  for (const absl::string_view line : absl::StrSplit(text, '\0')) {
    if (line == wanted) return true;
  }
  return false;
}

// Reports processes that the program has left behind and that still run.
void TellWhoGoesOn(const std::string& folder) {
  const absl::StatusOr<std::vector<record::Recorded>> all = record::ReadFolder(folder);
  if (!all.ok()) return;
  for (const record::Recorded& one : *all) {
    if (one.state != record::State::kRecording || !GoesOn(one, folder)) continue;
    Say(absl::StrCat(Who(one), " goes on; what it launches from here on is not recorded"));
  }
}

// ---- The trace ----

// Reads what a process has written, up to its last complete line.
absl::StatusOr<workload::KernelTrace> ReadRows(const std::string& path) {
  const base::UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return absl::ErrnoToStatus(errno, path);
  std::string text;
  if (const int error = base::ReadAll(fd.get(), SIZE_MAX, &text); error != 0) {
    return absl::ErrnoToStatus(error, path);
  }
  text.resize(text.rfind('\n') + 1);
  return workload::ParseTrace(text, path);
}

// Writes to a temporary file and renames it, so that the file is complete when it appears.
absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string partial = absl::StrCat(path, ".part");
  base::UniqueFd fd(open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return absl::ErrnoToStatus(errno, partial);
  int error = base::WriteAll(fd.get(), text);
  if (error == 0 && fsync(fd.get()) != 0) error = errno;
  fd.Reset();
  if (error == 0 && rename(partial.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  unlink(partial.c_str());
  return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", path));
}

bool IsNamedGzip(const std::string& path) { return absl::EndsWith(path, ".gz"); }

// The file for trace `number`: trace.csv, or if there are several trace-1.csv, trace-2.csv, ...
std::string NameOf(const std::string& out, size_t number, size_t of) {
  if (of == 1) return out;
  const size_t slash = out.rfind('/');
  size_t dot = out.rfind('.', IsNamedGzip(out) ? out.size() - 4 : std::string::npos);
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = out.size();
  return absl::StrCat(out.substr(0, dot), "-", number, out.substr(dot));
}

std::string Counted(uint64_t count, const char* one, const char* several) {
  return absl::StrCat(count, " ", count == 1 ? one : several);
}

void Describe(const record::Recorded& one, const std::string& path,
              const workload::TraceSummary& sums) {
  Say(absl::StrFormat(
      "%s: %s of %s, %d %s, %.3f ms of device time; measured by %s", path,
      Counted(static_cast<uint64_t>(sums.kernels), "kernel", "kernels"), Who(one),
      sums.distinct_names, sums.distinct_names == 1 ? "name" : "names",
      static_cast<double>(sums.total.count()) / 1e6,
      one.how == record::How::kCupti
          ? "CUPTI"
          : absl::StrFormat(
                "events, %.2f us taken off each%s", static_cast<double>(one.bias_ns) / 1e3,
                one.note.empty() ? "" : absl::StrCat(" (", Printable(one.note, 500), ")"))));
  if (one.state == record::State::kFailed) {
    Say(absl::StrCat("the rest of ", Who(one), " is lost: ", std::strerror(one.error)));
  }
  if (one.graphs > 0) {
    Say(absl::StrCat(Counted(one.graphs, "launch of a graph is", "launches of graphs are"),
                     " one line each"));
  }
  if (one.late > 0) {
    Say(absl::StrCat(Counted(one.late, "kernel", "kernels"),
                     " may be shorter than recorded: the host was slow to launch (code that is "
                     "loaded late; --skip leaves the first ones out)"));
  }
  if (one.together > 0) {
    Say(absl::StrCat(Counted(one.together, "kernel", "kernels"),
                     " may have run beside others, which never ended while they were waited for"));
  }
  if (one.unmeasured > 0) {
    Say(absl::StrCat(Counted(one.unmeasured, "launch is", "launches are"),
                     one.unmeasured == 1 ? " missing: the driver gave no time of it"
                                         : " missing: the driver gave no time of them"));
  }
}

// Why nothing was recorded.
std::string WhyNothing(const std::vector<record::Recorded>& all) {
  uint64_t skipped = 0, captured = 0, unmeasured = 0;
  for (const record::Recorded& one : all) {
    skipped += one.skipped;
    captured += one.captured;
    unmeasured += one.unmeasured;
    if (one.state == record::State::kDone && one.kernels == 0) {
      return absl::StrCat("nothing was recorded of ", Who(one), ": ", Printable(one.note, 500),
                          "; `--by events` does without");
    }
    if (one.state == record::State::kFailed) {
      return absl::StrCat("nothing of ", Who(one), " could be written: ", std::strerror(one.error));
    }
  }
  if (all.empty()) {
    return "the program did not use the GPU: no process of it called the driver, or none could be "
           "preloaded (statically linked, set-user-id, or with an environment of its own)";
  }
  if (skipped > 0) {
    return absl::StrCat("--skip left out all ", skipped, " kernels that were launched");
  }
  if (unmeasured > 0) {
    return absl::StrCat("the driver gave no time of any of the ", unmeasured,
                        " kernels that were launched");
  }
  return absl::StrCat("the program launched no kernel",
                      captured > 0 ? " but what it captured into graphs" : "");
}

ExitCode WriteTraces(const RecordOptions& options, const std::string& out, Folder& folder) {
  const absl::StatusOr<std::vector<record::Recorded>> all = record::ReadFolder(folder.path());
  if (!all.ok()) return Fail(kCommand, kExitFailed, all.status());
  std::vector<std::pair<record::Recorded, workload::KernelTrace>> traces;
  for (const record::Recorded& one : *all) {
    absl::StatusOr<workload::KernelTrace> trace = ReadRows(one.rows);
    if (trace.ok()) {
      traces.emplace_back(one, *std::move(trace));
    } else if (one.kernels > 0) {
      Say(absl::StrCat("what ", Who(one), " left cannot be read: ", trace.status().message()));
    }
  }
  if (traces.empty()) {
    return Fail(kCommand, kExitFailed, absl::NotFoundError(WhyNothing(*all)));
  }
  ExitCode code = kExitOk;
  for (size_t i = 0; i < traces.size(); ++i) {
    auto& [one, trace] = traces[i];
    const std::string path = NameOf(out, i + 1, traces.size());
    if (options.iteration) {
      const int64_t recorded = static_cast<int64_t>(trace.kernels().size());
      absl::StatusOr<workload::Iteration> found = workload::LastIteration(trace);
      if (found.ok()) {
        Say(absl::StrCat(path, ": an iteration, the medians of ", found->repeats, " among the ",
                         recorded, " kernels that were recorded"));
        trace = std::move(found->trace);
      } else {
        Say(absl::StrCat(path, ": all of it, since ", found.status().message()));
        code = kExitFailed;
      }
    }
    absl::Status written = absl::OkStatus();
    if (struct stat there; !options.force && stat(path.c_str(), &there) == 0) {
      written = absl::AlreadyExistsError(absl::StrCat(path, " is there already"));
    } else {
      absl::StatusOr<std::string> text = workload::FormatTrace(trace);
      if (IsNamedGzip(path)) text = workload::Gzip(*text);
      written = text.ok() ? WriteWhole(path, *text) : text.status();
    }
    if (written.ok()) {
      Describe(one, path, workload::Summarize(trace));
    } else {
      Say(absl::StrCat(written.message(), "; what was recorded is in ", one.rows));
      folder.Keep();
      code = kExitOutput;
    }
  }
  return code;
}

// The exit code for a wait status, by the shell's convention.
ExitCode CodeOf(int status) {
  return static_cast<ExitCode>(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

}  // namespace

ExitCode RecordProgram(const RecordOptions& options) {
  if (options.stop && options.seconds <= 0 && options.kernels >= record::kMostKernels) {
    return Fail(kCommand, kExitUsage,
                absl::InvalidArgumentError("--stop wants --kernels or --seconds, after which the "
                                           "program is ended"));
  }
  if (const ExitCode code = CheckWritable(kCommand, options.out); code != kExitOk) return code;
  if (struct stat there; !options.force && stat(options.out.c_str(), &there) == 0) {
    return Fail(kCommand, kExitOutput,
                absl::AlreadyExistsError(absl::StrCat(
                    Quoted(options.out), " is there already; --force writes it anew")));
  }
  const absl::StatusOr<std::string> out = Absolute(options.out);
  if (!out.ok()) return Fail(kCommand, kExitOutput, out.status());
  const absl::StatusOr<std::string> object = FindPreloadObject("libgpushare_preload.so");
  if (!object.ok()) return Fail(kCommand, kExitFailed, object.status());
  if (object->find_first_of(" \t\n:") != std::string::npos) {
    return Fail(kCommand, kExitFailed,
                absl::FailedPreconditionError(absl::StrCat(
                    "the loader cannot preload '", *object,
                    "', whose path has a blank or a colon; install gpushare elsewhere")));
  }
  KeepEndsOfChildren();
  bool simulated = false;
  if (const ExitCode code = LookAtGpu(options, &simulated); code != kExitOk) return code;
  if (simulated && !base::GetEnv("GPUSHARE_DRIVER").has_value()) {
    setenv("GPUSHARE_DRIVER", "sim", 1);
  }
  const absl::StatusOr<std::unique_ptr<Folder>> folder = Folder::Make(*out);
  if (!folder.ok()) return Fail(kCommand, kExitOutput, folder.status());
  const record::How how = options.by == "cupti"    ? record::How::kCupti
                          : options.by == "events" ? record::How::kEvents
                                                   : record::How::kAuto;
  const record::Orders orders{.how = how,
                              .skip = options.skip,
                              .kernels = options.kernels,
                              .nanoseconds = static_cast<int64_t>(options.seconds * 1e9)};
  if (const absl::Status told = record::WriteOrders((*folder)->path(), orders); !told.ok()) {
    return Fail(kCommand, kExitOutput, told);
  }
  // A recorded program is not limited.
  for (const char* name : {"GPUSHARE_SPEC", "GPUSHARE_BROKER", "GPUSHARE_DISABLE"}) unsetenv(name);
  setenv(record::kFolderVariable, (*folder)->path().c_str(), 1);
  Preload(*object);

  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t program = -1;
  if (const int error =
          posix_spawnp(&program, arguments[0], nullptr, nullptr, arguments.data(), environ);
      error != 0) {
    Say(absl::StrCat(arguments[0], ": ", std::strerror(error)));
    return static_cast<ExitCode>(error == ENOENT ? 127 : 126);
  }
  const absl::StatusOr<int> waited = WaitFor(program, (*folder)->path(), options.stop);
  if (!waited.ok()) {
    Say(absl::StrCat("how the program ended is not known: ", waited.status().message(),
                     "; what was recorded until then is kept"));
  }
  const int status = waited.value_or(0);
  const ExitCode ended = waited.ok() ? CodeOf(status) : kExitFailed;
  if (WIFSIGNALED(status) && !(options.stop && WTERMSIG(status) == SIGTERM)) {
    Say(absl::StrCat("the program was ended by signal ", WTERMSIG(status),
                     "; what was recorded until then is kept"));
  } else if (waited.ok() && WIFEXITED(status) && ended != kExitOk) {
    Say(absl::StrCat("the program ended with status ", static_cast<int>(ended)));
  }
  TellWhoGoesOn((*folder)->path());
  const ExitCode written = WriteTraces(options, *out, **folder);
  if (written != kExitOk) return written;
  const bool asked = options.stop && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM;
  return asked ? kExitOk : ended;
}

}  // namespace gpushare::cli
