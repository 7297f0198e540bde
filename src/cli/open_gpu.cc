// SPDX-License-Identifier: Apache-2.0
#include "cli/open_gpu.h"

#include <dlfcn.h>

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "gpushare/error.h"

namespace gpushare::cli {
namespace {

absl::StatusOr<OpenedGpu> Open(const std::string& driver, const std::string& name) {
  RuntimeOptions options{.driver = driver};
  // Shows the whole GPU, not a broker's share of it. Under the preloaded library only the share is visible.
  if (dlsym(RTLD_DEFAULT, "gpushare_preload_version") == nullptr) options.broker = "none";
  GPUSHARE_ASSIGN_OR_RETURN(Runtime runtime, Runtime::Create(options));
  GPUSHARE_ASSIGN_OR_RETURN(const RuntimeInfo info, runtime.info());
  GPUSHARE_ASSIGN_OR_RETURN(GpuProbe probe, Gpu::Probe(runtime, name));
  // For an absent GPU the reason names the one asked for.
  if (probe.state == GpuProbe::State::kAbsent) return absl::NotFoundError(probe.reason);
  if (probe.state != GpuProbe::State::kHealthy) {
    return absl::UnavailableError(absl::StrCat("GPU ", name, ": ", probe.reason));
  }
  GPUSHARE_ASSIGN_OR_RETURN(Gpu gpu, Gpu::Open(runtime, name));
  return OpenedGpu{std::move(runtime), std::move(gpu), std::move(probe), info.simulated, ""};
}

// Why the machine has no GPU at all. Empty if it has one that does not work, or if a driver was named but not
// found: the user must hear of those errors.
std::string NoGpuHere(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return "";
  if (base::GetEnv("GPUSHARE_DRIVER").has_value()) return "";
  if (const std::optional<ErrorDetail> detail = ErrorDetail::Of(status)) {
    constexpr int kNoDevice = 100;
    return detail->driver_result == kNoDevice ? "the NVIDIA driver finds no device" : "";
  }
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) return absl::StrCat("there is no NVIDIA driver (", dlerror(), ")");
  dlclose(driver);
  return "";
}

// Adds this command's options to the library's message.
absl::Status WithAdvice(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kUnavailable) return status;
  if (base::GetEnv("GPUSHARE_DRIVER").value_or("") == "sim") return status;
  return absl::UnavailableError(
      absl::StrCat(status.message(), "; --gpu sim runs on the simulated GPU"));
}

}  // namespace

absl::StatusOr<OpenedGpu> OpenGpu(GpuKind kind, const std::string& name) {
  if (kind == GpuKind::kSimulated) return Open("sim", name);
  absl::StatusOr<OpenedGpu> real = Open("", name);
  if (real.ok()) {
    if (kind != GpuKind::kReal || !real->simulated) return real;
    return absl::UnavailableError(
        "--gpu real: the driver that GPUSHARE_DRIVER names is the simulated GPU; unset it, or pass "
        "--gpu sim");
  }
  const std::string why = kind == GpuKind::kReal ? "" : NoGpuHere(real.status());
  if (why.empty()) return WithAdvice(real.status());
  absl::StatusOr<OpenedGpu> simulated = Open("sim", name);
  if (!simulated.ok()) {
    return absl::Status(
        simulated.status().code(),
        absl::StrCat(simulated.status().message(), "\nthe simulated GPU was taken because ", why));
  }
  simulated->note = why;
  return simulated;
}

ExitCode ExitCodeOf(const absl::Status& not_opened) {
  return not_opened.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitNoGpu;
}

}  // namespace gpushare::cli
