// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/witness.h"

#include <dlfcn.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "driver/sim_clock.h"

namespace gpushare::harness {

absl::StatusOr<std::unique_ptr<Witness>> Witness::Open(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW);
  if (library == nullptr) return absl::UnavailableError(dlerror());
  std::unique_ptr<Witness> witness(new Witness);
  witness->set_account_ =
      reinterpret_cast<decltype(set_account_)>(dlsym(library, "gpushare_sim_set_account"));
  witness->account_truth_ =
      reinterpret_cast<decltype(account_truth_)>(dlsym(library, "gpushare_sim_account_truth"));
  witness->account_sm_time_ =
      reinterpret_cast<decltype(account_sm_time_)>(dlsym(library, "gpushare_sim_account_sm_time"));
  witness->memory_used_ =
      reinterpret_cast<decltype(memory_used_)>(dlsym(library, "gpushare_sim_memory_used"));
  witness->inject_ = reinterpret_cast<decltype(inject_)>(dlsym(library, "gpushare_sim_inject"));
  witness->library_ = library;
  if (witness->set_account_ == nullptr || witness->account_truth_ == nullptr ||
      witness->account_sm_time_ == nullptr || witness->memory_used_ == nullptr ||
      witness->inject_ == nullptr) {
    return absl::InternalError(absl::StrCat(path, " is not the simulated driver"));
  }
  GPUSHARE_ASSIGN_OR_RETURN(std::unique_ptr<driver::SimClock> clock,
                            driver::SimClock::Attach(library));
  witness->own_clock_ = std::move(clock);
  witness->clock_ = witness->own_clock_ != nullptr ? witness->own_clock_.get() : &base::RealClock();
  return witness;
}

int64_t Witness::Used(uint32_t account, bool sm_time) const {
  if (sm_time) {
    double sm_ns = 0;
    return account_sm_time_(0, account, &sm_ns) == 0 ? std::llround(sm_ns) : 0;
  }
  gpushare_sim_truth truth = {};
  return account_truth_(0, account, &truth) == 0 ? std::llround(truth.used_ns) : 0;
}

absl::Status Witness::MakeFaulty(const std::string& kernel, bool endless) const {
  char why[256] = "";
  const std::string fault = absl::StrCat(endless ? "hang" : "illegal_address", " kernel=", kernel);
  if (inject_(fault.c_str(), why, sizeof(why)) == 0) return absl::OkStatus();
  return absl::InternalError(why);
}

}  // namespace gpushare::harness
