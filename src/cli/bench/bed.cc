// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bed.h"

#include <sys/utsname.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "cli/bench/commit.h"
#include "cli/open_gpu.h"
#include "cli/run/preload_object.h"
#include "gpushare/c/gpushare.h"
#include "harness/folder.h"

namespace gpushare::cli {
namespace {

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    constexpr char kModel[] = "model name\t: ";
    if (absl::StartsWith(line, kModel)) return std::string(absl::StripPrefix(line, kModel));
  }
  return "an unknown processor";
}

}  // namespace

namespace {

absl::StatusOr<harness::Bed> FindPrograms() {
  harness::Bed bed;
  GPUSHARE_ASSIGN_OR_RETURN(bed.preload, FindPreloadObject("libgpushare_preload.so"));
  GPUSHARE_ASSIGN_OR_RETURN(const std::string native, FindInstalled("bench", "native"));
  bed.programs = native.substr(0, native.rfind('/'));
  GPUSHARE_ASSIGN_OR_RETURN(bed.temporary, harness::TemporaryFolder());
  return bed;
}

}  // namespace

absl::StatusOr<harness::Bed> FindBed() {
  GPUSHARE_ASSIGN_OR_RETURN(harness::Bed bed, FindPrograms());
  GPUSHARE_ASSIGN_OR_RETURN(bed.simulated, FindInstalled("sim", "libcuda.so.1"));
  GPUSHARE_ASSIGN_OR_RETURN(bed.gpu, harness::Simulated::Load(bed.simulated));
  return bed;
}

absl::StatusOr<harness::Bed> FindBed(const FoundCard& card) {
  // Does not open the simulated driver: the loader would then return it for the real driver's soname.
  GPUSHARE_ASSIGN_OR_RETURN(harness::Bed bed, FindPrograms());
  bed.card = card.card;
  return bed;
}

harness::Circumstances DescribeCircumstances() {
  utsname system = {};
  uname(&system);
  return {.version = gpushare_version(),
          .gpu = "simulated",
          .machine = absl::StrCat(Processor(), ", ", system.sysname, " ", system.release),
          .begun = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()),
          .commit = base::GetEnv("GPUSHARE_COMMIT").value_or(BuiltFromCommit())};
}

}  // namespace gpushare::cli
