// SPDX-License-Identifier: Apache-2.0
// The books of a tenant and of its children, which are within its quota.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "broker/memory_book.h"
#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr uint64_t kOneMiB = 1 << 20;
Time InMs(int64_t ms) { return Time(Millis(ms)); }

// A parent with a quota of 64 MiB and two children.
struct FamilyOfBooks {
  explicit FamilyOfBooks(uint64_t first_limit = 48 * kOneMiB, uint64_t second_limit = 48 * kOneMiB)
      : parent(64 * kOneMiB, &pool), first(first_limit, &pool), second(second_limit, &pool) {
    pool.SetCapacity(64 * kOneMiB);
  }
  Time Look(Time now) {
    Time next = kNever;
    for (MemoryBook* const book : {&first, &parent, &second}) {
      next = std::min(next, book->Look(now, changed));
    }
    for (MemoryBook* const book : {&first, &parent, &second}) {
      EXPECT_EQ(book->CheckInvariants(), nullptr) << book->CheckInvariants();
    }
    EXPECT_EQ(gpu.granted, pool.granted);
    return next;
  }

  Changed changed;
  MemoryPool gpu;
  MemoryPool pool{.within = &gpu};
  MemoryBook parent, first, second;
};

TEST(MemoryBookFamilies, AGrantIsWithinBothQuotas) {
  FamilyOfBooks books;
  Pages first, second;
  books.first.Join(first.seat, books.changed);
  EXPECT_EQ(first.granted(), 48 * kOneMiB) << "all of its own quota";
  first.usage.memory_charged = 48 * kOneMiB;
  books.second.Join(second.seat, books.changed);
  EXPECT_EQ(second.granted(), 16 * kOneMiB) << "what is left of the parent's";
  second.Ask(20 * kOneMiB);
  for (int ms = 0; ms < 5; ++ms) {
    books.Look(InMs(ms));
    first.AnswerRecall();
  }
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(second.granted(), 16 * kOneMiB);
  EXPECT_EQ(books.pool.granted, 64 * kOneMiB);
}

TEST(MemoryBookFamilies, AnUnusedGrantOfAChildDeniesNoSibling) {
  FamilyOfBooks books;
  Pages first, second, own;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  books.parent.Join(own.seat, books.changed);
  first.usage.memory_charged = 10 * kOneMiB;
  second.Ask(40 * kOneMiB);
  books.Look(InMs(0));
  EXPECT_FALSE(second.answered()) << "the sibling has not given anything back yet";
  first.AnswerRecall();
  books.Look(InMs(1));
  books.Look(InMs(1));
  ASSERT_TRUE(second.answered());
  EXPECT_GE(second.granted(), 40 * kOneMiB);
  EXPECT_GE(first.granted(), 10 * kOneMiB);
  second.usage.memory_charged = 40 * kOneMiB;
  own.Ask(14 * kOneMiB);  // the parent's own process, for which both are asked
  for (int ms = 2; ms < 5; ++ms) {
    books.Look(InMs(ms));
    first.AnswerRecall();
    second.AnswerRecall();
  }
  EXPECT_TRUE(own.answered());
  EXPECT_GE(own.granted(), 14 * kOneMiB);
}

TEST(MemoryBookFamilies, ASiblingThatDoesNotAnswerIsNotWaitedForLong) {
  FamilyOfBooks books;
  Pages first, second;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  second.Ask(40 * kOneMiB);
  Time now = InMs(0);
  for (int looks = 0; looks < 10; ++looks) {
    const Time next = books.Look(now);
    if (second.answered()) break;
    now = std::max(now + Nanos(1), next);
  }
  EXPECT_TRUE(second.answered());
  EXPECT_LE(now, InMs(201));
  EXPECT_EQ(second.granted(), 16 * kOneMiB);
}

TEST(MemoryBookFamilies, RequestsOfSiblingsAreServedInTheOrderInWhichTheyCame) {
  for (const bool gives : {true, false}) {
    FamilyOfBooks books;
    Pages own, first, second;
    books.parent.Join(own.seat, books.changed);
    own.usage.memory_charged = 48 * kOneMiB;
    books.first.Join(first.seat, books.changed);
    books.second.Join(second.seat, books.changed);
    first.Ask(20 * kOneMiB);
    books.Look(InMs(0));
    own.AnswerRecall();
    books.Look(InMs(1));
    ASSERT_FALSE(first.answered()) << "16 MiB are free";
    second.Ask(4 * kOneMiB);
    books.Look(InMs(2));
    EXPECT_FALSE(second.answered()) << "it would take what the earlier one waits for";
    if (gives) {
      own.usage.memory_charged = 40 * kOneMiB;
      own.AnswerRecall();
      for (int looks = 0; looks < 3; ++looks) {
        books.Look(InMs(3));
        own.AnswerRecall();
      }
      ASSERT_TRUE(first.answered());
      EXPECT_GE(first.granted(), 20 * kOneMiB);
    }
    Time now = InMs(3);
    for (int looks = 0; looks < 10; ++looks) {
      const Time next = books.Look(now);
      if (first.answered() && second.answered()) break;
      if (gives) own.AnswerRecall();
      now = std::max(now + Nanos(1), next);
    }
    ASSERT_TRUE(second.answered());
    EXPECT_LE(now, InMs(410));
    if (gives) {
      EXPECT_GE(second.granted(), 4 * kOneMiB);
    }
  }
}

// The others have as long to answer as for any request, however long the sibling's took.
TEST(MemoryBookFamilies, TheTimeBehindASiblingIsNotTakenFromTheAnswersToItsOwnRecall) {
  FamilyOfBooks books;
  const auto look = [&](int64_t ms) {
    while (books.Look(InMs(ms)) <= InMs(ms)) {
    }
  };
  Pages own, first, second;
  const auto keep_at = [&](uint64_t mib, int64_t ms) {
    own.usage.memory_charged = mib * kOneMiB;
    own.AnswerRecall();
    look(ms);
  };
  books.parent.Join(own.seat, books.changed);
  own.usage.memory_charged = 48 * kOneMiB;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  first.usage.memory_charged = 20 * kOneMiB;  // all that it will get
  first.Ask(20 * kOneMiB);
  look(0);
  keep_at(48, 1);
  second.Ask(10 * kOneMiB);
  look(2);
  ASSERT_FALSE(second.answered()) << "16 MiB are free, for which the earlier one waits";
  keep_at(44, 150);
  ASSERT_TRUE(first.answered());
  ASSERT_EQ(first.granted(), 20 * kOneMiB);
  for (int64_t ms = 151; ms < 230; ++ms) look(ms);
  EXPECT_FALSE(second.answered()) << "the answer to its recall has 100 ms, from 150 on";
  keep_at(34, 230);
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(second.granted(), 10 * kOneMiB);
}

// Whichever of the books is looked at first.
TEST(MemoryBookFamilies, WhoIsRefusedHearsOfItWhenTheSiblingsHaveAnswered) {
  FamilyOfBooks books(32 * kOneMiB, 32 * kOneMiB);
  Pages first, second, own;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  books.parent.Join(own.seat, books.changed);
  for (MemoryBook* const book : {&books.first, &books.second}) {
    book->SetLimit(48 * kOneMiB, books.changed);
  }
  first.usage.memory_charged = first.granted();
  second.usage.memory_charged = second.granted();
  for (Pages* const asks : {&own, &first, &second}) {
    asks->Ask(asks->granted() + kOneMiB);
    for (bool rings = true; rings;) {
      while (books.Look(InMs(1)) <= InMs(1)) {
      }
      rings = false;
      for (Pages* const each : {&first, &second, &own}) {
        rings |= each->limits.memory_recall.load() != each->usage.memory_recalled.load();
        each->AnswerRecall();
      }
    }
    EXPECT_TRUE(asks->answered()) << (asks == &own ? "the parent" : "a child");
  }
}

// A child's own quota is asked back of its own processes, however much its siblings leave.
TEST(MemoryBookFamilies, WhatAChildsQuotaLacksItsSiblingsAreNotAskedFor) {
  FamilyOfBooks books(16 * kOneMiB);
  Pages holds, asks, sibling;
  books.first.Join(holds.seat, books.changed);
  books.first.Join(asks.seat, books.changed);
  books.second.Join(sibling.seat, books.changed);
  holds.usage.memory_charged = 12 * kOneMiB;
  asks.Ask(8 * kOneMiB);
  for (int ms = 0; ms < 3; ++ms) {
    books.Look(InMs(ms));
    holds.AnswerRecall();
  }
  EXPECT_TRUE(asks.answered());
  EXPECT_EQ(asks.granted(), 4 * kOneMiB);
  EXPECT_EQ(sibling.limits.memory_recall.load(), 0u);
  EXPECT_EQ(sibling.granted(), 48 * kOneMiB);
}

// A program sees as free what it could have: the least of what its own quota and its parent's leave.
TEST(MemoryBookFamilies, APageShowsTheLeastOfWhatTheQuotasLeave) {
  FamilyOfBooks books;
  Pages first, second;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  const auto left = [](const Pages& pages) {
    return pages.limits.memory_limit.load() - pages.limits.memory_others.load() -
           pages.usage.memory_charged.load();
  };
  books.Look(InMs(0));
  EXPECT_EQ(left(first), 48 * kOneMiB);
  EXPECT_EQ(left(second), 48 * kOneMiB);
  first.usage.memory_charged = 40 * kOneMiB;
  books.Look(InMs(1));
  books.Look(InMs(2));
  EXPECT_EQ(left(first), 8 * kOneMiB);
  EXPECT_EQ(left(second), 24 * kOneMiB);
}

TEST(MemoryBookFamilies, ADeadSiblingsMemoryIsWaitedFor) {
  FamilyOfBooks books;
  Pages second;
  auto first = std::make_unique<Pages>();
  MemoryBook::Member* const member = books.first.Join(first->seat, books.changed);
  first->usage.memory_charged = 48 * kOneMiB;
  books.second.Join(second.seat, books.changed);
  second.usage.memory_charged = 16 * kOneMiB;
  books.Look(InMs(0));
  books.changed.Forget(first->seat);
  books.first.Leave(member);
  first.reset();
  books.first.Reclaim(member, books.changed);
  EXPECT_EQ(second.limits.memory_reclaiming.load(), 48 * kOneMiB) << "at once, on each page";
  second.Ask(40 * kOneMiB);
  books.Look(InMs(1));
  books.Look(InMs(900));
  EXPECT_FALSE(second.answered()) << "it waits for as long as the driver takes";
  books.first.Free(member, books.changed);
  books.Look(InMs(901));
  EXPECT_TRUE(second.answered());
  EXPECT_GE(second.granted(), 40 * kOneMiB);
  EXPECT_EQ(second.limits.memory_reclaiming.load(), 0u);
}

TEST(MemoryBookFamilies, ALowerQuotaOfTheParentIsAskedBackOfItsChildren) {
  FamilyOfBooks books;
  Pages first, second;
  books.first.Join(first.seat, books.changed);
  books.second.Join(second.seat, books.changed);
  first.usage.memory_charged = 10 * kOneMiB;
  books.pool.SetCapacity(32 * kOneMiB);
  books.parent.SetLimit(32 * kOneMiB, books.changed);
  books.first.SetLimit(32 * kOneMiB, books.changed);
  books.second.SetLimit(32 * kOneMiB, books.changed);
  for (int ms = 0; ms < 500; ms += 50) {
    books.Look(InMs(ms));
    first.AnswerRecall();
    second.AnswerRecall();
  }
  EXPECT_LE(books.pool.granted, 32 * kOneMiB);
  EXPECT_GE(first.granted(), 10 * kOneMiB);
}

// Whatever the processes write, both quotas hold, and who asks is answered.
TEST(MemoryBookFamilies, NoPageTakesMoreThanEitherQuota) {
  struct Process {
    std::unique_ptr<Pages> pages;
    MemoryBook* book;
    MemoryBook::Member* member;
  };
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::mt19937_64 random(seed);
    FamilyOfBooks books((1 + random() % 64) * kOneMiB, (1 + random() % 64) * kOneMiB);
    const std::array<MemoryBook*, 3> all = {&books.parent, &books.first, &books.second};
    std::vector<Process> processes;
    int64_t ms = 0;
    for (int step = 0; step < 300; ++step) {
      const uint64_t what = random() % 10;
      if (processes.size() < 2 || (what == 0 && processes.size() < 6)) {
        Process process{std::make_unique<Pages>(), all[random() % 3], nullptr};
        process.member = process.book->Join(process.pages->seat, books.changed);
        processes.push_back(std::move(process));
      } else {
        const size_t i = random() % processes.size();
        Pages& some = *processes[i].pages;
        switch (what) {
          case 1:
          case 2:
            some.Ask(random() % (what == 1 ? UINT64_MAX : 64 * kOneMiB));
            break;
          case 3:
          case 4:
            some.usage.memory_charged = what == 3 ? random() : random() % (some.granted() + 1);
            break;
          case 5:
          case 6:
          case 7:
            some.AnswerRecall();
            break;
          case 8:
            some.usage.memory_kept = random();
            some.usage.memory_recalled = static_cast<uint32_t>(random());
            break;
          default:
            if (random() % 4 != 0) break;
            books.changed.Forget(some.seat);
            processes[i].book->Leave(processes[i].member);
            if (random() % 2 == 0) processes[i].book->Reclaim(processes[i].member, books.changed);
            processes[i].book->Free(processes[i].member, books.changed);
            processes.erase(processes.begin() + static_cast<ptrdiff_t>(i));
        }
      }
      books.Look(InMs(ms));
      ms += static_cast<int64_t>(random() % 60);
      ASSERT_LE(books.pool.granted, 64 * kOneMiB) << "seed " << seed << ", step " << step;
      for (const MemoryBook* const book : all) ASSERT_LE(book->granted(), book->limit());
    }
    for (int i = 0; i < 20; ++i) books.Look(InMs(ms += 101));
    for (const Process& process : processes) {
      EXPECT_TRUE(process.pages->answered()) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace gpushare::broker
