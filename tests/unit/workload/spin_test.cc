// SPDX-License-Identifier: Apache-2.0
#include "workload/spin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/env.h"

namespace gpushare::workload {
namespace {

using ::testing::HasSubstr;

KernelTrace OddNames() {
  KernelTrace trace("sample");
  trace.Add("void at::native::(anonymous namespace)::f<float, 4>", Bound::kMemory, 12, Micros(3));
  trace.Add("Conv", Bound::kCompute, 98, Micros(100));
  trace.Add("Conv ", Bound::kCompute, 98, Micros(100));  // the same once made an identifier
  trace.Add("\xc3\xa4 \"quoted\" {", Bound::kUnknown, 1, Micros(1));
  return trace;
}

TEST(SpinTest, OneEntryForEachName) {
  const auto module = MakeSpinModule(OddNames());
  ASSERT_TRUE(module.ok()) << module.status();
  ASSERT_EQ(module->entries.size(), 4u);
  EXPECT_EQ(std::set<std::string>(module->entries.begin(), module->entries.end()).size(), 4u);
  for (const std::string& entry : module->entries) {
    EXPECT_THAT(module->ptx, HasSubstr("//gpushare.sim cost=param:0 blocks_per_sm=1 stamps=param:2 "
                                       "away=yes\n.visible .entry " +
                                       entry + "("));
    EXPECT_THAT(entry, ::testing::MatchesRegex("spin_[0-9]+_[A-Za-z0-9_]*"));
  }
}

TEST(SpinTest, TooManyNamesAreAnError) {
  KernelTrace trace("many");
  for (size_t i = 0; i <= kMaxSpinEntries; ++i) {
    trace.Add("k" + std::to_string(i), Bound::kUnknown, 1, Nanos(1));
  }
  const auto module = MakeSpinModule(trace);
  ASSERT_FALSE(module.ok());
  EXPECT_THAT(std::string(module.status().message()), HasSubstr("10000"));
}

TraceKernel Kernel(int32_t sms, Nanos duration) { return {0, Bound::kUnknown, sms, duration}; }

TEST(SpinTest, FootprintIsTheGrid) {
  const SpinLaunch launch =
      SpinLaunchOf(Kernel(98, Micros(100)), {.sms = 132, .shared_per_sm = 228 << 10});
  EXPECT_EQ(launch.grid, 98u);
  EXPECT_EQ(launch.duration_ns, 100'000u);
  EXPECT_EQ(launch.block_ns, 100'000u);
  // Two blocks do not fit on an SM.
  EXPECT_GT(2 * launch.shared_bytes, 228u << 10);
  EXPECT_LE(launch.shared_bytes, 227u << 10);
}

TEST(SpinTest, WavesShareTheDuration) {
  const SpinLaunch launch = SpinLaunchOf(Kernel(265, Micros(90)), {.sms = 132});
  EXPECT_EQ(launch.grid, 265u);
  EXPECT_EQ(launch.duration_ns, 90'000u);
  EXPECT_EQ(launch.block_ns, 30'000u);
  EXPECT_EQ(launch.block, 1024u);
  EXPECT_EQ(launch.shared_bytes, 0u);
}

TEST(SpinTest, ShortWavesAreMerged) {
  const SpinLaunch launch =
      SpinLaunchOf(Kernel(75'264, Micros(12)), {.sms = 132, .least_wave = Micros(5)});
  EXPECT_EQ(launch.grid, 264u);
  EXPECT_EQ(launch.block_ns, 6'000u);
  EXPECT_EQ(SpinLaunchOf(Kernel(75'264, Micros(2)), {.sms = 132}).grid, 132u);
  EXPECT_EQ(SpinLaunchOf(Kernel(1, Nanos(1)), {.sms = 132}).block_ns, 1u);
}

TEST(SpinTest, SharedMemoryKeepsBlocksApartOnEveryKnownGpu) {
  int known = 0;
  for (int major = 7; major <= 12; ++major) {
    for (int minor = 0; minor <= 9; ++minor) {
      const size_t shared = SharedPerSm(major, minor);
      if (shared == 0) continue;
      ++known;
      const SpinLaunch launch =
          SpinLaunchOf(Kernel(1, Micros(1)), {.sms = 4, .shared_per_sm = shared});
      EXPECT_GT(2 * size_t{launch.shared_bytes}, shared);
      EXPECT_LE(launch.shared_bytes, shared - 1024) << "a block may have all but 1 KiB";
    }
  }
  EXPECT_GE(known, 9);
  EXPECT_EQ(SharedPerSm(3, 5), 0u);
}

// NVIDIA's assembler accepts the text as PTX, if the assembler is installed.
TEST(SpinTest, AssemblerAcceptsIt) {
  std::string ptxas = base::GetEnv("GPUSHARE_PTXAS").value_or("/usr/local/cuda/bin/ptxas");
  if (::access(ptxas.c_str(), X_OK) != 0)
    GTEST_SKIP() << "no ptxas at " << ptxas << " (GPUSHARE_PTXAS)";
  const auto module = MakeSpinModule(OddNames());
  ASSERT_TRUE(module.ok());
  const std::string stem = ::testing::TempDir() + "gpushare_spin_" + std::to_string(::getpid());
  std::ofstream(stem + ".ptx") << module->ptx;
  for (const char* arch : {"sm_80", "sm_90"}) {
    const std::string command =
        "'" + ptxas + "' -arch " + arch + " '" + stem + ".ptx' -o '" + stem + ".cubin'";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;  // NOLINT(concurrency-mt-unsafe)
  }
  std::filesystem::remove(stem + ".ptx");
  std::filesystem::remove(stem + ".cubin");
}

}  // namespace
}  // namespace gpushare::workload
