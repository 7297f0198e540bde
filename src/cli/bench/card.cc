// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/card.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "gpushare/gpu.h"
#include "gpushare/runtime.h"

namespace gpushare::cli {
namespace {

// The path of the loaded driver with this name.
absl::StatusOr<std::string> PathOfDriver(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (library == nullptr || dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0) {
    return absl::InternalError(absl::StrCat("nobody says where the driver '", name, "' is"));
  }
  dlclose(library);  // the runtime keeps it open
  return std::string(map->l_name);
}

// NVML, if there is one. It is only queried; no settings are changed.
class Nvml {
 public:
  explicit Nvml(const std::string& uuid) : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW)) {
    ready_ = library_ != nullptr && Call("nvmlInit_v2") &&
             Call("nvmlDeviceGetHandleByUUID", uuid.c_str(), &device_);
  }
  ~Nvml() {
    if (library_ != nullptr) Call("nvmlShutdown");
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string Driver() const {
    char text[96] = "";
    const bool told =
        ready_ && Call("nvmlSystemGetDriverVersion", &text[0], static_cast<unsigned>(sizeof(text)));
    return told ? text : "";
  }

  std::string Clocks() const {
    constexpr unsigned kSm = 1, kMemory = 2, kCore = 0;
    std::vector<std::string> parts;
    for (const auto& [which, name] : {std::pair(kSm, "SM"), std::pair(kMemory, "memory")}) {
      unsigned now = 0, most = 0;
      if (!ready_ || !Call("nvmlDeviceGetClockInfo", device_, which, &now)) continue;
      const bool bound = Call("nvmlDeviceGetMaxClockInfo", device_, which, &most);
      parts.push_back(
          absl::StrCat(name, " ", now, bound ? absl::StrCat(" of ", most) : "", " MHz"));
    }
    unsigned value = 0;
    if (ready_ && Call("nvmlDeviceGetTemperature", device_, kCore, &value)) {
      parts.push_back(absl::StrCat(value, " C"));
    }
    if (ready_ && Call("nvmlDeviceGetPowerUsage", device_, &value)) {
      parts.push_back(absl::StrCat((value + 500) / 1000, " W"));
    }
    return absl::StrJoin(parts, ", ");
  }

 private:
  template <typename... Parameters>
  bool Call(const char* name, Parameters... parameters) const {
    const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library_, name));
    return function != nullptr && function(parameters...) == 0;
  }

  void* const library_;
  void* device_ = nullptr;
  bool ready_ = false;
};

// Adds the harness's options to the library's message.
absl::Status WithAdvice(const std::string& name, const absl::Status& status) {
  const bool told = absl::StrContains(status.message(), "--gpu sim");
  return absl::Status(status.code(),
                      absl::StrCat("--gpu ", name, ": ", status.message(),
                                   told ? "" : "; --gpu sim runs on the simulated GPU"));
}

absl::StatusOr<FoundCard> Find(const std::string& name) {
  RuntimeOptions options;
  options.broker = "none";  // looked at as it is, whoever shares it
  GPUSHARE_ASSIGN_OR_RETURN(const Runtime runtime, Runtime::Create(options));
  GPUSHARE_ASSIGN_OR_RETURN(const RuntimeInfo info, runtime.info());
  GPUSHARE_ASSIGN_OR_RETURN(const GpuProbe probe, Gpu::Probe(runtime, name));
  if (probe.state == GpuProbe::State::kAbsent) return absl::NotFoundError(probe.reason);
  if (probe.state != GpuProbe::State::kHealthy) return absl::UnavailableError(probe.reason);
  FoundCard found;
  GPUSHARE_ASSIGN_OR_RETURN(found.card.driver, PathOfDriver(info.driver_path));
  found.card.uuid = probe.uuid;
  found.name = probe.name;
  const std::string cuda =
      absl::StrCat("CUDA ", info.driver_version / 1000, ".", info.driver_version % 1000 / 10);
  if (info.simulated) {
    found.card.settings = base::GetEnv("GPUSHARE_SIM").value_or("");
    found.driver = absl::StrCat("the simulated GPU's, ", cuda);
    return found;
  }
  const Nvml nvml(probe.uuid);
  const std::string version = nvml.Driver();
  found.driver = version.empty() ? cuda : absl::StrCat(version, ", ", cuda);
  found.clocks = nvml.Clocks();
  return found;
}

}  // namespace

bool NamesCard(const std::string& name) {
  const bool number =
      !name.empty() && name.size() <= 3 && std::all_of(name.begin(), name.end(), [](char each) {
        return std::isdigit(static_cast<unsigned char>(each)) != 0;
      });
  return number || absl::StartsWith(name, "GPU-") || absl::StartsWith(name, "MIG-") ||
         absl::StrContains(name, ':');
}

absl::StatusOr<FoundCard> FindCard(const std::string& name) {
  absl::StatusOr<FoundCard> found = Find(name);
  if (!found.ok()) return WithAdvice(name, found.status());
  return found;
}

}  // namespace gpushare::cli
