// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's ground truth: which tenant had the device.
#ifndef GPUSHARE_CLI_DEMO_DEVICE_TRUTH_H_
#define GPUSHARE_CLI_DEMO_DEVICE_TRUTH_H_

#include <cstdint>

#include "gpushare/runtime.h"
#include "gpushare/stream.h"
#include "gpushare/testing/sim.h"

namespace gpushare::cli {

// Accounts are numbers from 1. On a real GPU every call does nothing or returns 0.
class DeviceTruth {
 public:
  DeviceTruth(const Runtime& runtime, int ordinal)
      : ordinal_(ordinal),
        set_account_(
            runtime.Symbol<decltype(gpushare_sim_set_account)>("gpushare_sim_set_account")),
        account_truth_(
            runtime.Symbol<decltype(gpushare_sim_account_truth)>("gpushare_sim_account_truth")),
        device_busy_(
            runtime.Symbol<decltype(gpushare_sim_device_busy)>("gpushare_sim_device_busy")) {}

  bool known() const { return set_account_ && account_truth_ && device_busy_; }

  void SetAccount(const Stream& stream, uint32_t account) const {
    const auto native = stream.native();
    if (known() && native.ok()) static_cast<void>(set_account_(*native, account));
  }

  // The account's device time until now, in ns.
  double Used(uint32_t account) const {
    gpushare_sim_truth truth = {};
    if (!known() || account_truth_(ordinal_, account, &truth) != 0) return 0;
    return truth.used_ns;
  }

  // The time in which a kernel was resident, and that time weighted by the part of the SMs held, in ns.
  struct Busy {
    double time_ns = 0, sm_ns = 0;
  };
  Busy busy() const {
    Busy busy;
    if (known()) static_cast<void>(device_busy_(ordinal_, &busy.time_ns, &busy.sm_ns));
    return busy;
  }

 private:
  const int ordinal_;
  decltype(gpushare_sim_set_account)* const set_account_;
  decltype(gpushare_sim_account_truth)* const account_truth_;
  decltype(gpushare_sim_device_busy)* const device_busy_;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_DEMO_DEVICE_TRUTH_H_
