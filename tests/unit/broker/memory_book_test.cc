// SPDX-License-Identifier: Apache-2.0
#include "broker/memory_book.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr uint64_t kMiB = 1 << 20;
Time At(int64_t ms) { return Time(Millis(ms)); }

TEST(MemoryBook, WhoIsAloneIsGrantedAllThereIs) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages pages;
  book.Join(pages.seat, changed);
  EXPECT_EQ(pages.granted(), 64 * kMiB);
  EXPECT_EQ(pages.limits.memory_limit.load(), 64 * kMiB);
  EXPECT_EQ(changed.Take().size(), 1u);
}

TEST(MemoryBook, AnUnusedGrantOfOneNeverDeniesAnother) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages first, second;
  book.Join(first.seat, changed);
  book.Join(second.seat, changed);
  first.usage.memory_charged = 10 * kMiB;
  second.Ask(50 * kMiB);
  book.Look(At(0), changed);
  EXPECT_FALSE(second.answered()) << "the first has not given anything back yet";
  first.AnswerRecall();
  book.Look(At(1), changed);
  EXPECT_TRUE(second.answered());
  EXPECT_GE(second.granted(), 50 * kMiB);
  EXPECT_GE(first.granted(), 10 * kMiB);
  EXPECT_LE(first.granted() + second.granted(), 64 * kMiB);
  EXPECT_EQ(book.CheckInvariants(), nullptr);
}

// A process reports its use only now and then, and may have freed memory since.
TEST(MemoryBook, BeforeOneIsRefusedTheOthersAreAskedWhateverTheySaidLast) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages first, second;
  book.Join(first.seat, changed);
  book.Join(second.seat, changed);
  first.usage.memory_charged = 60 * kMiB;
  second.Ask(50 * kMiB);
  book.Look(At(0), changed);
  EXPECT_FALSE(second.answered());
  first.usage.memory_charged = 10 * kMiB;
  first.AnswerRecall();
  book.Look(At(1), changed);
  first.AnswerRecall();
  book.Look(At(2), changed);
  ASSERT_TRUE(second.answered());
  EXPECT_GE(second.granted(), 50 * kMiB);
  // The recall happens only once: memory in use stays.
  second.usage.memory_charged = 50 * kMiB;
  second.Ask(64 * kMiB);
  for (int ms = 3; ms < 8 && !second.answered(); ++ms) {
    first.AnswerRecall();
    book.Look(At(ms), changed);
  }
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(first.granted(), 10 * kMiB);
  EXPECT_LT(second.granted(), 64 * kMiB);
  EXPECT_EQ(book.CheckInvariants(), nullptr);
}

TEST(MemoryBook, WhoDoesNotAnswerIsNotWaitedForLong) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages first, second;
  book.Join(first.seat, changed);
  book.Join(second.seat, changed);
  second.Ask(50 * kMiB);
  const Time next = book.Look(At(0), changed);
  EXPECT_EQ(next, At(100));
  book.Look(next, changed);
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(second.granted(), 0u);
  // If it answers after all, its memory is available to the next request.
  first.AnswerRecall();
  book.Look(At(200), changed);
  second.Ask(40 * kMiB);
  book.Look(At(201), changed);
  EXPECT_GE(second.granted(), 40 * kMiB);
}

TEST(MemoryBook, OfOneThatEndedTheGrantStaysTakenUntilItsMemoryIsFree) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages second;
  auto first = std::make_unique<Pages>();
  MemoryBook::Member* const member = book.Join(first->seat, changed);
  book.Join(second.seat, changed);
  changed.Forget(first->seat);
  book.Leave(member);
  first.reset();  // the book does not look at its pages again
  second.Ask(kMiB);
  book.Look(At(0), changed);
  EXPECT_TRUE(second.answered());
  EXPECT_EQ(second.granted(), 0u);
  book.Free(member, changed);
  second.Ask(kMiB);
  book.Look(At(1), changed);
  EXPECT_GE(second.granted(), kMiB);
  EXPECT_EQ(book.CheckInvariants(), nullptr);
}

TEST(MemoryBook, WhatIsReclaimedIsWaitedForAndNobodyIsRefusedForIt) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages lives, next, small;
  auto dead = std::make_unique<Pages>();
  book.Join(lives.seat, changed);
  MemoryBook::Member* const member = book.Join(dead->seat, changed);
  book.Join(next.seat, changed);
  book.Join(small.seat, changed);
  dead->Ask(40 * kMiB);
  lives.usage.memory_charged = 20 * kMiB;
  book.Look(At(0), changed);
  lives.AnswerRecall();
  book.Look(At(1), changed);
  ASSERT_EQ(dead->granted(), 40 * kMiB);
  lives.usage.memory_charged = 24 * kMiB;
  book.SetLimit(72 * kMiB, changed);  // 8 MiB are free
  changed.Forget(dead->seat);
  book.Leave(member);
  dead.reset();
  book.Look(At(2), changed);
  EXPECT_EQ(next.limits.memory_others.load(), 64 * kMiB);
  book.Reclaim(member, changed);
  EXPECT_EQ(next.limits.memory_reclaiming.load(), 40 * kMiB);
  EXPECT_EQ(next.limits.memory_others.load(), 24 * kMiB) << "it is as good as free";
  // However long the reclaim takes.
  next.Ask(44 * kMiB);
  for (int ms : {3, 500, 5000}) {
    book.Look(At(ms), changed);
    EXPECT_FALSE(next.answered()) << ms;
  }
  // A later request gets what the first one does not need.
  small.Ask(8 * kMiB);
  book.Look(At(5001), changed);
  EXPECT_FALSE(small.answered()) << "the first needs it";
  small.Ask(4 * kMiB);
  book.Look(At(5002), changed);
  EXPECT_TRUE(small.answered());
  EXPECT_EQ(small.granted(), 4 * kMiB);
  EXPECT_EQ(book.CheckInvariants(), nullptr);
  book.Free(member, changed);
  EXPECT_EQ(next.limits.memory_reclaiming.load(), 40 * kMiB)
      << "not before who counts on it is answered";
  book.Look(At(5003), changed);
  EXPECT_TRUE(next.answered());
  EXPECT_EQ(next.granted(), 44 * kMiB);
  EXPECT_EQ(next.limits.memory_reclaiming.load(), 0u);
  EXPECT_EQ(book.CheckInvariants(), nullptr);
}

TEST(MemoryBook, MoreThanIsReclaimedIsRefusedAtOnce) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages lives, next;
  auto dead = std::make_unique<Pages>();
  MemoryBook::Member* const member = book.Join(dead->seat, changed);
  book.Join(lives.seat, changed);
  book.Join(next.seat, changed);
  lives.Ask(32 * kMiB);
  lives.usage.memory_charged = 32 * kMiB;
  book.Look(At(0), changed);
  dead->AnswerRecall();
  book.Look(At(1), changed);
  ASSERT_GE(lives.granted(), 32 * kMiB);
  changed.Forget(dead->seat);
  book.Leave(member);
  book.Reclaim(member, changed);
  next.Ask(48 * kMiB);  // the process that holds the rest is alive
  Time look = At(2);
  for (int ms = 2; ms < 500; ++ms) {
    lives.AnswerRecall();
    book.Look(look = At(ms), changed);
  }
  EXPECT_TRUE(next.answered());
  EXPECT_LT(next.granted(), 48 * kMiB);
}

TEST(MemoryBook, ALowerLimitAsksForWhatIsNotUsed) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages pages;
  book.Join(pages.seat, changed);
  pages.usage.memory_charged = 40 * kMiB;
  book.SetLimit(30 * kMiB, changed);
  book.Look(At(0), changed);
  pages.AnswerRecall();
  book.Look(At(1), changed);
  EXPECT_EQ(pages.granted(), 40 * kMiB) << "what it holds it keeps";
  pages.usage.memory_charged = 20 * kMiB;
  book.Look(At(102), changed);
  pages.AnswerRecall();
  book.Look(At(103), changed);
  EXPECT_EQ(pages.granted(), 30 * kMiB);
}

// Memory that one tenant holds beyond its limit is granted to no other tenant, even within that tenant's quota.
TEST(MemoryBook, BooksOfAGpuGrantNoMoreThanItHas) {
  constexpr uint64_t kStep = 1024 * kMiB;
  MemoryPool pool;
  pool.SetCapacity(16 * kStep);
  int told = 0;
  pool.before_told = [&] { ++told; };
  MemoryBook lowered(12 * kStep, &pool), raised(4 * kStep, &pool);
  Changed changed;
  Pages holds, asks;
  lowered.Join(holds.seat, changed);
  raised.Join(asks.seat, changed);
  EXPECT_EQ(told, 2) << "before the grants were";
  holds.usage.memory_charged = 10 * kStep;
  lowered.SetLimit(2 * kStep, changed);
  raised.SetLimit(14 * kStep, changed);
  asks.Ask(10 * kStep);
  Time now{};
  lowered.Look(now, changed);
  const Time again = raised.Look(now, changed);
  EXPECT_FALSE(asks.answered()) << "somebody was asked for it";
  EXPECT_NE(again, kNever);
  holds.AnswerRecall();
  lowered.Look(now, changed);
  EXPECT_EQ(pool.granted, 14 * kStep);
  raised.Look(again, changed);
  EXPECT_TRUE(asks.answered());
  EXPECT_EQ(asks.granted(), 6 * kStep) << "10 of 16 are not free";
  EXPECT_EQ(pool.granted, 16 * kStep);
  // The memory that is given back goes to the other tenant.
  holds.usage.memory_charged = 0;
  asks.Ask(10 * kStep);
  lowered.Look(again + Seconds(1), changed);
  holds.AnswerRecall();
  lowered.Look(again + Seconds(1), changed);
  raised.Look(again + Seconds(1), changed);
  EXPECT_GE(asks.granted(), 10 * kStep);
  for (const MemoryBook* book : {&lowered, &raised}) EXPECT_EQ(book->CheckInvariants(), nullptr);
}

// A process that answers every recall without giving memory back does not keep the others waiting.
TEST(MemoryBook, AnAnswerThatGivesNothingBackIsNotAskedForWithoutEnd) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  Pages liar, second;
  book.Join(liar.seat, changed);
  book.Join(second.seat, changed);
  second.Ask(50 * kMiB);
  int looks = 0;
  for (int64_t ms = 0; !second.answered() && ms < 1000; ms += 5, ++looks) {
    book.Look(At(ms), changed);
    liar.usage.memory_kept = UINT64_MAX;
    liar.usage.memory_recalled = liar.limits.memory_recall.load();
  }
  EXPECT_TRUE(second.answered());
  EXPECT_LE(looks, 42) << "200 ms";
}

// A process that has its answer reads at once how much of the quota is left.
TEST(MemoryBook, WhatTheOthersHoldIsThereBeforeTheAnswer) {
  Changed changed;
  MemoryPool pool;
  MemoryBook book(64 * kMiB, &pool);
  Pages first, second;
  book.Join(first.seat, changed);
  book.Join(second.seat, changed);
  first.usage.memory_charged = 40 * kMiB;
  second.Ask(20 * kMiB);
  book.Look(At(0), changed);
  ASSERT_FALSE(second.answered());
  first.usage.memory_charged = 42 * kMiB;
  first.AnswerRecall();
  uint64_t others = 0;
  pool.before_told = [&] { others = second.limits.memory_others.load(); };
  book.Look(At(1), changed);
  ASSERT_TRUE(second.answered());
  EXPECT_EQ(others, 42 * kMiB);
}

// A page changes while the book reads it.
TEST(MemoryBook, WhatTheOthersHoldIsOneFigureOfEach) {
  Changed changed;
  MemoryBook book(64 * kMiB);
  std::vector<std::unique_ptr<Pages>> pages;
  for (int i = 0; i < 64; ++i) {
    pages.push_back(std::make_unique<Pages>());
    book.Join(pages.back()->seat, changed);
  }
  Pages& first = *pages.front();
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> times{0};
  std::thread changes([&] {
    for (; !stop; ++times) first.usage.memory_charged = times % 2 * 10 * kMiB;
  });
  uint64_t most = 0;
  for (int i = 0; i < 20'000 || times < 100'000; ++i) {
    book.Look(Time(Nanos(i + 1)), changed);
    most = std::max(most, first.limits.memory_others.load());
  }
  stop = true;
  changes.join();
  EXPECT_EQ(most, 0u) << "the others hold nothing";
}

// Whatever the processes write, the grants never exceed the quota, every request is answered in time, and requests
// that fit beside the memory in use are served.
TEST(MemoryBook, NoPageTakesMoreThanTheQuota) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    Changed changed;
    const uint64_t limit = (1 + random() % 64) * kMiB;
    MemoryBook book(limit);
    std::vector<std::unique_ptr<Pages>> pages;
    std::vector<MemoryBook::Member*> members;
    int64_t ms = 0;
    for (int step = 0; step < 300; ++step) {
      const uint64_t what = random() % 10;
      if (members.size() < 2 || (what == 0 && members.size() < 6)) {
        pages.push_back(std::make_unique<Pages>());
        members.push_back(book.Join(pages.back()->seat, changed));
      } else {
        Pages& some = *pages[random() % pages.size()];
        const size_t i = random() % members.size();
        switch (what) {
          case 1:
            some.Ask(random());
            break;  // nonsense values
          case 2:
          case 3:
            some.Ask(random() % (2 * limit));
            break;
          case 4:
            some.usage.memory_charged = random();
            break;
          case 5:
            some.usage.memory_charged = random() % (some.granted() + 1);
            break;
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
            changed.Forget(pages[i]->seat);
            book.Leave(members[i]);
            book.Free(members[i], changed);
            members.erase(members.begin() + static_cast<ptrdiff_t>(i));
            pages.erase(pages.begin() + static_cast<ptrdiff_t>(i));
        }
      }
      book.Look(At(ms), changed);
      ms += static_cast<int64_t>(random() % 60);
      ASSERT_LE(book.granted(), limit) << "seed " << seed << ", step " << step;
      ASSERT_EQ(book.CheckInvariants(), nullptr) << "seed " << seed << ", step " << step;
    }
    for (int i = 0; i < 10; ++i) book.Look(At(ms += 101), changed);
    for (const auto& one : pages) EXPECT_TRUE(one->answered()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gpushare::broker
