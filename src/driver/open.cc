// SPDX-License-Identifier: Apache-2.0
// Opening a driver.
#include <dlfcn.h>
#include <sys/stat.h>

#include <atomic>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "base/text.h"
#include "driver/driver.h"
#include "driver/locate.h"
#include "driver/state.h"
#include "gpushare/testing/sim.h"

namespace gpushare::driver {
namespace {

// The error for a driver that cannot be used, with the driver's own result if it gave one.
absl::Status NoDriver(const DriverFile& file, const absl::Status& why) {
  const absl::Status status = absl::UnavailableError(
      file.simulated
          ? absl::StrCat("the simulated GPU at '", file.path, "' cannot be used: ", why.message())
          : absl::StrCat("no usable NVIDIA driver at '", file.path, "': ", why.message(), "; ",
                         kSimulatedGpuHint));
  return base::WithPayloadsOf(status, why);
}

// The simulator's ABI version; 0 for a real driver.
uint32_t SimulatedAbi(void* handle) {
  auto* abi = reinterpret_cast<decltype(&gpushare_sim_abi_version)>(
      dlsym(handle, "gpushare_sim_abi_version"));
  return abi == nullptr ? 0 : abi();
}

// Whether the simulated GPU was opened by its path. From then on the loader answers every request for its soname, which is also
// the real driver's, with the simulated GPU.
std::atomic<bool> simulator_has_the_soname{false};

absl::Status CheckSoname(const std::string& asked) {
  if (absl::StrContains(asked, '/')) {
    simulator_has_the_soname.store(true, std::memory_order_relaxed);
    return absl::OkStatus();
  }
  if (!simulator_has_the_soname.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the simulated GPU is open in this process, and stands in for '", asked,
                   "' in it; ask for it ('sim' as the driver, or GPUSHARE_DRIVER=sim), or give the "
                   "NVIDIA driver's absolute path"));
}

absl::Status Configure(void* handle, const std::string& text) {
  auto* configure =
      reinterpret_cast<decltype(&gpushare_sim_configure)>(dlsym(handle, "gpushare_sim_configure"));
  if (configure == nullptr) {
    return absl::InternalError("the simulated driver does not export gpushare_sim_configure");
  }
  char error[512] = "";
  if (configure(text.c_str(), error, sizeof(error)) == 0) return absl::OkStatus();
  const std::string what = Printable(error, sizeof(error));  // it quotes the caller's text
  const bool environment = absl::StartsWith(what, "GPUSHARE_SIM:");
  return absl::InvalidArgumentError(absl::StrCat(
      "simulated GPU: ", environment ? "" : absl::StrCat("configuration ", Quoted(text), ": "),
      what));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> Driver::Open(const OpenOptions& options) {
  auto state = std::make_unique<State>();
  DriverFile file{options.path, false};
  if (options.handle == nullptr) {
    GPUSHARE_ASSIGN_OR_RETURN(file, LocateDriver(options.path));
  }
  state->path = file.path;
  // dlopen() of a FIFO would block until there is a writer.
  struct stat there;
  if (options.handle == nullptr && absl::StrContains(state->path, '/') &&
      stat(state->path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return NoDriver(file, absl::NotFoundError(absl::StrCat(state->path, ": it is not a file")));
  }
  state->handle = options.handle != nullptr ? options.handle
                                            : dlopen(state->path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (state->handle == nullptr) {
    const char* why = dlerror();
    return NoDriver(file, absl::NotFoundError(why != nullptr ? why : "dlopen failed"));
  }

  const uint32_t abi = SimulatedAbi(state->handle);
  state->simulated = abi != 0;
  if (state->simulated && options.handle == nullptr) {
    GPUSHARE_RETURN_IF_ERROR(CheckSoname(state->path));
  }
  if (state->simulated && abi != GPUSHARE_SIM_ABI_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("the simulated driver '", state->path, "' has interface version ", abi,
                     ", this gpushare needs ", GPUSHARE_SIM_ABI_VERSION));
  }
  if (!options.simulation.empty()) {
    if (!state->simulated) {
      return absl::InvalidArgumentError(absl::StrCat("a configuration of the simulated GPU ('",
                                                     options.simulation, "') was given, but '",
                                                     state->path, "' is a real driver"));
    }
    GPUSHARE_RETURN_IF_ERROR(Configure(state->handle, options.simulation));
  }

  if (absl::Status filled = state->table.Fill(state->handle); !filled.ok()) {
    return NoDriver(file, filled);
  }
  if (const CUresult result = state->table.Init(0); result != CUDA_SUCCESS) {
    const absl::Status status = ToStatus(static_cast<Result>(result), "cuInit");
    if (!state->simulated) return NoDriver(file, status);
    // cuInit() is where the simulator reads GPUSHARE_SIM. Its result code cannot tell what is wrong there; Configure() does.
    GPUSHARE_RETURN_IF_ERROR(Configure(state->handle, ""));
    return status;
  }
  GPUSHARE_RETURN_IF_ERROR(ToStatus(
      static_cast<Result>(state->table.DriverGetVersion(&state->version)), "cuDriverGetVersion"));
  if (state->simulated) {
    GPUSHARE_ASSIGN_OR_RETURN(state->clock, SimClock::Attach(state->handle));
  }
  return std::unique_ptr<Driver>(new Driver(std::move(state)));
}

}  // namespace gpushare::driver
