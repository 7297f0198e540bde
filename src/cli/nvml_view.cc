// SPDX-License-Identifier: Apache-2.0
#include "cli/nvml_view.h"

#include <dlfcn.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace gpushare::cli {
namespace {

// Values of nvmlReturn_t.
constexpr int kLibraryNotFound = 12, kFunctionNotFound = 13;

// nvmlMemory_t.
struct Memory {
  uint64_t total, free, used;
};

template <typename... Parameters>
absl::Status Call(void* library, const char* name, Parameters... parameters) {
  const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, name));
  const int code = function == nullptr ? kFunctionNotFound : function(parameters...);
  if (code == 0) return absl::OkStatus();
  const std::string text = absl::StrCat(name, " answers ", code);
  return code == kLibraryNotFound ? absl::UnavailableError(text) : absl::InternalError(text);
}

absl::Status LookAt(void* library, NvmlView* view) {
  unsigned count = 0;
  GPUSHARE_RETURN_IF_ERROR(Call(library, "nvmlDeviceGetCount_v2", &count));
  for (unsigned i = 0; i < count; ++i) {
    void* device = nullptr;
    char uuid[96] = "";
    Memory memory{};
    GPUSHARE_RETURN_IF_ERROR(Call(library, "nvmlDeviceGetHandleByIndex_v2", i, &device));
    GPUSHARE_RETURN_IF_ERROR(
        Call(library, "nvmlDeviceGetUUID", device, &uuid[0], static_cast<unsigned>(sizeof(uuid))));
    GPUSHARE_RETURN_IF_ERROR(Call(library, "nvmlDeviceGetMemoryInfo", device, &memory));
    view->gpus.push_back({uuid, Bytes(memory.total)});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NvmlView> LookThroughNvml(const std::string& object) {
  void* const library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::InternalError(dlerror());
  GPUSHARE_RETURN_IF_ERROR(Call(library, "nvmlInit_v2"));
  NvmlView view;
  const absl::Status looked = LookAt(library, &view);
  const absl::Status ended = Call(library, "nvmlShutdown");
  GPUSHARE_RETURN_IF_ERROR(looked);
  GPUSHARE_RETURN_IF_ERROR(ended);
  const auto path =
      reinterpret_cast<const char* (*)()>(dlsym(library, "gpushare_preload_nvml_path"));
  view.library = path == nullptr ? "" : path();
  return view;
}

}  // namespace gpushare::cli
