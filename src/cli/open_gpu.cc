// SPDX-License-Identifier: Apache-2.0
#include "cli/open_gpu.h"

#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"

namespace gpushare::cli {
namespace {

absl::StatusOr<OpenedGpu> Open(const std::string& driver, const std::string& name) {
  GPUSHARE_ASSIGN_OR_RETURN(Runtime runtime, Runtime::Create({.driver = driver}));
  GPUSHARE_ASSIGN_OR_RETURN(const RuntimeInfo info, runtime.info());
  GPUSHARE_ASSIGN_OR_RETURN(GpuProbe probe, Gpu::Probe(runtime, name));
  if (probe.state != GpuProbe::State::kHealthy) {
    // Of a GPU that is not there, the reason says which was asked for.
    return absl::UnavailableError(probe.state == GpuProbe::State::kAbsent
                                      ? probe.reason
                                      : "GPU " + name + ": " + probe.reason);
  }
  GPUSHARE_ASSIGN_OR_RETURN(Gpu gpu, Gpu::Open(runtime, name));
  return OpenedGpu{std::move(runtime), std::move(gpu), std::move(probe), info.simulated, ""};
}

}  // namespace

absl::StatusOr<OpenedGpu> OpenGpu(GpuKind kind, const std::string& name) {
  if (kind == GpuKind::kSimulated) return Open("sim", name);
  absl::StatusOr<OpenedGpu> real = Open("", name);
  if (kind == GpuKind::kReal) {
    if (real.ok() && real->simulated) {
      return absl::UnavailableError(
          "--gpu real: the driver that GPUSHARE_DRIVER names is the simulated GPU; unset it or "
          "pass "
          "--gpu sim");
    }
    return real;
  }
  if (real.ok()) return real;
  absl::StatusOr<OpenedGpu> simulated = Open("sim", "0");
  if (simulated.status().message() == real.status().message()) return real;
  if (!simulated.ok()) {
    return absl::Status(simulated.status().code(), std::string(real.status().message()) +
                                                       "; and the simulated GPU: " +
                                                       std::string(simulated.status().message()));
  }
  simulated->note = std::string(real.status().message());
  return simulated;
}

}  // namespace gpushare::cli
