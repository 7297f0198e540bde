// SPDX-License-Identifier: Apache-2.0
#include "driver/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "driver/nvml_types.h"

namespace gpushare::driver {
namespace {

constexpr char kSoname[] = "libnvidia-ml.so.1";
constexpr size_t kMostProcesses = 1 << 16;

template <typename... Parameters>
int CallNvml(void* library, const char* name, Parameters... parameters) {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, name));
  return function == nullptr ? nvml::kFunctionNotFound : function(parameters...);
}

absl::Status NvmlStatus(int code, const char* name) {
  if (code == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("NVML: ", name, " answers ", code));
}

// The entries that `call` writes; the buffer grows until they fit. nullopt: the driver lacks the call or cannot answer it here.
template <typename Entry>
absl::StatusOr<std::optional<std::vector<Entry>>> List(
    const char* name, absl::FunctionRef<int(Entry*, unsigned*)> call) {
  std::vector<Entry> list(64);
  for (;;) {
    auto count = static_cast<unsigned>(list.size());
    const int code = call(list.data(), &count);
    if (code == nvml::kNotSupported || code == nvml::kFunctionNotFound) return std::nullopt;
    if (code == nvml::kInsufficientSize && list.size() < kMostProcesses) {
      list.resize(std::min<size_t>(kMostProcesses, std::max<size_t>(count, list.size()) * 2));
      continue;
    }
    GPUSHARE_RETURN_IF_ERROR(NvmlStatus(code, name));
    list.resize(std::min<size_t>(count, list.size()));
    return list;
  }
}

// The processes of one kind (compute, graphics, MPS); empty if the driver does not know the kind.
absl::StatusOr<std::vector<nvml::ProcessV2>> ListProcesses(void* library, void* device,
                                                           const std::string& kind) {
  // _v2 and _v3 have the same struct, but drivers 535.43 to 535.86 write a longer one for _v3.
  const std::string v2 = absl::StrCat("nvmlDeviceGet", kind, "RunningProcesses_v2");
  const std::string v3 = absl::StrCat("nvmlDeviceGet", kind, "RunningProcesses_v3");
  const char* name = dlsym(library, v2.c_str()) != nullptr ? v2.c_str() : v3.c_str();
  GPUSHARE_ASSIGN_OR_RETURN(
      auto list, List<nvml::ProcessV2>(name, [&](nvml::ProcessV2* entries, unsigned* count) {
        return CallNvml(library, name, device, count, entries);
      }));
  return list.has_value() ? *std::move(list) : std::vector<nvml::ProcessV2>();
}

absl::StatusOr<void*> FindDevice(void* library, const std::string& uuid) {
  void* device = nullptr;
  constexpr char kFind[] = "nvmlDeviceGetHandleByUUID";
  GPUSHARE_RETURN_IF_ERROR(NvmlStatus(CallNvml(library, kFind, uuid.c_str(), &device), kFind));
  return device;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Open(const std::string& driver) {
  std::vector<std::string> places;
  if (const auto given = base::GetEnv("GPUSHARE_NVML")) places.push_back(*given);
  const size_t slash = driver.rfind('/');
  if (places.empty() && slash != std::string::npos) {
    places.push_back(driver.substr(0, slash + 1) + kSoname);
  }
  places.emplace_back(kSoname);
  std::string why;
  for (const std::string& place : places) {
    void* const library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why = dlerror();
      continue;
    }
    const absl::Status begun = NvmlStatus(CallNvml(library, "nvmlInit_v2"), "nvmlInit_v2");
    if (begun.ok()) return std::unique_ptr<Nvml>(new Nvml(library));
    why = std::string(begun.message());
    dlclose(library);
  }
  return absl::UnavailableError(why);
}

Nvml::~Nvml() {
  CallNvml(library_, "nvmlShutdown");
  dlclose(library_);
}

bool Nvml::stands_in() const { return dlsym(library_, "gpushare_preload_nvml_version") != nullptr; }

absl::StatusOr<Nvml::ByProcess> Nvml::Processes(const std::string& uuid) const {
  GPUSHARE_ASSIGN_OR_RETURN(void* const device, FindDevice(library_, uuid));
  ByProcess all;
  for (const char* kind : {"Compute", "Graphics", "MPSCompute"}) {
    GPUSHARE_ASSIGN_OR_RETURN(const std::vector<nvml::ProcessV2> list,
                              ListProcesses(library_, device, kind));
    ByProcess of_kind;
    for (const nvml::ProcessV2& process : list) {
      std::optional<uint64_t>& bytes = of_kind[static_cast<int32_t>(process.pid)];
      if (process.used_memory == nvml::kNoFigure) continue;
      bytes = bytes.value_or(0) + process.used_memory;  // each MIG instance has an entry of its own
    }
    // A process that computes and draws is in both lists, with the same figure.
    for (const auto& [process, bytes] : of_kind) {
      std::optional<uint64_t>& most = all[process];
      most = std::max(most, bytes);  // nullopt compares as the least
    }
  }
  return all;
}

absl::StatusOr<std::optional<Nvml::Samples>> Nvml::Utilization(const std::string& uuid,
                                                               uint64_t since_us) const {
  GPUSHARE_ASSIGN_OR_RETURN(void* const device, FindDevice(library_, uuid));
  GPUSHARE_ASSIGN_OR_RETURN(const std::vector<nvml::ProcessV2> at_once,
                            ListProcesses(library_, device, "MPSCompute"));
  if (!at_once.empty()) return std::nullopt;
  constexpr char kAsk[] = "nvmlDeviceGetProcessUtilization";
  GPUSHARE_ASSIGN_OR_RETURN(
      const auto list,
      List<nvml::ProcessSample>(kAsk, [&](nvml::ProcessSample* entries, unsigned* count) {
        const int code = CallNvml(library_, kAsk, device, entries, count,
                                  static_cast<unsigned long long>(since_us));
        if (code != nvml::kNotFound) return code;
        *count = 0;  // no process has run anything
        return 0;
      }));
  if (!list.has_value()) return std::nullopt;
  Samples samples;
  for (const nvml::ProcessSample& one : *list) {
    // Entries of ended processes are zero, or keep old values.
    if (one.pid == 0 || one.time_us <= since_us || one.sm > 100) continue;
    samples.push_back({static_cast<int32_t>(one.pid), one.time_us, one.sm});
  }
  return samples;
}

}  // namespace gpushare::driver
