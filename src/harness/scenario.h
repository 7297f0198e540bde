// SPDX-License-Identifier: Apache-2.0
// A scenario, independent of the method that shares the GPU: tenants, their work, and their limits.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Scenario scenario, LoadScenario("bench/scenarios/share.yaml"));
//
// The text is YAML; docs/benchmarks.md has its keys. InvalidArgument: FILE:LINE: PLACE: what was given and what is allowed.
#ifndef GPUSHARE_HARNESS_SCENARIO_H_
#define GPUSHARE_HARNESS_SCENARIO_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "harness/allocations.h"
#include "harness/fault.h"
#include "harness/stretch.h"
#include "player/player.h"
#include "workload/trace.h"

namespace gpushare::harness {

inline constexpr size_t kMostTenants = 32;  // but for questions that say otherwise
inline constexpr size_t kMostApart = 500;   // processes of a case that have nothing in common
inline constexpr int64_t kMostKernels = 10'000'000;  // of all tenants of a case
inline constexpr size_t kMostCases = 100;
inline constexpr Nanos kLongestRun = Seconds(600);
inline constexpr Nanos kSample =
    Millis(10);  // what tenants have had is asked so often; times are multiples of it
inline constexpr double kMostRequests = 1e6;  // of all tenants of a case together, as expected

struct Question;  // what is asked, and so which figures there are (questions/question.h)

// The values of question-specific keys, by name.
using Settings = std::map<std::string, double>;

// The limits that a tenant asks for. Each method expresses them in its own way (method.h), or reports that it cannot.
struct Ask {
  std::optional<double> share =
      std::nullopt;  // of the device's time while all tenants have work, (0, 1]
  std::optional<double> cap = std::nullopt;  // upper bound of the device's time, (0, 1]
  bool high_priority = false;
  // The part of its time by which others may delay it, [0, 0.2]. Only gpushare's methods can express it.
  std::optional<double> delay = std::nullopt;
  std::optional<uint64_t> memory = std::nullopt;  // upper bound of its device memory, in bytes
  bool own_context =
      false;  // a context of its own in a shared program, so that its faults stay its own
  bool operator==(const Ask&) const = default;
};

struct Tenant {
  std::string name;
  Ask ask;
  workload::KernelTrace work;
  player::PlayMode mode = player::PlayMode::kBacklog;
  // The request rate: as offered device time per time (`load`), or as requests per second (`rate`); one of the two.
  double load = 0, rate = 0;
  enum class Arrivals : uint8_t { kPoisson, kUniform, kTrace };
  Arrivals arrivals = Arrivals::kPoisson;
  std::vector<Nanos> traced = {};    // kTrace: the arrivals, instead of `load` or `rate`
  std::vector<Stretch> active = {};  // when it has work; empty: always
  // kBatches: the parts of `work` by the number of requests, and how long a request waits for others.
  std::vector<player::BatchPass> batches = {};
  Nanos wait{0};
  Nanos goal{0};                 // latency goal of a request; 0: none
  Allocations allocations = {};  // a tenant with allocations needs no work
  Fault fault = {};
  size_t group = 0;  // the same for all tenants made from one entry with a `count`
  std::string entry =
      {};  // name of that entry, the prefix of their names; without a `count`, the tenant's own name
};

// Whether the tenant serves requests, one at a time or in batches.
bool ServesRequests(const Tenant& tenant);

struct Case {
  std::string name;
  std::string
      gpu;  // settings of the simulated GPU that differ from the defaults (gpushare/testing/sim.h)
  std::vector<Tenant> tenants;
  Settings settings = {};
};
// Whether each program of the case has a simulated GPU of its own on the machine's clock, because start-up time is measured.
bool IsApart(const Case& one);

struct Scenario {
  std::string name;   // the file's name without its extension
  std::string about;  // a description for people
  const Question* question = nullptr;
  Nanos length = Seconds(4), warm_up = Seconds(1), window = Seconds(1);
  std::vector<Case> cases;
  Settings settings = {};
};

// Whether to take a scenario as it is, or as its `short:` section changes it, for a quick look at everything.
enum class Length : uint8_t { kFull, kShort };

// Checks settings of the simulated GPU. Without such a function, wrong settings fail in the run.
using CheckGpu = std::function<absl::Status(const std::string& settings)>;

// `file` names the text in errors; paths of traces are relative to its folder.
absl::StatusOr<Scenario> ParseScenario(std::string_view text, const std::string& file,
                                       const CheckGpu& check_gpu = nullptr,
                                       Length length = Length::kFull);
absl::StatusOr<Scenario> LoadScenario(const std::string& file, const CheckGpu& check_gpu = nullptr,
                                      Length length = Length::kFull);
// Loads several files. Results are identified by scenario name, so names must differ.
absl::StatusOr<std::vector<Scenario>> LoadScenarios(const std::vector<std::string>& files,
                                                    const CheckGpu& check_gpu = nullptr,
                                                    Length length = Length::kFull);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SCENARIO_H_
