// SPDX-License-Identifier: Apache-2.0
// The harness's own use of the simulated GPU that its programs run on: checking settings, and removing shared state that killed
// programs left.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Simulated simulated, Simulated::Load("/usr/lib/gpushare/sim/libcuda.so.1"));
//   GPUSHARE_RETURN_IF_ERROR(simulated.Check("noise=0.03"));
#ifndef GPUSHARE_HARNESS_SIMULATED_H_
#define GPUSHARE_HARNESS_SIMULATED_H_

#include <string>

#include "absl/status/statusor.h"
#include "gpushare/testing/sim.h"

namespace gpushare::harness {

class Simulated {
 public:
  // Loads the library, for good, without creating a GPU. Unavailable: it cannot be loaded.
  static absl::StatusOr<Simulated> Load(const std::string& path);
  Simulated() = default;  // not loaded: accepts all settings

  // InvalidArgument: a setting in a scenario's `gpu:` is wrong, or is one that the harness sets itself.
  absl::Status Check(const std::string& settings) const;
  // Removes the GPUs that processes shared under that name.
  void Forget(const std::string& shared) const;

 private:
  decltype(&gpushare_sim_check) check_ = nullptr;
  decltype(&gpushare_sim_forget_shared) forget_ = nullptr;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SIMULATED_H_
