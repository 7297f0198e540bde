// SPDX-License-Identifier: Apache-2.0
// One virtual clock for several processes: order, repeatability, time slices, and the death of the process that has
// the turn.
#include <random>

#include "tests/sim/process_test.h"

namespace gpushare::sim_test {
namespace {

using ProcessClockTest = ProcessTest;

// Independent of the start order on the machine: the second child is started first.
TEST_F(ProcessClockTest, TheEarlierComesFirst) {
  Child b(Config("processes=2,place=1")), a(Config("processes=2,place=0"));
  b.Tell("enter\nbegin\nspend 1000\nalloc " + MiB(600) + "\nleave\nexit");
  a.Tell("enter\nbegin\nspend 1001\nalloc " + MiB(600) + "\nleave\nexit");
  EXPECT_EQ("0; 0; " + At(1000) + "; 0; 0; ", b.Rest());
  EXPECT_EQ("0; 0; " + At(1001) + "; 2; 0; ", a.Rest());
}

TEST_F(ProcessClockTest, OfOneTimeTheLowerPlaceComesFirst) {
  Child b(Config("processes=2,place=1")), a(Config("processes=2,place=0"));
  b.Tell("enter\nbegin\nspend 1000\nalloc " + MiB(600) + "\nleave\nexit");
  a.Tell("enter\nbegin\nspend 1000\nalloc " + MiB(600) + "\nleave\nexit");
  EXPECT_EQ("0; 0; " + At(1000) + "; 2; 0; ", b.Rest());
  EXPECT_EQ("0; 0; " + At(1000) + "; 0; 0; ", a.Rest());
}

TEST_F(ProcessClockTest, RunsRepeat) {
  std::string first;
  for (int run = 0; run < 3; ++run) {
    std::mt19937_64 random(11);
    std::vector<Child> children;
    for (int place = 2; place >= 0; --place) {
      children.emplace_back(Config("processes=3,place=" + std::to_string(place)));
      std::string lines = "enter\nbegin\n";
      for (int i = 0; i < 40; ++i) {
        switch (random() % 4) {
          case 0:
            lines += "spend " + std::to_string(random() % 5000) + "\n";
            break;
          case 1:
            lines += "alloc " + MiB(random() % 200) + "\nleft\n";
            break;
          case 2:
            lines += "free\n";
            break;
          default:
            lines += "work " + std::to_string(random() % 100'000) + " 5\n";
        }
      }
      children.back().Tell(lines + "used\nleave\nexit");
    }
    std::string all;
    for (Child& child : children) all += child.Rest() + "\n";
    if (run == 0) first = all;
    ASSERT_EQ(first, all);
  }
  EXPECT_NE(first.find("0 at "), first.npos) << first;
}

// Two kernels of 10 ms that fill the device, with slices of 2 ms and 100 us for each switch: the first runs in [0,
// 2], [4.2, 6.2] ... [16.8, 18.8], the second between them.
TEST_F(ProcessClockTest, KernelsOfTwoProcessesTakeSlices) {
  Child a(Config("processes=2,place=0")), b(Config("processes=2,place=1"));
  for (Child* child : {&a, &b}) {
    child->Tell("enter\nbegin\nlaunch 10000000 100\nsync\nused\nleave\nexit");
  }
  EXPECT_EQ("0; 0; 0; 0 " + At(18'800'000) + "; 10000000; 0; ", a.Rest());
  EXPECT_EQ("0; 0; 0; 0 " + At(20'900'000) + "; 10000000; 0; ", b.Rest());
}

// Times since the kernel's begin, 2 ns late because of the words that are copied before. A kernel without stamps
// reports nothing.
TEST_F(ProcessClockTest, AKernelTellsWhenTheDeviceWasAnothers) {
  Child a(Config("processes=2,place=0")), b(Config("processes=2,place=1"));
  a.Tell("enter\nbegin\nstamped 10000000 100\nsync\naway\nleave\nexit");
  b.Tell("enter\nbegin\nstamped 3000000 100\nlaunch 3000000 100\nsync\naway\nleave\nexit");
  // b runs in [2.1, 4.1] and [6.3, 7.3]; then the other kernel runs until 8.3, and in [10.5, 12.5].
  EXPECT_EQ(
      "0; 0; 0; 0 " + At(16'600'002) +
          "; 3 told, ran 1000000000 [2000000 4200000] [6200000 8400000] [10400000 12600000]; 0; ",
      a.Rest());
  EXPECT_EQ("0; 0; 0; 0; 0 " + At(12'500'002) + "; 1 told, ran 300000000 [2000000 4200000]; 0; ",
            b.Rest());
}

// Small kernels do not share the device with another process's kernels, however much of it is free.
TEST_F(ProcessClockTest, NothingOverlapsAcrossProcesses) {
  Child a(Config("processes=2,place=0,slice=1ms,slice_switch=0ns")),
      b(Config("processes=2,place=1,slice=1ms,slice_switch=0ns"));
  for (Child* child : {&a, &b}) {
    child->Tell("enter\nbegin\nlaunch 3000000 1\nsync\nleave\nexit");
  }
  EXPECT_EQ("0; 0; 0; 0 " + At(5'000'000) + "; 0; ", a.Rest());
  EXPECT_EQ("0; 0; 0; 0 " + At(6'000'000) + "; 0; ", b.Rest());
}

// A process that is alone is never switched out; a later one waits for the end of the current slice.
TEST_F(ProcessClockTest, OneAloneKeepsTheDevice) {
  Child a(Config("processes=2,place=0")), b(Config("processes=2,place=1"));
  a.Tell("enter\nbegin\nlaunch 7000000 100\nsync\nleave\nexit");
  b.Tell("enter\nbegin\nspend 4500000\nlaunch 1000000 100\nsync\nleave\nexit");
  // a runs in [0, 6] and, after b's [6.1, 7.1], in [7.2, 8.2].
  EXPECT_EQ("0; 0; 0; 0 " + At(8'200'000) + "; 0; ", a.Rest());
  EXPECT_EQ("0; 0; " + At(4'500'000) + "; 0; 0 " + At(7'100'000) + "; 0; ", b.Rest());
}

// At 1 GB/s, 1 MiB takes 1.048576 ms.
TEST_F(ProcessClockTest, ACopyEngineIsOneForAllProcesses) {
  Child a(Config("processes=2,place=0,h2d=1GB/s")), b(Config("processes=2,place=1,h2d=1GB/s"));
  const std::string copies =
      "enter\nbegin\nalloc " + MiB(1) + "\ncopy " + MiB(1) + "\ncopy " + MiB(1) + "\nleave\nexit";
  a.Tell(copies);
  b.Tell(copies);
  EXPECT_EQ("0; 0; 0; 0 " + At(1'048'576) + "; 0 " + At(3'145'728) + "; 0; ", a.Rest());
  EXPECT_EQ("0; 0; 0; 0 " + At(2'097'152) + "; 0 " + At(4'194'304) + "; 0; ", b.Rest());
}

// The engines of different GPUs work independently, and so do copies and kernels.
TEST_F(ProcessClockTest, EachGpuHasItsSlicesAndEngines) {
  const std::string config = "processes=3,devices=2,h2d=1GB/s,place=";
  Child a(Config(config + "0")), b(Config(config + "1")), c(Config(config + "2"));
  a.Tell("enter\nbegin 0\nlaunch 3000000 100\nsync\nleave\nexit");
  b.Tell("enter\nbegin 1\nlaunch 3000000 100\nsync\nleave\nexit");
  c.Tell("enter\nbegin 1\nalloc " + MiB(1) + "\ncopy " + MiB(1) + "\nleave\nexit");
  EXPECT_EQ("0; 0; 0; 0 " + At(3'000'000) + "; 0; ", a.Rest());
  EXPECT_EQ("0; 0; 0; 0 " + At(3'000'000) + "; 0; ", b.Rest());
  EXPECT_EQ("0; 0; 0; 0 " + At(1'048'576) + "; 0; ", c.Rest());
}

TEST_F(ProcessClockTest, WhoDiesWithTheTurnStopsNobody) {
  Child a(Config("processes=2,place=0,teardown=10ms")),
      b(Config("processes=2,place=1,teardown=10ms"));
  a.Tell("enter\nbegin\nspend 5000000\nalloc " + MiB(600) + "\ndie");
  b.Tell("enter\nbegin\nspend 6000000\nleft\nspend 8999999\nleft\nspend 1\nleft\nleave\nexit");
  EXPECT_EQ("0; 0; " + At(5'000'000) + "; 0; ", a.Rest());
  EXPECT_EQ("0; 0; " + At(6'000'000) + "; " + MiB(424) + "; " + At(14'999'999) + "; " + MiB(424) +
                "; " + At(15'000'000) + "; " + MiB(1024) + "; 0; ",
            b.Rest());
}

// The dead process keeps the device until its slice ends; then the waiting process gets it.
TEST_F(ProcessClockTest, TheDeadGiveUpTheDevice) {
  Child a(Config("processes=2,place=0")), b(Config("processes=2,place=1"));
  a.Tell("enter\nbegin\nlaunch 100000000 100\nspend 500000\ndie");
  b.Tell("enter\nbegin\nspend 1000000\nlaunch 1000000 100\nsync\nleave\nexit");
  a.Rest();
  const std::string rest = b.Rest();
  EXPECT_EQ("0; 0; " + At(1'000'000) + "; 0; 0 " + At(2'100'000) + "; 0; ", rest);
}

// The utilization that NVML shows: for each process what it used, and to all processes what each of them used.
TEST_F(ProcessClockTest, EachProcessIsSeenWithWhatItUsed) {
  Child a(Config("place=0,slice_switch=0")), b(Config("place=1,slice_switch=0"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("launch 60000000 100"));
  ASSERT_EQ("0", b.Ask("launch 20000000 100"));
  ASSERT_EQ("0", b.Ask("enter"));
  b.Tell("sync\nspend 210000000\nleave");
  b.Answer();
  EXPECT_EQ(At(210'000'000).substr(0, 3), b.Answer().substr(0, 3));
  EXPECT_EQ("0", b.Answer());
  EXPECT_EQ("1 own:10/0 all:10/0", b.Ask("uses"));  // the other has not looked at its device since
  EXPECT_EQ("2 own:30/0 other:10/0 all:40/0", a.Ask("uses"));
  EXPECT_EQ("2 other:30/0 own:10/0 all:40/0", b.Ask("uses"));
  a.Kill();
  EXPECT_EQ("1 own:10/0 all:10/0", b.Ask("uses"));
  EXPECT_EQ("ok", b.Ask("check"));
}

// Processes are killed at any point: with the turn, without it, or while handing it over.
TEST_F(ProcessClockTest, KillsAtAnyInstructionBlockNobody) {
  const std::string config = Config("teardown=0ns");
  Child stays(config);
  ASSERT_EQ("0", stays.Ask("begin"));
  std::mt19937_64 random(7);
  constexpr int kKills = 200;
  for (int i = 0; i < kKills; i += 2) {
    Child a(config), b(config);
    a.Tell("enter\nbegin\nchurn " + std::to_string(i));
    b.Tell("enter\nbegin\nchurn " + std::to_string(i + 1));
    for (const char* answer : {"0", "0", "churns"}) {
      ASSERT_EQ(answer, a.Answer());
      ASSERT_EQ(answer, b.Answer());
    }
    for (uint64_t turns = random() % 20'000; turns > 0; --turns) {
      asm volatile("");
    }
    a.Kill();
    ASSERT_EQ("ok", stays.Ask("check"));
    b.Kill();
  }
  EXPECT_EQ(MiB(1024), stays.Ask("left"));
  EXPECT_EQ("ok", stays.Ask("check"));
}

}  // namespace
}  // namespace gpushare::sim_test
