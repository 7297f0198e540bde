// SPDX-License-Identifier: Apache-2.0
// The configuration text: what is accepted, and the messages for everything else.
#include <cstdlib>

#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("GPUSHARE_SIM");
    unsetenv("CUDA_VISIBLE_DEVICES");
    EXPECT_EQ(0, gpushare_sim_reset());
  }
  std::string Refused(const char* text) {
    char error[160] = "";
    EXPECT_EQ(-1, gpushare_sim_configure(text, error, sizeof(error))) << text;
    return error;
  }
};

TEST_F(ConfigTest, BadTextIsRefusedAndNamed) {
  EXPECT_NE(Refused("speed=9").find("'speed'"), std::string::npos);
  EXPECT_NE(Refused("sms").find("key=value"), std::string::npos);
  for (const char* text : {"sms=0",
                           "sms=-1",
                           "sms=1e3",
                           "sms=99999999999999999999",
                           "memory=1 potato",
                           "memory=0",
                           "memory=-1GiB",
                           "memory=nan",
                           "h2d=0GB/s",
                           "h2d=1e-13GB/s",
                           "call_host=1000000000s",
                           "h2d=5",
                           "h2d=inf GB/s",
                           "launch_host=3",
                           "launch_host=-3us",
                           "launch_host=3 parsec",
                           "noise=-1",
                           "noise=x",
                           "overlap=maybe",
                           "clock=sundial",
                           "compute_capability=9",
                           "devices=1000",
                           "queue_depth=0",
                           "name=",
                           "name=a\xff",
                           "name=a\x1b[31m",
                           "name=\xc3\xa9",
                           "seed=-4",
                           "=4",
                           "sms=\xff\xfe"}) {
    EXPECT_NE(Refused(text).find("'"), std::string::npos) << text;
  }
  EXPECT_EQ(-1, gpushare_sim_configure(nullptr, nullptr, 0));
  EXPECT_EQ(-1, gpushare_sim_configure("sms=0", nullptr, 0));
  const std::string megabyte(1 << 20, 'x');
  EXPECT_EQ(-1, gpushare_sim_configure(megabyte.c_str(), nullptr, 0));
}

TEST_F(ConfigTest, ARefusalNamesTheFieldTheValueAndWhatIsAllowed) {
  const struct {
    const char* text;
    const char* told;
  } cases[] = {
      {"sms=0", "bad value '0' of 'sms'; allowed: 1 to 4096"},
      {"memory=1kB",
       "bad value '1kB' of 'memory'; allowed: 1MiB to 4096GiB, in B, KiB, MiB or GiB"},
      {"h2d=5", "bad value '5' of 'h2d'; allowed: 0.000001GB/s to 1000000GB/s"},
      {"overlap=maybe", "bad value 'maybe' of 'overlap'; allowed: footprint or serial"},
      {"wake_spin=3", "bad value '3' of 'wake_spin'; allowed: 0 to 3600s, in ns, us, ms or s"},
      {"devices=65", "bad value '65' of 'devices'; allowed: 1 to 64"},
  };
  for (const auto& [text, told] : cases) EXPECT_EQ(Refused(text), told);
}

TEST_F(ConfigTest, IsCheckedWithoutBeingSet) {
  char error[256] = "";
  EXPECT_EQ(-1, gpushare_sim_check("sms=0", error, sizeof(error)));
  EXPECT_STREQ(error, "bad value '0' of 'sms'; allowed: 1 to 4096");
  EXPECT_EQ(-1, gpushare_sim_check(nullptr, nullptr, 0));
  EXPECT_EQ(0, gpushare_sim_check("sms=12", nullptr, 0));
  ASSERT_CU(cuInit(0));
  int sms = 0;
  EXPECT_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(sms, 132);
  EXPECT_EQ(0, gpushare_sim_check("sms=13", nullptr, 0));  // at any time
}

TEST_F(ConfigTest, WhatNobodySharedIsNotForgotten) {
  for (const char* name : {"", "never-shared", "../up", "a,sms=1"}) {
    EXPECT_EQ(-1, gpushare_sim_forget_shared(name)) << name;
  }
  EXPECT_EQ(-1, gpushare_sim_forget_shared(nullptr));
}

TEST_F(ConfigTest, UnitsAndSeparatorsAreUnderstood) {
  EXPECT_EQ(0,
            gpushare_sim_configure(" sms = 10 ,, memory=1.5GiB\nlaunch_host=0.5us\n", nullptr, 0));
  ASSERT_CU(cuInit(0));
  size_t bytes = 0;
  EXPECT_CU(cuDeviceTotalMem(&bytes, 0));
  EXPECT_EQ(bytes, 3ull << 29);
}

TEST_F(ConfigTest, TheEnvironmentIsReadAndTheCallWins) {
  ASSERT_EQ(0, setenv("GPUSHARE_SIM", "sms=11,devices=2", 1));
  ASSERT_EQ(0, gpushare_sim_configure("sms=12", nullptr, 0));
  ASSERT_CU(cuInit(0));
  int sms = 0, count = 0;
  EXPECT_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  EXPECT_EQ(sms, 12);
  EXPECT_CU(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 2);
}

TEST_F(ConfigTest, ABadEnvironmentFailsCuInit) {
  ASSERT_EQ(0, setenv("GPUSHARE_SIM", "sms=eleven", 1));
  std::string line;
  gpushare_sim_set_log(
      [](const char* text, void* context) { *static_cast<std::string*>(context) += text; }, &line);
  EXPECT_EQ(cuInit(0), CUDA_ERROR_INVALID_VALUE);
  gpushare_sim_set_log(nullptr, nullptr);
  EXPECT_NE(line.find("GPUSHARE_SIM"), std::string::npos);
  EXPECT_NE(line.find("eleven"), std::string::npos);
}

TEST_F(ConfigTest, ConfigurationComesBeforeCuInit) {
  ASSERT_CU(cuInit(0));
  EXPECT_NE(Refused("sms=5").find("reset"), std::string::npos);
}

TEST_F(ConfigTest, NothingWorksBeforeCuInit) {
  int count = 0;
  CUdevice device;
  EXPECT_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
  CUdeviceptr pointer;
  EXPECT_EQ(cuMemAlloc(&pointer, 10), CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_CU(cuDriverGetVersion(&count));
  EXPECT_EQ(cuInit(1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(gpushare_sim_abi_version(), static_cast<uint32_t>(GPUSHARE_SIM_ABI_VERSION));
}

// As many of the four devices as the list names, in its order, by their position on the PCI bus.
TEST_F(ConfigTest, TheEnvironmentSaysWhichDevicesAreVisible) {
  const struct {
    const char *list, *seen;
  } rows[] = {
      {"0,1,2,3", "1 2 3 4 "},
      {"2", "3 "},
      {" 3 , 1 ", "4 2 "},
      {"GPU-67707573-6861-7265-2d73-696d2d000002,0", "3 1 "},
      {"gpu-67707573-6861-7265-2D73-696d2d000001", "2 "},
      // The list ends at the first entry that names no device or is ambiguous.
      {"1,4,0", "2 "},
      {"1,-1,0", "2 "},
      {"1,,0", "2 "},
      {"1,GPU-67707573,0", "2 "},
      {"1,0x,0", "2 "},
      {"1,1,0", "2 "},
  };
  for (const auto& [list, seen] : rows) {
    ASSERT_EQ(0, setenv("CUDA_VISIBLE_DEVICES", list, 1));
    ASSERT_EQ(0, gpushare_sim_configure("devices=4", nullptr, 0));
    ASSERT_CU(cuInit(0));
    int count = 0;
    ASSERT_CU(cuDeviceGetCount(&count));
    std::string buses;
    for (int i = 0; i < count; ++i) {
      int bus = 0;
      ASSERT_CU(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
      buses += std::to_string(bus) + " ";
    }
    EXPECT_EQ(buses, seen) << list;
    ASSERT_EQ(0, gpushare_sim_reset());
  }
  for (const char* none : {"", "-1", "4", "NoDevFiles"}) {
    ASSERT_EQ(0, setenv("CUDA_VISIBLE_DEVICES", none, 1));
    ASSERT_EQ(0, gpushare_sim_configure("devices=4", nullptr, 0));
    EXPECT_EQ(cuInit(0), CUDA_ERROR_NO_DEVICE) << none;
    ASSERT_EQ(0, gpushare_sim_reset());
  }
}

TEST_F(ConfigTest, AHiddenDeviceIsShownToManagementAndNotUsed) {
  ASSERT_EQ(0, setenv("CUDA_VISIBLE_DEVICES", "1", 1));
  ASSERT_EQ(0, gpushare_sim_configure("devices=2,memory=1GiB", nullptr, 0));
  ASSERT_CU(cuInit(0));
  CUcontext context;
  ASSERT_CU(cuDevicePrimaryCtxRetain(&context, 0));
  ASSERT_CU(cuCtxSetCurrent(context));
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 1 << 20));
  EXPECT_EQ(2, gpushare_sim_device_count());
  for (const unsigned which : {0u, 1u}) {
    gpushare_sim_device_info info{};
    ASSERT_EQ(0, gpushare_sim_get_device_info(static_cast<int>(which), &info));
    EXPECT_EQ(info.memory_used, uint64_t{which} << 20);
    EXPECT_EQ(info.pci_bus, which + 1);
  }
}

}  // namespace
}  // namespace gpushare::sim_test
