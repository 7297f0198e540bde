// SPDX-License-Identifier: Apache-2.0
// A way to share the GPU, as the harness knows it: how its tenants' processes are started, and how each is told what it may
// have.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Method method, FindMethod("gpushare"));
//   if (const std::string why = WhyNot(method, one_case); !why.empty()) ... a row "not supported" ...
#ifndef GPUSHARE_HARNESS_METHOD_H_
#define GPUSHARE_HARNESS_METHOD_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "harness/scenario.h"

namespace gpushare::harness {

struct Method {
  enum class Kind : uint8_t {
    kNative,       // one program, a stream a tenant, nobody limits
    kTimeSlicing,  // a program a tenant; the GPU gives them turns
    kMps,          // a program a tenant; clients of NVIDIA's MPS, with percentages
    kInProcess,    // one program that is linked with gpushare, a virtual device a tenant
    kSpatial,      // the same, each virtual device with SMs of its own (isolation green)
    kPreloaded,    // a program a tenant, none of which knows of gpushare
    kLibrary,      // the same with somebody else's library
  };
  std::string name;
  Kind kind = Kind::kNative;
  std::string library = {};  // kLibrary: its path
  // kLibrary: the environment of each tenant's program, beside what a run has (environment.h). In a value %SHARE%, %CAP%
  // stand for percentages as they were asked for, 12.5 among them, 100 where nothing was; %MEMORY_MIB%, %MEMORY_BYTES% for the
  // quota of memory, 0 where there is none; %TENANT% for its name and %FOLDER% for a folder that goes with the run;
  // %PRIORITY:HIGH:NORMAL% for the first word where its priority is high, else for the second.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // kLibrary: what it needs beside itself, a command line of the shell that runs as long as a run's programs; empty: nothing.
  // In it %FOLDER% stands for the same, and %READY% for a file that it makes when programs may begin.
  std::string server = {};
};

// "native", "time-slicing", "mps", "gpushare", "gpushare-spatial", "gpushare-preload"; or NAME=LIBRARY[,VARIABLE=VALUE]...
absl::StatusOr<Method> FindMethod(std::string_view text);
// Several, no two of one name: results know them by it.
absl::StatusOr<std::vector<Method>> FindMethods(const std::vector<std::string>& texts);
// Gives the library of a method its server, as NAME=COMMAND.
absl::Status SetServer(std::string_view text, std::vector<Method>* methods);
std::vector<std::string> MethodNames();

// Processes that have a simulated GPU in common (docs/simulator.md), a broker among them.
inline constexpr size_t kMostProcesses = 64;
// On a GPU each has a context, of some hundred MiB; as many clients MPS takes on any GPU.
inline constexpr size_t kMostProcessesOnGpu = 48;

// One program each, or all in one.
bool HasProcesses(const Method& method);
// Whether that one is linked with gpushare.
bool IsLinked(const Method& method);

// Where a run is.
enum class Ground : uint8_t { kSimulated, kGpu };

// What of the case this method has no word for, or cannot be there; empty: nothing. Native and time slicing are told nothing
// and run all the same: they are what others are compared with.
std::string WhyNot(const Method& method, const Case& one, Ground ground = Ground::kSimulated);

// The spec of a tenant's virtual device.
std::string SpecOf(const Ask& ask);
// The environment of a tenant's program. `folder`: of the run's files, which goes with it.
std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Method& method, const Ask& ask,
                                                               const std::string& tenant = "",
                                                               const std::string& folder = "");

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_METHOD_H_
