// SPDX-License-Identifier: Apache-2.0
#include "harness/simulated.h"

#include <dlfcn.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gpushare::harness {

absl::StatusOr<Simulated> Simulated::Load(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(dlerror());
  Simulated loaded;
  loaded.check_ = reinterpret_cast<decltype(check_)>(dlsym(library, "gpushare_sim_check"));
  loaded.forget_ =
      reinterpret_cast<decltype(forget_)>(dlsym(library, "gpushare_sim_forget_shared"));
  if (loaded.check_ == nullptr || loaded.forget_ == nullptr) {
    return absl::UnavailableError(
        absl::StrCat(path, " is not the simulated driver of this gpushare"));
  }
  return loaded;
}

absl::Status Simulated::Check(const std::string& settings) const {
  char why[512] = "";
  if (check_ != nullptr && check_(settings.c_str(), why, sizeof(why)) != 0)
    return absl::InvalidArgumentError(why);
  for (const absl::string_view setting : absl::StrSplit(settings, absl::ByAnyChar(",\n"))) {
    const absl::string_view key = absl::StripAsciiWhitespace(setting.substr(0, setting.find('=')));
    for (const char* const own : {"seed", "shared", "place", "processes"}) {
      if (key != own) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("'", own, "' differs from run to run: the harness sets it"));
    }
  }
  return absl::OkStatus();
}

void Simulated::Forget(const std::string& shared) const {
  if (forget_ != nullptr) forget_(shared.c_str());
}

}  // namespace gpushare::harness
