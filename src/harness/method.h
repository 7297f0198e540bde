// SPDX-License-Identifier: Apache-2.0
// A method of sharing the GPU: how the tenants' processes are started, and how each is told its limits.
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
    kNative,       // one program, a stream per tenant, no limits
    kTimeSlicing,  // a program per tenant; the GPU time-slices them
    kMps,          // a program per tenant, as clients of NVIDIA's MPS with percentages
    kInProcess,    // one program linked with gpushare, a virtual device per tenant
    kSpatial,      // kInProcess, with SMs of its own for each virtual device (isolation green)
    kPreloaded,    // an unmodified program per tenant, under gpushare's preload library
    kLibrary,      // an unmodified program per tenant, under another preload library
  };
  std::string name;
  Kind kind = Kind::kNative;
  std::string library = {};  // kLibrary: its path
  // kLibrary: variables for each tenant's program, in addition to those of a run (environment.h). In a value, %SHARE% and %CAP%
  // stand for the percentages asked for, which may be fractions such as 12.5, or 100 if none was; %MEMORY_MIB% and
  // %MEMORY_BYTES% for the memory quota, or 0 without one; %TENANT% for the tenant's name; %FOLDER% for a folder that is removed
  // after the run; %PRIORITY:HIGH:NORMAL% for the first word if the tenant has high priority, else for the second.
  std::vector<std::pair<std::string, std::string>> environment = {};
  // kLibrary: a shell command for the server that the library needs, which runs as long as the run's programs; empty: none.
  // %FOLDER% stands for the run's folder, and %READY% for a file that the server creates once programs may begin.
  std::string server = {};
};

// "native", "time-slicing", "mps", "gpushare", "gpushare-spatial", "gpushare-preload"; or NAME=LIBRARY[,VARIABLE=VALUE]...
absl::StatusOr<Method> FindMethod(std::string_view text);
// FindMethod() for several texts. Results are identified by method name, so names must differ.
absl::StatusOr<std::vector<Method>> FindMethods(const std::vector<std::string>& texts);
// Sets the server of a library method; `text` is NAME=COMMAND.
absl::Status SetServer(std::string_view text, std::vector<Method>* methods);
std::vector<std::string> MethodNames();

// The most processes that can share a simulated GPU (docs/simulator.md), including a broker.
inline constexpr size_t kMostProcesses = 64;
// On a real GPU each process has a context of some hundred MiB; MPS takes this many clients on any GPU.
inline constexpr size_t kMostProcessesOnGpu = 48;

// Whether each tenant has a program of its own; otherwise all share one.
bool HasProcesses(const Method& method);
// Whether the tenants' common program is linked with gpushare.
bool IsLinked(const Method& method);

// Where a run takes place.
enum class Ground : uint8_t { kSimulated, kGpu };

// Why the method cannot run the case: a limit that it cannot express, or a setup that it does not allow. Empty if it can. Native
// and time slicing ignore limits and always run, since other methods are compared with them.
std::string WhyNot(const Method& method, const Case& one, Ground ground = Ground::kSimulated);

// The spec of a tenant's virtual device.
std::string SpecOf(const Ask& ask);
// The environment of a tenant's program. `folder` holds the run's files and is removed after the run.
std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Method& method, const Ask& ask,
                                                               const std::string& tenant = "",
                                                               const std::string& folder = "");

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_METHOD_H_
