// SPDX-License-Identifier: Apache-2.0
// Physical memory of virtual memory management that one process gives to another by a descriptor: it is charged once,
// for as long as any process has it, whichever ends first and however.
#include "tests/sim/process_test.h"

namespace gpushare::sim_test {
namespace {

class ProcessVirtualTest : public ProcessTest {
 protected:
  static std::string Of(const char* more = "") {
    return Config(std::string("clock=wall,teardown=0") + more);
  }
  // `a` creates 64 MiB and gives them to `b`, so both have them.
  static void Share(Child& a, Child& b) {
    Give(a, b);
    ASSERT_EQ("0", b.Ask("take " + MiB(64)));
  }
  static void Give(Child& a, Child& b) {
    ASSERT_EQ("0", a.Ask("begin"));
    ASSERT_EQ("0", b.Ask("begin"));
    ASSERT_EQ("0", a.Ask("make " + MiB(64)));
    ASSERT_EQ("0", a.Ask("set 7"));
    Send(a, b);
  }
  static void Send(Child& a, Child& b, const std::string& by = "") {
    ASSERT_EQ("0", b.Ask("listen " + Name() + by));
    ASSERT_EQ("0", a.Ask("give " + Name() + by));
    ASSERT_EQ("0", b.Ask("receive"));
  }
  static std::string Holding(uint64_t first, uint64_t second) {
    return "2 0:" + MiB(first) + " 1:" + MiB(second);
  }
};

TEST_F(ProcessVirtualTest, BothHaveTheSameBytesAndTheyCountOnce) {
  Child a(Of()), b(Of());
  Share(a, b);
  EXPECT_EQ("0 7", b.Ask("get"));
  EXPECT_EQ("0", b.Ask("set 9"));
  EXPECT_EQ("0 9", a.Ask("get"));
  EXPECT_EQ(Holding(64, 0), b.Ask("processes"));
  EXPECT_EQ(MiB(960), a.Ask("left"));
  EXPECT_EQ(MiB(960), b.Ask("left"));
  EXPECT_EQ("ok", a.Ask("check"));
  EXPECT_EQ("0", b.Ask("drop"));
  EXPECT_EQ("0 9", a.Ask("get"));
  EXPECT_EQ(Holding(64, 0), a.Ask("processes"));
  EXPECT_EQ("0", a.Ask("drop"));
  EXPECT_EQ(MiB(1024), b.Ask("left"));
  EXPECT_EQ("ok", b.Ask("check"));
}

TEST_F(ProcessVirtualTest, WhoMadeItMayReleaseItFirst) {
  Child a(Of()), b(Of());
  Share(a, b);
  EXPECT_EQ("0", a.Ask("drop"));
  EXPECT_EQ("0 7", b.Ask("get"));
  EXPECT_EQ(Holding(0, 64), a.Ask("processes"));
  EXPECT_EQ("2", a.Ask("alloc " + MiB(961)));
  EXPECT_EQ("2", b.Ask("alloc " + MiB(961)));
  EXPECT_EQ("0", a.Ask("alloc " + MiB(960)));
  EXPECT_EQ("ok", a.Ask("check"));
  EXPECT_EQ("0", b.Ask("drop"));
  EXPECT_EQ(MiB(64), a.Ask("left"));
}

TEST_F(ProcessVirtualTest, WhoMadeItMayBeKilledFirst) {
  Child a(Of()), b(Of());
  Share(a, b);
  a.Kill();
  EXPECT_EQ("0 7", b.Ask("get"));
  EXPECT_EQ("1 1:" + MiB(64), b.Ask("processes"));
  EXPECT_EQ(MiB(960), b.Ask("left"));
  EXPECT_EQ("ok", b.Ask("check"));
  // Afterwards the memory is charged to a process that still has it, also when it is passed on and the giver is
  // killed.
  Child c(Of());
  ASSERT_EQ("0", c.Ask("begin"));
  Send(b, c, "-on");
  ASSERT_EQ("0", c.Ask("take " + MiB(64)));
  b.Kill();
  EXPECT_EQ("0 7", c.Ask("get"));
  EXPECT_EQ(MiB(960), c.Ask("left"));
  Child d(Of());
  ASSERT_EQ("0", d.Ask("begin"));
  c.Kill();
  EXPECT_EQ(MiB(1024), d.Ask("left"));
  EXPECT_EQ("ok", d.Ask("check"));
}

TEST_F(ProcessVirtualTest, WhoHasItTooMayBeKilled) {
  Child a(Of()), b(Of());
  Share(a, b);
  b.Kill();
  EXPECT_EQ("0 7", a.Ask("get"));
  EXPECT_EQ(MiB(960), a.Ask("left"));
  EXPECT_EQ("0", a.Ask("drop"));
  EXPECT_EQ(MiB(1024), a.Ask("left"));
  EXPECT_EQ("ok", a.Ask("check"));
}

// The driver tears down only the memory that no other process has.
TEST_F(ProcessVirtualTest, WhatIsTornDownIsTheDeadOnesOwn) {
  Child a(Config("clock=wall,teardown=3600s")), b(Config("clock=wall,teardown=3600s"));
  Share(a, b);
  ASSERT_EQ("0", a.Ask("alloc " + MiB(100)));
  a.Kill();
  EXPECT_EQ(MiB(1024 - 164), b.Ask("left"));
  EXPECT_EQ("2 1:" + MiB(64) + " -1:" + MiB(100) + "!", b.Ask("processes"));
  EXPECT_EQ("0", b.Ask("drop"));
  EXPECT_EQ(MiB(1024 - 100), b.Ask("left"));
  EXPECT_EQ("ok", b.Ask("check"));
}

// The descriptor in transit keeps the memory alive.
TEST_F(ProcessVirtualTest, WhoMadeItMayBeGoneBeforeItIsTaken) {
  Child a(Of()), b(Of());
  Give(a, b);
  a.Kill();
  ASSERT_EQ("0", b.Ask("take " + MiB(64)));
  EXPECT_EQ("0 7", b.Ask("get"));
  EXPECT_EQ(MiB(960), b.Ask("left"));
  EXPECT_EQ("ok", b.Ask("check"));
}

TEST_F(ProcessVirtualTest, WhoReleasesItKeepsItWhileItIsOnItsWay) {
  Child a(Of()), b(Of());
  Give(a, b);
  EXPECT_EQ("0", a.Ask("drop"));
  EXPECT_EQ(MiB(960), a.Ask("left"));
  ASSERT_EQ("0", b.Ask("take " + MiB(64)));
  EXPECT_EQ(MiB(960), a.Ask("left"));  // and looks who has the descriptor
  EXPECT_EQ(Holding(0, 64), a.Ask("processes"));
  EXPECT_EQ("0 7", b.Ask("get"));
}

TEST_F(ProcessVirtualTest, ProcessesOfOtherDevicesAreTold) {
  Child a(Of()), alone("sms=100,memory=1GiB,clock=wall"),
      other("shared=" + Name() + "-other,sms=100,memory=1GiB,clock=wall");
  Give(a, alone);
  EXPECT_EQ("801", alone.Ask("take " + MiB(64)));
  ASSERT_EQ("0", other.Ask("begin"));
  Send(a, other, "-other");
  EXPECT_EQ("801", other.Ask("take " + MiB(64)));
  EXPECT_EQ("ok", other.Ask("check"));
}

}  // namespace
}  // namespace gpushare::sim_test
