// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's own interface (gpushare/testing/sim.h), looked up in the driver that is loaded.
#ifndef GPUSHARE_TESTS_SUPPORT_SIM_CONTROL_H_
#define GPUSHARE_TESTS_SUPPORT_SIM_CONTROL_H_

#include <cstdlib>
#include <string>

#include "driver/driver.h"
#include "gpushare/testing/sim.h"

namespace gpushare::testing {

struct SimControl {
  explicit SimControl(const driver::Driver& driver) {
    auto look_up = [&](auto*& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(driver.Symbol(name));
      if (function == nullptr)
        std::abort();  // not the simulated driver: the test is set up wrongly
    };
    look_up(configure, "gpushare_sim_configure");
    look_up(reset, "gpushare_sim_reset");
    look_up(now, "gpushare_sim_now");
    look_up(thread_enter, "gpushare_sim_thread_enter");
    look_up(thread_leave, "gpushare_sim_thread_leave");
    look_up(spend, "gpushare_sim_spend");
    look_up(set_account, "gpushare_sim_set_account");
    look_up(account_truth, "gpushare_sim_account_truth");
    look_up(device_busy, "gpushare_sim_device_busy");
    look_up(calls, "gpushare_sim_calls");
    look_up(pages, "gpushare_sim_pages");
    look_up(inject, "gpushare_sim_inject");
    look_up(set_log, "gpushare_sim_set_log");
  }

  // Resets the simulated GPU to a fresh device with `config`. No other thread may be in a driver call.
  absl::Status Restart(const driver::Driver& driver, const std::string& config) const {
    char error[256] = "";
    if (reset() != 0) return absl::FailedPreconditionError("the simulated GPU is still in use");
    if (configure(config.c_str(), error, sizeof error) != 0) {
      return absl::InvalidArgumentError(error);
    }
    auto* const init = reinterpret_cast<int (*)(unsigned)>(driver.Symbol("cuInit"));
    return driver::ToStatus(static_cast<driver::Result>(init(0)), "cuInit");
  }

  decltype(&gpushare_sim_configure) configure;
  decltype(&gpushare_sim_reset) reset;
  decltype(&gpushare_sim_now) now;
  decltype(&gpushare_sim_thread_enter) thread_enter;
  decltype(&gpushare_sim_thread_leave) thread_leave;
  decltype(&gpushare_sim_spend) spend;
  decltype(&gpushare_sim_set_account) set_account;
  decltype(&gpushare_sim_account_truth) account_truth;
  decltype(&gpushare_sim_device_busy) device_busy;
  decltype(&gpushare_sim_calls) calls;
  decltype(&gpushare_sim_pages) pages;
  decltype(&gpushare_sim_inject) inject;
  decltype(&gpushare_sim_set_log) set_log;
};

}  // namespace gpushare::testing

#endif  // GPUSHARE_TESTS_SUPPORT_SIM_CONTROL_H_
