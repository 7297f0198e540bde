// SPDX-License-Identifier: Apache-2.0
// What is to be measured, whatever shares the GPU: tenants, what they run, what they ask for.
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

// Values of the keys that a question alone has, by their names.
using Settings = std::map<std::string, double>;

// What a tenant asks for. Each method says it in its own words (method.h), or that it has none.
struct Ask {
  std::optional<double> share = std::nullopt;  // of the device's time while all want it, (0, 1]
  std::optional<double> cap = std::nullopt;    // never more, (0, 1]
  bool high_priority = false;
  std::optional<uint64_t> memory = std::nullopt;  // bytes of the device's, never more
  bool own_context = false;  // where its program is others' too: a fault of its own
  bool operator==(const Ask&) const = default;
};

struct Tenant {
  std::string name;
  Ask ask;
  workload::KernelTrace work;
  player::PlayMode mode = player::PlayMode::kBacklog;
  // Of requests: device time of those that come ÷ time, or how many come a second; one of the two.
  double load = 0, rate = 0;
  enum class Arrivals : uint8_t { kPoisson, kUniform, kTrace };
  Arrivals arrivals = Arrivals::kPoisson;
  std::vector<Nanos> traced = {};    // kTrace: when they come, which no `load` or `rate` says then
  std::vector<Stretch> active = {};  // it has work then alone; none: throughout
  // kBatches: parts of `work`, by the number of requests; how long a request waits for others.
  std::vector<player::BatchPass> batches = {};
  Nanos wait{0};
  Nanos goal{0};                 // within which a request is to be answered; 0: nobody says
  Allocations allocations = {};  // with these it needs no work
  Fault fault = {};
  size_t group = 0;  // those that were made of one entry with a count have one
  std::string entry =
      {};  // that entry's name, which theirs begin with; of any other tenant its own
};

// One at a time or in batches.
bool ServesRequests(const Tenant& tenant);

struct Case {
  std::string name;
  std::string gpu;  // what of the simulated GPU is not as it is by default (gpushare/testing/sim.h)
  std::vector<Tenant> tenants;
  Settings settings = {};
};
// Whether each program of the case has a simulated GPU of its own, on the machine's clock: what starting takes is asked.
bool IsApart(const Case& one);

struct Scenario {
  std::string name;   // of the file, without its extension
  std::string about;  // for people
  const Question* question = nullptr;
  Nanos length = Seconds(4), warm_up = Seconds(1), window = Seconds(1);
  std::vector<Case> cases;
  Settings settings = {};
};

// How a scenario is taken: as it is, or as its `short:` has it, which is for a look at everything.
enum class Length : uint8_t { kFull, kShort };

// Whether settings of the simulated GPU are good. Without one they are found wrong in the run.
using CheckGpu = std::function<absl::Status(const std::string& settings)>;

// `file` names the text in errors; traces are looked for relative to its folder.
absl::StatusOr<Scenario> ParseScenario(std::string_view text, const std::string& file,
                                       const CheckGpu& check_gpu = nullptr,
                                       Length length = Length::kFull);
absl::StatusOr<Scenario> LoadScenario(const std::string& file, const CheckGpu& check_gpu = nullptr,
                                      Length length = Length::kFull);
// Several, no two of one name: results know them by it.
absl::StatusOr<std::vector<Scenario>> LoadScenarios(const std::vector<std::string>& files,
                                                    const CheckGpu& check_gpu = nullptr,
                                                    Length length = Length::kFull);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SCENARIO_H_
