// SPDX-License-Identifier: Apache-2.0
// Memory and events that one process shares with another.
#include "tests/sim/process_test.h"

namespace gpushare::sim_test {
namespace {

// The handle from an answer of the form "0 handle".
std::string HandleIn(const std::string& answer) {
  EXPECT_EQ("0 ", answer.substr(0, 2));
  return answer.substr(2);
}

using ProcessIpcTest = ProcessTest;

TEST_F(ProcessIpcTest, BothSeeTheSameBytes) {
  Child a(Config("clock=wall")), b(Config("clock=wall"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc 1000"));  // so that the next does not start a page
  ASSERT_EQ("0", a.Ask("alloc 4096"));
  ASSERT_EQ("0", a.Ask("fill 7"));
  const std::string handle = HandleIn(a.Ask("export"));
  EXPECT_EQ("0", b.Ask("import " + handle));
  EXPECT_EQ("0 7", b.Ask("peek"));
  EXPECT_EQ("0", b.Ask("poke 9"));
  EXPECT_EQ("0 9", b.Ask("peek"));
  EXPECT_EQ("0 9", a.Ask("look"));
  // Only the allocating process is charged.
  EXPECT_EQ("2 0:5096 1:0", b.Ask("processes"));
  // The second opening returns the first one again.
  EXPECT_EQ("0", b.Ask("import " + handle));
  EXPECT_EQ("0", b.Ask("close"));
  EXPECT_EQ("0 9", b.Ask("peek"));
  EXPECT_EQ("0", b.Ask("close"));
  // The exporting process itself cannot open it.
  EXPECT_EQ("201", a.Ask("import " + handle));
  EXPECT_EQ("ok", a.Ask("check"));
}

TEST_F(ProcessIpcTest, MemoryIsZeroAgainWhenItIsAllocatedAnew) {
  Child a(Config("clock=wall"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc 65536"));
  ASSERT_EQ("0", a.Ask("fill 7"));
  ASSERT_EQ("0", a.Ask("free"));
  ASSERT_EQ("0", a.Ask("alloc 65536"));
  EXPECT_EQ("0 0", a.Ask("look"));
}

TEST_F(ProcessIpcTest, NonsenseAndTheDeadAreRefused) {
  Child a(Config("clock=wall")), b(Config("clock=wall"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc 4096"));
  const std::string handle = HandleIn(a.Ask("export"));
  EXPECT_EQ("1", b.Ask("import 00"));
  // Each byte of the handle is corrupted in turn: no harm is done, and memory behind the end is not mapped.
  for (size_t i = 0; i < handle.size(); i += 2) {
    std::string wrong = handle;
    wrong.replace(i, 2, "ff");
    EXPECT_NE("(nothing)", b.Ask("import " + wrong)) << i;
  }
  std::string beyond = handle;
  beyond.replace(2 * 24, 16, "ffffffffffffff7f");
  EXPECT_EQ("205", b.Ask("import " + beyond));
  const std::string event = HandleIn(a.Ask("event"));
  EXPECT_EQ("400", b.Ask("open 00"));
  Child c(Config("clock=wall"));
  ASSERT_EQ("0", c.Ask("begin"));
  a.Kill();
  EXPECT_EQ("205", c.Ask("import " + handle));
  EXPECT_EQ("400", c.Ask("open " + event));
  EXPECT_EQ("ok", b.Ask("check"));
}

// Everything up to `enter` happens at the start of the clock, since calls cost nothing here and no thread waits for
// time to pass.
TEST_F(ProcessIpcTest, StreamsAndThreadsWaitForAnotherProcess) {
  Child a(Config("place=0")), b(Config("place=1"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", b.Ask("open " + HandleIn(a.Ask("event"))));
  EXPECT_EQ("0", b.Ask("query"));  // never recorded
  ASSERT_EQ("0", a.Ask("launch 9000000 100"));
  ASSERT_EQ("0", a.Ask("record"));
  ASSERT_EQ("0", a.Ask("launch 500000 100"));
  EXPECT_EQ("600", b.Ask("query"));
  ASSERT_EQ("0", b.Ask("enter"));
  b.Tell("follow\nlaunch 3000000 100\nawait\nsync\nquery\nleave");
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("0 " + At(9'000'000), b.Answer());
  // The other process's second kernel has the device until 9.5 ms, then comes a switch, then this process's kernel.
  EXPECT_EQ("0 " + At(12'600'000), b.Answer());
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("ok", b.Ask("check"));
}

TEST_F(ProcessIpcTest, TheDeathOfWhoRecordedEndsTheWait) {
  Child a(Config("clock=wall")), b(Config("clock=wall"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", b.Ask("open " + HandleIn(a.Ask("event"))));
  ASSERT_EQ("0", a.Ask("launch 1000000000000 100"));
  ASSERT_EQ("0", a.Ask("record"));
  EXPECT_EQ("600", b.Ask("query"));
  b.Tell("await");
  a.Kill();
  EXPECT_EQ("0 at", b.Answer().substr(0, 4));
}

// An event is destroyed or recorded again while its records are incomplete: each wait is for its own record.
TEST_F(ProcessIpcTest, RecordsAreCounted) {
  Child a(Config("place=0")), b(Config("place=1"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", b.Ask("open " + HandleIn(a.Ask("event"))));
  ASSERT_EQ("0", a.Ask("launch 1000000 100"));
  ASSERT_EQ("0", a.Ask("record"));
  ASSERT_EQ("0", b.Ask("follow"));
  ASSERT_EQ("0", a.Ask("launch 4000000 100"));
  ASSERT_EQ("0", a.Ask("record"));
  ASSERT_EQ("0", a.Ask("destroy"));
  ASSERT_EQ("0", b.Ask("enter"));
  b.Tell("sync\nawait\nleave");
  EXPECT_EQ("0 " + At(1'000'000), b.Answer());
  EXPECT_EQ("0 " + At(5'000'000), b.Answer());
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("ok", b.Ask("check"));
}

}  // namespace
}  // namespace gpushare::sim_test
