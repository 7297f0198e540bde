// SPDX-License-Identifier: Apache-2.0

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gpushare/testing/sim.h"
#include "harness/stage/own_symbol.h"
#include "harness/stage/witness.h"

namespace gpushare::harness {
namespace {

class Truth final : public Witness {
 public:
  absl::Status Open(const std::string& path) {
    GPUSHARE_RETURN_IF_ERROR(OpenLibrary(path));
    const bool all = Find(&set_account_, "gpushare_sim_set_account") &&
                     Find(&account_truth_, "gpushare_sim_account_truth") &&
                     Find(&account_sm_time_, "gpushare_sim_account_sm_time") &&
                     Find(&memory_used_, "gpushare_sim_memory_used") &&
                     Find(&inject_, "gpushare_sim_inject");
    return all ? absl::OkStatus()
               : absl::InternalError(absl::StrCat(path, " is not the simulated driver"));
  }

  absl::Status Follow(CUstream_st* stream, uint32_t account, size_t) override {
    set_account_(stream, account);
    return absl::OkStatus();
  }
  bool knows_now() const override { return true; }
  int64_t Used(uint32_t account, bool sm_time) const override {
    if (sm_time) {
      double sm_ns = 0;
      return account_sm_time_(0, account, &sm_ns) == 0 ? std::llround(sm_ns) : 0;
    }
    gpushare_sim_truth truth = {};
    return account_truth_(0, account, &truth) == 0 ? std::llround(truth.used_ns) : 0;
  }
  int64_t Work(uint32_t account) const override {
    gpushare_sim_truth truth = {};
    return account_truth_(0, account, &truth) == 0 ? std::llround(truth.work_ns) : 0;
  }
  uint64_t MemoryUsed() const override { return memory_used_(0); }
  // The simulated GPU does not execute kernels, so the fault is injected.
  absl::Status MakeIllegal(const std::string& kernel, player::Step*) override {
    return Inject(absl::StrCat("illegal_address kernel=", kernel));
  }
  absl::Status MakeEndless(const std::string& kernel, uint32_t, Time, player::Step*) override {
    return Inject(absl::StrCat("hang kernel=", kernel));
  }

 private:
  absl::Status Inject(const std::string& fault) const {
    char why[256] = "";
    if (inject_(fault.c_str(), why, sizeof(why)) == 0) return absl::OkStatus();
    return absl::InternalError(why);
  }
  template <typename Function>
  bool Find(Function* out, const char* name) const {
    *out = reinterpret_cast<Function>(OwnSymbol(library(), name));
    return *out != nullptr;
  }

  decltype(&gpushare_sim_set_account) set_account_ = nullptr;
  decltype(&gpushare_sim_account_truth) account_truth_ = nullptr;
  decltype(&gpushare_sim_account_sm_time) account_sm_time_ = nullptr;
  decltype(&gpushare_sim_memory_used) memory_used_ = nullptr;
  decltype(&gpushare_sim_inject) inject_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Witness>> OpenTruth(const Plan& plan) {
  auto truth = std::make_unique<Truth>();
  GPUSHARE_RETURN_IF_ERROR(truth->Open(plan.driver));
  return truth;
}

}  // namespace gpushare::harness
