// SPDX-License-Identifier: Apache-2.0
// The common setup of the launch benchmarks: an empty kernel on a simulated device that takes no time, on the wall clock, so
// that no launch waits.
#ifndef GPUSHARE_BENCH_GATE_LAUNCH_BED_H_
#define GPUSHARE_BENCH_GATE_LAUNCH_BED_H_

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "driver/driver.h"

namespace gpushare {

inline constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=1ns blocks_per_sm=16
.visible .entry nothing()
{
  ret;
}
)";

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}
inline void Must(driver::Result result) {
  if (result != driver::Result::kSuccess) {
    std::fprintf(stderr, "driver error %d\n", static_cast<int>(result));
    std::exit(1);
  }
}

inline const driver::LaunchShape kShape{{1, 1, 1}, {32, 1, 1}, 0};

struct LaunchBed {
  std::unique_ptr<driver::Driver> driver = Must(driver::Driver::Open(
      {.path = "sim",
       .simulation = "clock=wall,launch_host=0ns,launch_latency=0ns,call_host=0ns"}));
  driver::Context context = nullptr;
  driver::Function function = nullptr;

  LaunchBed() {
    context = Must(driver->RetainPrimaryContext(0));
    Must(driver->PushContext(context));
    driver::Module module = nullptr;
    Must(driver->LoadModule(&module, kPtx));
    Must(driver->GetFunction(&function, module, "nothing"));
  }
};

}  // namespace gpushare

#endif  // GPUSHARE_BENCH_GATE_LAUNCH_BED_H_
