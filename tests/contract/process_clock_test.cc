// SPDX-License-Identifier: Apache-2.0
// The process as a tenant on the virtual clock: its books also wait on that clock.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/driver.h"
#include "driver/symbols.h"
#include "shim/attach_abi.h"
#include "shim/hook.h"
#include "shim/process.h"
#include "tests/support/sim_control.h"

namespace gpushare::shim {
namespace {

// A thread that waits for another thread's use of the primary context gives up its turn of the clock, since the other
// thread waits for that turn.
TEST(ProcessClock, ThreadsThatEndAndRetainThePrimaryContextWaitForEachOther) {
  setenv("GPUSHARE_SPEC", "memory=1GiB", 1);
  setenv("GPUSHARE_SIM", "memory=4GiB,sms=100,clock=virtual", 1);
  auto opened = driver::Driver::Open({.path = "sim"});
  ASSERT_TRUE(opened.ok()) << opened.status();
  driver::Driver& driver = **opened;
  const gpushare::testing::SimControl sim(driver);
  void* const handle = dlopen(driver.path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  std::vector<void*> functions;
  for (const driver::Symbol& symbol : driver::Symbols()) {
    functions.push_back(dlsym(handle, std::string(symbol.name).c_str()));
  }
  const gpushare_shim_driver about = {
      GPUSHARE_SHIM_ABI_VERSION, 0, handle, driver.path().c_str(), functions.data(), nullptr};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  ASSERT_EQ(gpushare_shim_attach(&about, &hooks, &count), 0);
  const auto retain =
      reinterpret_cast<CUresult (*)(CUcontext*, CUdevice)>(FindHook("cuDevicePrimaryCtxRetain"));
  const auto release =
      reinterpret_cast<CUresult (*)(CUdevice)>(FindHook("cuDevicePrimaryCtxRelease_v2"));
  const auto reset =
      reinterpret_cast<CUresult (*)(CUdevice)>(FindHook("cuDevicePrimaryCtxReset_v2"));
  int retained = 0, ended = 0;
  sim.thread_enter("test");
  {
    std::vector<std::unique_ptr<base::ClockThread>> threads;
    for (int i = 0; i < 3; ++i) {
      threads.push_back(driver.clock().StartThread("retains", [&] {
        for (int k = 0; k < 100; ++k) {
          CUcontext context = nullptr;
          retained += retain(&context, 0) == CUDA_SUCCESS;
          release(0);
        }
      }));
      threads.push_back(driver.clock().StartThread("resets", [&] {
        for (int k = 0; k < 100; ++k) ended += reset(0) == CUDA_SUCCESS;
      }));
    }
  }
  sim.thread_leave();
  EXPECT_EQ(retained, 300);
  EXPECT_EQ(ended, 300);
}

}  // namespace
}  // namespace gpushare::shim
