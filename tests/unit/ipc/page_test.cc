// SPDX-License-Identifier: Apache-2.0
#include "ipc/page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::ipc {
namespace {

Time InTenSeconds() { return base::RealClock().Now() + Seconds(10); }

base::UniqueFd Memory(off_t size, int seals) {
  base::UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), size), 0);
  if (seals != 0) {
    EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  }
  return fd;
}

// Tries every way to write to memory that only the other side may write.
bool CanBeWritten(int fd) {
  void* const page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) munmap(page, kPageBytes);
  const char byte = 1;
  return page != MAP_FAILED || pwrite(fd, &byte, 1, 0) == 1 || ftruncate(fd, 0) == 0 ||
         fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes) == 0;
}

TEST(Page, WhatTheBrokerGrantsTheProcessSees) {
  auto limits = NewLimitsPage();
  ASSERT_TRUE(limits.ok()) << limits.status();
  const auto seen = MapLimits(limits->fd.get());
  ASSERT_TRUE(seen.ok()) << seen.status();
  limits->page->time_granted_ns = 4711;
  limits->page->memory_limit = UINT64_MAX;
  EXPECT_EQ((*seen)->time_granted_ns.load(), 4711);
  EXPECT_EQ((*seen)->memory_limit.load(), UINT64_MAX);
}

TEST(Page, WhatTheProcessUsesTheBrokerSees) {
  auto usage = NewUsagePage();
  ASSERT_TRUE(usage.ok()) << usage.status();
  const auto mine = MapUsage(usage->fd.get());
  ASSERT_TRUE(mine.ok()) << mine.status();
  (*mine)->time_used_ns = 4711;
  EXPECT_EQ(usage->page->time_used_ns.load(), 4711);
}

TEST(Page, TheProcessCannotWriteItsLimits) {
  const auto limits = NewLimitsPage();
  ASSERT_TRUE(limits.ok());
  const auto seen = MapLimits(limits->fd.get());
  ASSERT_TRUE(seen.ok());
  void* const page = const_cast<LimitsPage*>(seen->get());
  EXPECT_NE(mprotect(page, kPageBytes, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(CanBeWritten(limits->fd.get()));
  // Opening the same memory again does not help.
  const std::string path = "/proc/self/fd/" + std::to_string(limits->fd.get());
  const base::UniqueFd again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (again) {
    EXPECT_FALSE(CanBeWritten(again.get()));
  }
  EXPECT_NE(fcntl(limits->fd.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Page, NobodyCanTakeAPageAwayFromUnderItsReader) {
  const auto usage = NewUsagePage();
  ASSERT_TRUE(usage.ok());
  EXPECT_NE(ftruncate(usage->fd.get(), 0), 0);
  EXPECT_NE(ftruncate(usage->fd.get(), 1 << 20), 0);
  // A page with a hole in it reads as zeros.
  const auto mine = MapUsage(usage->fd.get());
  ASSERT_TRUE(mine.ok());
  (*mine)->time_used_ns = 4711;
  ASSERT_EQ(fallocate(usage->fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPageBytes),
            0);
  EXPECT_EQ(usage->page->time_used_ns.load(), 0);
}

TEST(Page, OnlyPagesAreMapped) {
  const int both = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const auto limits = NewLimitsPage();
  const auto usage = NewUsagePage();
  ASSERT_TRUE(limits.ok() && usage.ok());
  EXPECT_FALSE(MapLimits(-1).ok());
  EXPECT_FALSE(MapLimits(STDERR_FILENO).ok());
  EXPECT_FALSE(MapLimits(usage->fd.get()).ok());
  EXPECT_FALSE(MapUsage(limits->fd.get()).ok());
  EXPECT_FALSE(MapUsage(Memory(kPageBytes, 0).get()).ok());
  EXPECT_FALSE(MapUsage(Memory(kPageBytes, F_SEAL_SHRINK | F_SEAL_GROW).get()).ok());
  EXPECT_FALSE(MapUsage(Memory(0, both).get()).ok());
  EXPECT_FALSE(MapUsage(Memory(2 * kPageBytes, both).get()).ok());
  EXPECT_FALSE(MapUsage(Memory(kPageBytes, both).get()).ok());  // zeroes
  const base::UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file && ftruncate(file.get(), kPageBytes) == 0) {
    EXPECT_EQ(MapUsage(file.get()).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Page, OfAnotherVersionIsRefused) {
  base::UniqueFd fd = Memory(kPageBytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const uint32_t begin[] = {kUsageMagic, kPageVersion + 1};
  ASSERT_EQ(pwrite(fd.get(), begin, sizeof(begin), 0), static_cast<ssize_t>(sizeof(begin)));
  EXPECT_EQ(
      MapUsage(fd.get()).status().message(),
      absl::StrCat("a process and the broker are of different versions of gpushare (page ",
                   kPageVersion + 1, ", here ", kPageVersion, "): start anew whichever is older"));
}

TEST(Page, AForkedChildDoesNotHaveIt) {
  const auto limits = NewLimitsPage();
  ASSERT_TRUE(limits.ok());
  const auto seen = MapLimits(limits->fd.get());
  ASSERT_TRUE(seen.ok());
  for (const void* page :
       {static_cast<const void*>(seen->get()), static_cast<const void*>(limits->page.get())}) {
    Child child([page] {
      unsigned char resident;
      return mincore(const_cast<void*>(page), kPageBytes, &resident) != 0 && errno == ENOMEM;
    });
    EXPECT_TRUE(child.Wait());
  }
}

// Each process sleeps on the other's word, one of them through a read-only mapping. A lost wake-up shows as a wait of
// ten seconds.
TEST(Page, ProcessesWakeEachOther) {
  constexpr uint32_t kRounds = 2000;
  const auto limits = NewLimitsPage();
  const auto usage = NewUsagePage();
  ASSERT_TRUE(limits.ok() && usage.ok());
  Child child([&] {
    const auto mine = MapUsage(usage->fd.get());
    const auto seen = MapLimits(limits->fd.get());
    if (!mine.ok() || !seen.ok()) return false;
    for (uint32_t round = 0; round < kRounds; ++round) {
      while ((*seen)->wake.load() == round) {
        if (base::RealClock().WaitShared((*seen)->wake, round, InTenSeconds()) !=
            base::WaitResult::kWoken) {
          return false;
        }
      }
      (*mine)->memory_asked.store(round + 1);
      base::RealClock().WakeShared((*mine)->memory_asked, 1);
    }
    return true;
  });
  bool answered = true;
  for (uint32_t round = 0; answered && round < kRounds; ++round) {
    limits->page->wake.store(round + 1);
    base::RealClock().WakeShared(limits->page->wake, 1);
    while (answered && usage->page->memory_asked.load() == round) {
      answered = base::RealClock().WaitShared(usage->page->memory_asked, round, InTenSeconds()) ==
                 base::WaitResult::kWoken;
    }
  }
  EXPECT_TRUE(answered);
  EXPECT_TRUE(child.Wait());
}

TEST(Page, AWaitEndsAtItsDeadline) {
  const auto limits = NewLimitsPage();
  ASSERT_TRUE(limits.ok());
  base::Clock& clock = base::RealClock();
  EXPECT_EQ(clock.WaitShared(limits->page->wake, 0, clock.Now()), base::WaitResult::kDeadline);
  EXPECT_EQ(clock.WaitShared(limits->page->wake, 1, kNever), base::WaitResult::kWoken);
}

}  // namespace
}  // namespace gpushare::ipc
