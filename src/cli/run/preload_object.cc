// SPDX-License-Identifier: Apache-2.0
#include "cli/run/preload_object.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/env.h"
#include "base/status_macros.h"

namespace gpushare::cli {

namespace {

// The folder of this command.
absl::StatusOr<std::string> OwnFolder() {
  char exe[4096];
  const ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(exe)) {
    return absl::UnavailableError("/proc/self/exe cannot be read");
  }
  const std::string path(exe, static_cast<size_t>(length));
  return path.substr(0, path.rfind('/'));
}

// For <prefix>/bin/gpushare this is <prefix>/<libdir>/gpushare/<folder>.
absl::StatusOr<std::vector<std::string>> PlacesOf(const std::string& folder) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string mine, OwnFolder());
  std::vector<std::string> places;
#ifdef GPUSHARE_LIBDIR
  places.push_back(absl::StrCat(mine, "/../" GPUSHARE_LIBDIR "/gpushare/", folder));
#endif
  places.push_back(absl::StrCat(mine, "/../lib/gpushare/", folder));
  if (places.front() == places.back()) places.resize(1);
  return places;
}

// `what_to_do` ends the message where it is in none of the places.
absl::StatusOr<std::string> FirstThere(const std::vector<std::string>& places,
                                       const std::string& file, absl::string_view what,
                                       absl::string_view what_to_do) {
  std::string looked;
  for (const std::string& place : places) {
    const std::string path = absl::StrCat(place, "/", file);
    char real[PATH_MAX];
    if (realpath(path.c_str(), real) != nullptr) return std::string(real);
    absl::StrAppend(&looked, looked.empty() ? "" : ", ", path);
  }
  return absl::UnavailableError(
      absl::StrCat(what, " was not found; looked at ", looked, "; ", what_to_do));
}

constexpr absl::string_view kInstallBenchmarks =
    "a wheel, and an installation of the component `runtime` alone, have no benchmarks: install "
    "gpushare with CMake";

}  // namespace

absl::StatusOr<std::string> FindInstalled(const std::string& folder, const std::string& file) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::vector<std::string> places, PlacesOf(folder));
  return FirstThere(places, file, file, kInstallBenchmarks);
}

absl::StatusOr<std::string> FindData(const std::string& folder) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string mine, OwnFolder());
  std::vector<std::string> places;
#ifdef GPUSHARE_DATADIR
  places.push_back(absl::StrCat(mine, "/../" GPUSHARE_DATADIR "/gpushare"));
#endif
  places.push_back(absl::StrCat(mine, "/../share/gpushare"));
  if (places.front() == places.back()) places.resize(1);
  return FirstThere(places, folder, absl::StrCat("the folder of ", folder), kInstallBenchmarks);
}

absl::StatusOr<std::string> FindPreloadObject(const char* file) {
  const std::optional<std::string> asked = base::GetEnv("GPUSHARE_PRELOAD_DIR");
  std::vector<std::string> places = {asked.value_or("")};
  if (!asked.has_value()) {
    GPUSHARE_ASSIGN_OR_RETURN(places, PlacesOf("preload"));
  }
  return FirstThere(places, file, "the preloaded library", "GPUSHARE_PRELOAD_DIR names its folder");
}

}  // namespace gpushare::cli
