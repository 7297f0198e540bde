// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/witness.h"

#include <dlfcn.h>

#include <utility>

#include "base/status_macros.h"
#include "driver/sim_clock.h"
#include "gpushare/testing/sim.h"
#include "harness/stage/own_symbol.h"

namespace gpushare::harness {

absl::StatusOr<std::unique_ptr<Witness>> Witness::Open(const Plan& plan) {
  return plan.stamps ? OpenStamps(plan) : OpenTruth(plan);
}

absl::Status Witness::OpenLibrary(const std::string& path) {
  library_ = dlopen(path.c_str(), RTLD_NOW);
  if (library_ == nullptr) return absl::UnavailableError(dlerror());
  if (OwnSymbol(library_, "gpushare_sim_abi_version") != nullptr) {
    GPUSHARE_ASSIGN_OR_RETURN(own_clock_, driver::SimClock::Attach(library_));
  }
  clock_ = own_clock_ != nullptr ? own_clock_.get() : &base::RealClock();
  return absl::OkStatus();
}

}  // namespace gpushare::harness
