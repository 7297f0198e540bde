// SPDX-License-Identifier: Apache-2.0
// What the harness itself asks of the simulated GPU, which its programs run on: whether settings are good, and to forget what
// programs that were ended left.
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
  // Unavailable: it cannot be loaded. It stays loaded; no GPU is made.
  static absl::StatusOr<Simulated> Load(const std::string& path);
  Simulated() = default;  // not loaded: takes whatever it is asked for

  // InvalidArgument: what of a scenario's `gpu:` is wrong; among it what the harness sets itself.
  absl::Status Check(const std::string& settings) const;
  // The GPUs that processes shared by that name.
  void Forget(const std::string& shared) const;

 private:
  decltype(&gpushare_sim_check) check_ = nullptr;
  decltype(&gpushare_sim_forget_shared) forget_ = nullptr;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_SIMULATED_H_
