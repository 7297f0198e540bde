// SPDX-License-Identifier: Apache-2.0
#include "cli/launch_trial.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/fd_io.h"
#include "base/status_macros.h"
#include "gpushare/runtime.h"
#include "gpushare/snapshot.h"

namespace gpushare::cli {
namespace {

constexpr int kOfEachWay = 8;
constexpr unsigned kMostSeconds = 30;
constexpr size_t kMostText = 1 << 16;
constexpr char kPtx[] =
    ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";

using LaunchKernel = int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned, void*, void**, void**);

template <typename... Parameters>
absl::Status CallDriver(void* library, const char* name, Parameters... parameters) {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, name));
  if (function == nullptr) return absl::FailedPreconditionError(absl::StrCat("there is no ", name));
  const int code = function(parameters...);
  if (code == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(name, " answers ", code));
}

// Launches kernels like an unmodified program.
absl::StatusOr<uint64_t> LaunchSome(void* driver) {
  void *context = nullptr, *module = nullptr, *kernel = nullptr, *found = nullptr;
  int status = 0;
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuInit", 0u));
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuDevicePrimaryCtxRetain", &context, 0));
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuCtxSetCurrent", context));
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuModuleLoadData", &module, &kPtx[0]));
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuModuleGetFunction", &kernel, module, "nothing"));
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuGetProcAddress_v2", "cuLaunchKernel", &found,
                                      12000, uint64_t{0}, &status));
  uint64_t launched = 0;
  for (void* const way : {dlsym(driver, "cuLaunchKernel"), found}) {
    if (way == nullptr) return absl::FailedPreconditionError("there is no cuLaunchKernel");
    for (int i = 0; i < kOfEachWay; ++i) {
      const int code = reinterpret_cast<LaunchKernel*>(way)(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr,
                                                            nullptr, nullptr);
      if (code != 0) {
        return absl::FailedPreconditionError(absl::StrCat("cuLaunchKernel answers ", code));
      }
      ++launched;
    }
  }
  GPUSHARE_RETURN_IF_ERROR(CallDriver(driver, "cuCtxSynchronize"));
  return launched;
}

// Asks the preloaded library's runtime, which Runtime::Create() attaches to.
absl::StatusOr<uint64_t> CountSeen() {
  GPUSHARE_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::Create({}));
  GPUSHARE_ASSIGN_OR_RETURN(const Snapshot snapshot, Snapshot::Take(runtime));
  uint64_t seen = 0;
  for (const VirtualDeviceStats& device : snapshot.devices) seen += device.compute.launches;
  return seen;
}

absl::StatusOr<LaunchTrial::Launches> Try(const std::string& object) {
  void* const driver = dlopen(object.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr) return absl::FailedPreconditionError(dlerror());
  LaunchTrial::Launches launches;
  GPUSHARE_ASSIGN_OR_RETURN(launches.reached, LaunchSome(driver));
  GPUSHARE_ASSIGN_OR_RETURN(launches.seen, CountSeen());
  return launches;
}

// The child's side: reads "s OBJECT" (simulated) or "r OBJECT" (real), and answers "REACHED SEEN" or "! WHY".
void Serve(int hear, int tell) {
  std::string asked;
  if (base::ReadAll(hear, kMostText, &asked) != 0 || asked.size() < 2) return;
  if (asked[0] == 's') setenv("GPUSHARE_DRIVER", "sim", 0);
  const absl::StatusOr<LaunchTrial::Launches> launches = Try(asked.substr(2));
  // An error means that nobody reads the answer.
  static_cast<void>(base::WriteAll(
      tell, launches.ok() ? absl::StrCat(launches->reached, " ", launches->seen)
                          : absl::StrCat("! ", launches.status().message().substr(0, 1024))));
}

}  // namespace

LaunchTrial::LaunchTrial() {
  int there[2], back[2];
  if (pipe2(there, O_CLOEXEC) != 0) return;
  base::UniqueFd hear(there[0]);
  tell_.Reset(there[1]);
  if (pipe2(back, O_CLOEXEC) != 0) return;
  hear_.Reset(back[0]);
  const base::UniqueFd tell(back[1]);
  child_ = fork();
  if (child_ != 0) return;
  tell_.Reset();
  hear_.Reset();
  alarm(kMostSeconds);  // ends the child if the GPU does not answer
  Serve(hear.get(), tell.get());
  _exit(0);
}

LaunchTrial::~LaunchTrial() {
  tell_.Reset();  // a child that was not asked ends now
  if (child_ <= 0) return;
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::StatusOr<LaunchTrial::Launches> LaunchTrial::Run(const std::string& object, bool simulated) {
  if (child_ <= 0) return absl::FailedPreconditionError("no process could be started");
  std::string said;
  int error = base::WriteAll(tell_.get(), absl::StrCat(simulated ? "s " : "r ", object));
  tell_.Reset();
  if (error == 0) error = base::ReadAll(hear_.get(), kMostText, &said);
  if (error != 0) return absl::ErrnoToStatus(error, "the process that tries it");
  if (absl::StartsWith(said, "! ")) return absl::FailedPreconditionError(said.substr(2));
  const std::vector<std::string> counts = absl::StrSplit(said, ' ');
  Launches launches;
  if (counts.size() != 2 || !absl::SimpleAtoi(counts[0], &launches.reached) ||
      !absl::SimpleAtoi(counts[1], &launches.seen)) {
    return absl::FailedPreconditionError("the process that tried it has ended");
  }
  return launches;
}

}  // namespace gpushare::cli
