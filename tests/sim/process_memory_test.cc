// SPDX-License-Identifier: Apache-2.0
// The memory of a GPU that processes share, on the wall clock: one capacity, and the memory of dead processes.
#include <sys/stat.h>

#include <random>

#include "tests/sim/process_test.h"

namespace gpushare::sim_test {
namespace {

using ProcessMemoryTest = ProcessTest;

TEST_F(ProcessMemoryTest, WhatOneHoldsTheOtherCannotHave) {
  Child a(Config("clock=wall,place=0")), b(Config("clock=wall,place=1"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  EXPECT_EQ("0", a.Ask("alloc " + MiB(600)));
  EXPECT_EQ(MiB(424), b.Ask("left"));
  EXPECT_EQ("2", b.Ask("alloc " + std::to_string(424 * kMiB + 1)));
  EXPECT_EQ("0", b.Ask("alloc " + MiB(424)));
  EXPECT_EQ("0", a.Ask("left"));
  EXPECT_EQ("2 0:" + MiB(600) + " 1:" + MiB(424), a.Ask("processes"));
  EXPECT_EQ("2 " + MiB(1024) + " " + MiB(1024), a.Ask("seen"));
  EXPECT_EQ("0", a.Ask("free"));
  EXPECT_EQ(MiB(600), b.Ask("left"));
  EXPECT_EQ("ok", b.Ask("check"));
}

TEST_F(ProcessMemoryTest, ADeadProcessKeepsItsMemoryUntilTheTeardown) {
  Child a(Config("clock=wall,teardown=1000s")), b(Config("clock=wall,teardown=1000s"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + MiB(600)));
  a.Kill();
  EXPECT_EQ(MiB(424), b.Ask("left"));
  EXPECT_EQ("2", b.Ask("alloc " + MiB(425)));
  EXPECT_EQ("2 1:0 -1:" + MiB(600) + "!", b.Ask("processes"));
  EXPECT_EQ("1 0 " + MiB(600), b.Ask("seen"));
  EXPECT_EQ("ok", b.Ask("check"));
}

// The teardown begins with the death, and not when another process first needs the memory.
TEST_F(ProcessMemoryTest, ATeardownBeginsWithTheDeathAlthoughNobodyLooks) {
  const std::string config = Config("clock=wall,teardown=100ms");
  Child a(config), b(config);
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + MiB(600)));
  a.Kill();
  poll(nullptr, 0, 1000);  // ms on the machine's clock, which the teardown uses too
  EXPECT_EQ("0", b.Ask("alloc " + MiB(1024)));
}

TEST_F(ProcessMemoryTest, MemoryOfTheDeadIsFreeAfterTheTeardown) {
  Child a(Config("clock=wall,teardown=0ns")), b(Config("clock=wall,teardown=0ns"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + MiB(600)));
  a.Kill();
  EXPECT_EQ("0", b.Ask("alloc " + MiB(1024)));
  EXPECT_EQ("1 1:" + MiB(1024), b.Ask("processes"));
}

TEST_F(ProcessMemoryTest, AnEndWithoutFreeingIsAnEnd) {
  Child a(Config("clock=wall,teardown=0ns")), b(Config("clock=wall,teardown=0ns"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + MiB(600)));
  a.Tell("exit");
  EXPECT_EQ(0, a.Reap());
  EXPECT_EQ(MiB(1024), b.Ask("left"));
}

TEST_F(ProcessMemoryTest, EachGpuHasItsMemory) {
  const std::string config = "clock=wall,devices=2,teardown=1000s,place=";
  Child a(Config(config + "0")), b(Config(config + "1")), c(Config(config + "2"));
  ASSERT_EQ("0", a.Ask("begin 0"));
  ASSERT_EQ("0", b.Ask("begin 1"));
  ASSERT_EQ("0", c.Ask("begin 1"));
  ASSERT_EQ("0", a.Ask("alloc " + MiB(1000)));
  EXPECT_EQ("0", b.Ask("alloc " + MiB(600)));
  EXPECT_EQ(MiB(24), a.Ask("left"));
  EXPECT_EQ(MiB(424), c.Ask("left"));
  EXPECT_EQ("2", c.Ask("alloc " + MiB(425)));
  EXPECT_EQ("3 0:" + MiB(1000) + " 1:0 2:0", c.Ask("processes 0"));
  EXPECT_EQ("3 0:0 1:" + MiB(600) + " 2:0", c.Ask("processes 1"));
  b.Kill();
  EXPECT_EQ(MiB(424), c.Ask("left"));
  EXPECT_EQ("2 0:" + MiB(1000) + " 2:0", c.Ask("processes 0"));
  EXPECT_EQ("3 0:0 2:0 -1:" + MiB(600) + "!", c.Ask("processes 1"));
  EXPECT_EQ("ok", c.Ask("check"));
}

TEST_F(ProcessMemoryTest, OtherSettingsAreRefused) {
  Child a(Config("clock=wall")), b(Config("clock=wall,memory=2GiB"));
  ASSERT_EQ("0", a.Ask("begin"));
  EXPECT_EQ("1", b.Ask("begin"));
  for (const char* other : {"clock=wall,devices=2", "clock=wall,h2d=2GB/s"}) {
    Child refused(Config(other));
    EXPECT_EQ("1", refused.Ask("begin"));
  }
  Child taken(Config("clock=wall,place=0"));
  EXPECT_EQ("1", taken.Ask("begin"));
}

TEST_F(ProcessMemoryTest, TheLastOneTakesTheFileAway) {
  const std::string config = Config("clock=wall");
  const std::string name = config.substr(7, config.find(',') - 7);
  struct stat found;
  const std::string path = "/dev/shm/gpushare-sim-" + std::to_string(geteuid()) + "/" + name;
  {
    Child a(config);
    ASSERT_EQ("0", a.Ask("begin"));
    if (stat(path.c_str(), &found) != 0) GTEST_SKIP() << "no /dev/shm here: the file is elsewhere";
    EXPECT_EQ(0600u, found.st_mode & 0777u);
    a.Tell("exit");
    EXPECT_EQ(0, a.Reap());
  }
  EXPECT_NE(0, stat(path.c_str(), &found));
}

// Processes are killed at any point, most often while charging: no lock and no byte is left behind, and the surviving
// processes always continue.
TEST_F(ProcessMemoryTest, KillsAtAnyInstructionBlockNobody) {
  const std::string config = Config("clock=wall,teardown=0ns");
  Child stays(config);
  ASSERT_EQ("0", stays.Ask("begin"));
  std::mt19937_64 random(7);
  constexpr int kKills = 200;
  for (int i = 0; i < kKills; i += 2) {
    Child a(config), b(config);
    a.Tell("begin\nchurn " + std::to_string(i));
    b.Tell("begin\nchurn " + std::to_string(i + 1));
    ASSERT_EQ("0", a.Answer());
    ASSERT_EQ("0", b.Answer());
    ASSERT_EQ("churns", a.Answer());
    ASSERT_EQ("churns", b.Answer());
    for (uint64_t turns = random() % 20'000; turns > 0; --turns) {
      asm volatile("");
    }
    a.Kill();
    ASSERT_EQ("ok", stays.Ask("check"));
    if (i % 4 == 0) {
      ASSERT_NE("(nothing)", stays.Ask("alloc " + MiB(1)));
    }
    b.Kill();
  }
  while (stays.Ask("free") == "0") {
  }
  EXPECT_EQ(MiB(1024), stays.Ask("left"));
  EXPECT_EQ("ok", stays.Ask("check"));
}

}  // namespace
}  // namespace gpushare::sim_test
