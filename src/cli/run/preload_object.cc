// SPDX-License-Identifier: Apache-2.0
#include "cli/run/preload_object.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/env.h"

namespace gpushare::cli {

// <prefix>/bin/gpushare has it in <prefix>/<libdir>/gpushare/preload.
absl::StatusOr<std::string> FindPreloadObject(const char* file) {
  const std::optional<std::string> asked = base::GetEnv("GPUSHARE_PRELOAD_DIR");
  std::vector<std::string> places;
  if (asked.has_value()) {
    places.push_back(*asked);
  } else {
    char exe[4096];
    const ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe));
    if (length <= 0 || static_cast<size_t>(length) == sizeof(exe)) {
      return absl::UnavailableError("/proc/self/exe cannot be read");
    }
    const std::string path(exe, static_cast<size_t>(length));
    const std::string folder = path.substr(0, path.rfind('/'));
#ifdef GPUSHARE_LIBDIR
    places.push_back(folder + "/../" GPUSHARE_LIBDIR "/gpushare/preload");
#endif
    places.push_back(folder + "/../lib/gpushare/preload");
  }
  std::string looked;
  for (const std::string& place : places) {
    const std::string path = absl::StrCat(place, "/", file);
    char real[PATH_MAX];
    if (realpath(path.c_str(), real) != nullptr) return std::string(real);
    absl::StrAppend(&looked, looked.empty() ? "" : ", ", path);
  }
  return absl::UnavailableError(absl::StrCat("the preloaded library was not found; looked at ",
                                             looked, "; GPUSHARE_PRELOAD_DIR names its folder"));
}

}  // namespace gpushare::cli
