// SPDX-License-Identifier: Apache-2.0
// Every entry point of NVML that is said to be answered for the share has a hook, and no other.
#include <set>
#include <string>

#include "gtest/gtest.h"
#include "shim/attach_abi.h"

namespace gpushare::shim {
namespace {

TEST(Nvml, HooksAreThoseOfTheList) {
  std::set<std::string> listed, hooked;
#define X(name, is_hooked, is_simulated) \
  if (is_hooked) listed.insert(#name);
#include "driver/nvml.def"
#undef X
  gpushare_shim_driver library = {GPUSHARE_SHIM_ABI_VERSION, 0, nullptr, ""};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  ASSERT_EQ(gpushare_shim_attach_nvml(&library, &hooks, &count), 0);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(hooked.insert(hooks[i].name).second) << hooks[i].name << " is hooked twice";
  }
  EXPECT_EQ(hooked, listed);
  library.version = GPUSHARE_SHIM_ABI_VERSION + 1;
  EXPECT_NE(gpushare_shim_attach_nvml(&library, &hooks, &count), 0);
}

}  // namespace
}  // namespace gpushare::shim
