// SPDX-License-Identifier: Apache-2.0
#include "driver/locate.h"

#include <dlfcn.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/env.h"

namespace gpushare::driver {
namespace {

constexpr char kFile[] = "/gpushare/sim/libcuda.so.1";

std::string FolderOfThisObject() {
  static const char in_this_object = 0;
  Dl_info info;
  if (dladdr(&in_this_object, &info) == 0 || info.dli_fname == nullptr) return "";
  std::string path = info.dli_fname;
  if (!absl::StrContains(path, '/') || path.front() != '/') {
    // For the main program dladdr() gives the name it was started by, which need not be a path.
    char exe[4096];
    const ssize_t length = readlink("/proc/self/exe", exe, sizeof(exe));
    if (length > 0 && !absl::StrContains(path, ".so")) {
      path.assign(exe, static_cast<size_t>(length));
    }
  }
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

const char kSimulatedGpuHint[] =
    "to run on the simulated GPU instead, set GPUSHARE_DRIVER=sim (or to a path of a "
    "libcuda.so.1)";

std::vector<std::string> SimulatedDriverPlaces() {
  if (const auto path = base::GetEnv("GPUSHARE_SIM_DRIVER")) return {*path};
  std::vector<std::string> places;
  const std::string folder = FolderOfThisObject();
  if (!folder.empty()) {
    places.push_back(folder + kFile);  // <prefix>/lib/libgpushare.so
#ifdef GPUSHARE_LIBDIR
    places.push_back(folder + "/../" GPUSHARE_LIBDIR + kFile);  // <prefix>/bin/gpushare
#endif
    places.push_back(folder + "/../lib" + kFile);
    places.push_back(folder + "/../.." + kFile);  // a Python package below <prefix>/lib
  }
#ifdef GPUSHARE_BUILD_SIM_DRIVER
  places.push_back(GPUSHARE_BUILD_SIM_DRIVER);
#endif
  return places;
}

absl::StatusOr<DriverFile> LocateDriver(const std::string& asked) {
  std::string path = asked;
  if (path.empty()) path = base::GetEnv("GPUSHARE_DRIVER").value_or("libcuda.so.1");
  if (path != "sim") return DriverFile{path, false};
  const std::vector<std::string> places = SimulatedDriverPlaces();
  for (const std::string& place : places) {
    if (access(place.c_str(), R_OK) == 0) return DriverFile{place, true};
  }
  return absl::UnavailableError(
      absl::StrCat("the simulated GPU's libcuda.so.1 was not found; looked at ",
                   absl::StrJoin(places, ", "), "; GPUSHARE_SIM_DRIVER names the file"));
}

}  // namespace gpushare::driver
