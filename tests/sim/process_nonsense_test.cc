// SPDX-License-Identifier: Apache-2.0
// Nonsense in the memory that processes share, and other things that a process may do to it: no process waits for
// ever.
#include <sys/mman.h>
#include <sys/stat.h>

#include <functional>
#include <random>

#include "sim/processes/layout.h"
#include "tests/sim/process_test.h"

namespace gpushare::sim_test {
namespace {

class ProcessNonsenseTest : public ProcessTest {
 protected:
  static std::string Path() {
    struct stat found;
    const std::string in_memory =
        "/dev/shm/gpushare-sim-" + std::to_string(geteuid()) + "/" + Name();
    return stat(in_memory.c_str(), &found) == 0
               ? in_memory
               : "/tmp/gpushare-sim-" + std::to_string(geteuid()) + "/" + Name();
  }
  // Any program of the same user can do this.
  static void Scribble(const std::function<void(sim::Segment&)>& scribble) {
    const int file = open(Path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    void* const mapped =
        mmap(nullptr, sizeof(sim::Segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    ASSERT_NE(MAP_FAILED, mapped);
    scribble(*static_cast<sim::Segment*>(mapped));
    munmap(mapped, sizeof(sim::Segment));
  }
  // Two processes use the device at the same time while its memory is scribbled on, and then a third one starts.
  static void ExpectTheyGoOn(const std::string& clock,
                             const std::function<void(sim::Segment&)>& scribble) {
    const std::string config = Config("clock=" + clock + ",teardown=0ns,slice=100us");
    Child a(config + ",place=0"), b(config + ",place=1");
    ASSERT_EQ("0", a.Ask("begin"));
    ASSERT_EQ("0", b.Ask("begin"));
    ASSERT_EQ('0', a.Ask("work 1000 3")[0]);
    ASSERT_EQ("0", a.Ask("alloc 4096"));
    Scribble(scribble);
    a.Tell("work 150000 4\ncopy 4096");
    b.Tell("work 150000 4");
    EXPECT_EQ('0', a.Answer()[0]) << clock;
    EXPECT_EQ('0', a.Answer()[0]) << clock;
    EXPECT_EQ('0', b.Answer()[0]) << clock;
  }
};

TEST_F(ProcessNonsenseTest, EachFieldByItself) {
  const std::function<void(sim::Segment&)> all[] = {
      [](sim::Segment& s) { s.gpus[0].owner = 40; },
      [](sim::Segment& s) {
        s.gpus[0].owner = 40, s.gpus[0].contended = 1, s.gpus[0].slice_end = sim::kLatest;
      },
      [](sim::Segment& s) { s.gpus[0].owner = 1000, s.gpus[0].last_owner = 77; },
      [](sim::Segment& s) {
        s.gpus[0].owner = 0, s.gpus[0].contended = 1, s.gpus[0].slice_end = 0;
      },
      [](sim::Segment& s) { s.gpus[0].owner = 1, s.gpus[0].slice_start = sim::kLatest - 1; },
      [](sim::Segment& s) {
        s.gpus[0].owner = 0, s.gpus[0].slice_start = s.gpus[0].slice_end = UINT64_MAX - 1;
      },
      [](sim::Segment& s) { s.gpus[0].engine_end[0] = UINT64_MAX; },
      [](sim::Segment& s) { s.now = UINT64_MAX; },
      [](sim::Segment& s) { s.now = sim::kLastNow; },
      [](sim::Segment& s) { s.now = sim::kLastNow / 2 - 1; },
      [](sim::Segment& s) {
        s.now = sim::kLatest - 1, s.gpus[0].owner = 0, s.gpus[0].contended = 1;
      },
      [](sim::Segment& s) { s.holder = 40; },
      [](sim::Segment& s) { s.holder = 1000; },
      [](sim::Segment& s) { s.holder = 1; },
      [](sim::Segment& s) { s.incarnations = 0; },
      [](sim::Segment& s) { s.places[0].incarnation = 0; },
      [](sim::Segment& s) { s.places[1].incarnation = 0, s.holder = 1; },
      [](sim::Segment& s) { s.places[0].gpus[0].lost_at = 0, s.places[0].turn = 7; },
      [](sim::Segment& s) { s.places[5].incarnation = 77, s.places[5].next_thread = 0; },
      [](sim::Segment& s) {
        s.places[5].incarnation = 77, s.places[5].waits = 1, s.gpus[0].owner = 5;
      },
  };
  for (const auto& scribble : all) {
    SCOPED_TRACE("case " + std::to_string(&scribble - all));
    ExpectTheyGoOn("virtual", scribble);
    ExpectTheyGoOn("wall", scribble);
  }
}

TEST_F(ProcessNonsenseTest, RandomBytes) {
  std::mt19937_64 random(11);
  constexpr size_t kFirst = offsetof(sim::Segment, incarnations);
  constexpr size_t kEnd = offsetof(sim::Segment, places) + 3 * sizeof(sim::ProcessPlace);
  for (int run = 0; run < 40; ++run) {
    SCOPED_TRACE("run " + std::to_string(run));
    ExpectTheyGoOn(run % 4 == 0 ? "wall" : "virtual", [&](sim::Segment& segment) {
      auto* const bytes = reinterpret_cast<volatile unsigned char*>(&segment);
      for (uint64_t left = 1 + random() % 64; left > 0; --left) {
        bytes[kFirst + random() % (kEnd - kFirst)] = static_cast<unsigned char>(random());
      }
    });
  }
}

TEST_F(ProcessNonsenseTest, MemoryOfNobodyIsNotHeldForEver) {
  Child a(Config("clock=wall,teardown=1ms"));
  ASSERT_EQ("0", a.Ask("begin"));
  Scribble([](sim::Segment& s) {
    s.teardowns[3].bytes[0] = uint64_t{1} << 30;
    s.teardowns[3].freed_at = UINT64_MAX;
    s.teardowns[3].incarnation = 1;
  });
  std::string left;
  for (int i = 0; i < 10'000 && left != std::to_string(1024u << 20); ++i) left = a.Ask("left");
  EXPECT_EQ(std::to_string(1024u << 20), left);
}

// With record locks the lock would be gone after the close, and the process would count as dead.
TEST_F(ProcessNonsenseTest, AnotherDescriptorOfTheFileMayBeClosed) {
  Child a(Config("clock=wall,teardown=0ns")), b(Config("clock=wall,teardown=0ns"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + std::to_string(512 << 20)));
  ASSERT_EQ("0", a.Ask("reopen " + Path()));
  EXPECT_EQ(std::to_string(512 << 20), b.Ask("left"));
  EXPECT_EQ("0", a.Ask("alloc " + std::to_string(256 << 20)));
  EXPECT_EQ(std::to_string(256 << 20), b.Ask("left"));
}

TEST_F(ProcessNonsenseTest, AForkedChildDoesNotWriteItsParentsMemory) {
  Child a(Config("clock=wall"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc 1048576"));
  ASSERT_EQ("0", a.Ask("fill 7"));
  ASSERT_EQ("0", a.Ask("fork 9"));
  EXPECT_EQ("0 7", a.Ask("look"));
}

TEST_F(ProcessNonsenseTest, AForkedChildDoesNotKeepItsParentAlive) {
  Child a(Config("clock=wall,teardown=0ns")), b(Config("clock=wall,teardown=0ns"));
  ASSERT_EQ("0", a.Ask("begin"));
  ASSERT_EQ("0", b.Ask("begin"));
  ASSERT_EQ("0", a.Ask("alloc " + std::to_string(512 << 20)));
  ASSERT_EQ("0", a.Ask("leavechild"));
  a.Tell("die");
  a.Reap();
  // The forked child may not have run yet.
  std::string left;
  for (int i = 0; i < 10'000 && left != std::to_string(1024u << 20); ++i) left = b.Ask("left");
  EXPECT_EQ(std::to_string(1024u << 20), left);
}

// A wait is for the latest record at the time of the call, even if a later record completes first.
TEST_F(ProcessNonsenseTest, RecordsOfTwoProcessesAreToldApart) {
  const std::string config = Config("slice=1ms,slice_switch=0ns");
  Child a(config), b(config), c(config);
  for (Child* child : {&a, &b, &c}) ASSERT_EQ("0", child->Ask("begin"));
  const std::string handle = a.Ask("event").substr(2);
  ASSERT_EQ("0", b.Ask("open " + handle));
  ASSERT_EQ("0", c.Ask("open " + handle));
  const uint64_t start = std::stoull(a.Ask("now").substr(3));
  ASSERT_EQ("0", a.Ask("launch 10000000 1"));
  ASSERT_EQ("0", a.Ask("record"));
  ASSERT_EQ("0", c.Ask("follow"));
  ASSERT_EQ("0", b.Ask("launch 500000 1"));
  ASSERT_EQ("0", b.Ask("record"));
  ASSERT_EQ('0', b.Ask("sync")[0]);
  ASSERT_EQ("0", c.Ask("launch 1000 1"));
  const std::string done = c.Ask("sync");
  ASSERT_EQ("0 at ", done.substr(0, 5));
  EXPECT_GE(std::stoull(done.substr(5)) - start, 10'000'000u);
}

}  // namespace
}  // namespace gpushare::sim_test
