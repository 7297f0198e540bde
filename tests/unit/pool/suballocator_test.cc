// SPDX-License-Identifier: Apache-2.0
#include "pool/suballocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace gpushare::pool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kMiB = 1 << 20;
constexpr StreamId kA = 0xa, kB = 0xb;

class SuballocatorTest : public ::testing::Test {
 protected:
  ~SuballocatorTest() override { EXPECT_EQ(Check(), ""); }

  std::string Check() const { return std::string(pool_.CheckInvariants().message()); }

  // Adds a segment from the driver if the pool has no room.
  uint64_t Allocate(uint64_t bytes, StreamId stream = kNobody) {
    uint64_t pointer = pool_.Allocate(bytes, stream);
    if (pointer == 0) {
      const Suballocator::Want want = pool_.SegmentFor(bytes);
      pool_.AddSegment(next_, want);
      next_ += want.bytes + 2 * kMiB;
      ++taken_;
      pointer = pool_.Allocate(bytes, stream);
    }
    EXPECT_NE(pointer, 0u) << bytes;
    EXPECT_EQ(Check(), "");
    return pointer;
  }
  void Free(uint64_t pointer, StreamId stream = kNobody) {
    EXPECT_TRUE(pool_.Free(pointer, stream));
    EXPECT_EQ(Check(), "");
  }

  Suballocator pool_;
  uint64_t next_ = uint64_t{0x7f} << 40;
  int taken_ = 0;
};

TEST_F(SuballocatorTest, SizesAtTheEnds) {
  EXPECT_EQ(pool_.Allocate(0, kA), 0u);
  EXPECT_EQ(pool_.Allocate(uint64_t{1} << 63, kA), 0u);
  EXPECT_EQ(pool_.Allocate(UINT64_MAX, kA), 0u);
  EXPECT_EQ(pool_.SegmentFor(UINT64_MAX).bytes, UINT64_MAX);  // so that the driver refuses it
  EXPECT_EQ(pool_.LeastSegmentFor(UINT64_MAX).bytes, UINT64_MAX);
  const uint64_t one = Allocate(1);
  EXPECT_EQ(pool_.SizeOf(one), 512u);
  EXPECT_EQ(one % 512, 0u);
}

TEST_F(SuballocatorTest, SmallRequestsShareASegmentAndLargeOnesAreApart) {
  const uint64_t small = Allocate(1000), other = Allocate(kMiB);
  EXPECT_EQ(taken_, 1);
  EXPECT_EQ(other, small + 1024);
  Allocate(2 * kMiB);
  EXPECT_EQ(taken_, 2);
  EXPECT_EQ(pool_.stats().reserved, 22 * kMiB);
  Allocate(100 * kMiB + 1);
  EXPECT_EQ(pool_.stats().reserved, 124 * kMiB);
}

TEST_F(SuballocatorTest, ARepeatedSizeComesBackFromWhatWasSetApart) {
  const uint64_t first = Allocate(4096, kA), second = Allocate(4096, kA);
  Free(first, kA);
  Free(second, kA);
  EXPECT_EQ(pool_.stats().set_apart, 8192u);
  EXPECT_EQ(Allocate(4096, kA), second);
  EXPECT_EQ(Allocate(4096, kA), first);
  EXPECT_EQ(pool_.stats().set_apart, 0u);
}

TEST_F(SuballocatorTest, WhatWasSetApartIsMergedBeforeARequestFails) {
  std::vector<uint64_t> all;
  for (int i = 0; i < 32; ++i) all.push_back(Allocate(64 << 10));  // fills the segment
  EXPECT_EQ(taken_, 1);
  for (const uint64_t pointer : all) Free(pointer);
  EXPECT_EQ(Allocate(kMiB), all[0]);
  EXPECT_EQ(taken_, 1);
}

// If sizes never repeat, freed blocks are merged, until sizes do repeat.
TEST_F(SuballocatorTest, SettingApartStopsWhereItDoesNotPay) {
  const auto free_and_see = [&](uint64_t bytes) {
    const uint64_t pointer = Allocate(bytes, kA);
    const uint64_t before = pool_.stats().set_apart;
    Free(pointer, kA);
    return pool_.stats().set_apart != before;
  };
  EXPECT_TRUE(free_and_see(512));
  // Growing sizes, each of which merges the blocks of the previous ones.
  for (uint64_t granules = 1; granules <= 1024; ++granules) {
    static_cast<void>(free_and_see(granules * 512));
    if (granules % 8 == 0) static_cast<void>(Allocate(kMiB, kA));
  }
  int apart = 0;
  for (uint64_t granules = 1025; granules <= 1024 + 320; ++granules) {
    apart += free_and_see(granules * 512) ? 1 : 0;
  }
  EXPECT_GT(apart, 0);  // now and then, since it would otherwise never notice repeats
  EXPECT_LT(apart, 32);
  // The same size repeatedly.
  for (int i = 0; i < 10'000; ++i) static_cast<void>(free_and_see(4096));
  apart = 0;
  for (int i = 0; i < 100; ++i) apart += free_and_see(4096) ? 1 : 0;
  EXPECT_EQ(apart, 100);
}

TEST_F(SuballocatorTest, NeighboursMergeBothWays) {
  const uint64_t a = Allocate(2 * kMiB), b = Allocate(2 * kMiB), c = Allocate(2 * kMiB),
                 d = Allocate(2 * kMiB);
  Free(a);
  Free(c);
  EXPECT_EQ(pool_.stats().largest_free, 12 * kMiB);  // the end of the segment
  Free(b);
  EXPECT_EQ(Allocate(6 * kMiB), a);
  Free(d);
  Free(a);
  EXPECT_EQ(pool_.stats().largest_free, 20 * kMiB);
  EXPECT_EQ(pool_.stats().live, 0u);
  EXPECT_EQ(pool_.stats().peak_live, 8 * kMiB);
}

TEST_F(SuballocatorTest, AnotherStreamGetsABlockOnlyWhenTheFirstStreamsWorkIsOver) {
  const uint64_t pointer = Allocate(20 * kMiB, kA);
  Free(pointer, kA);
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kB), 0u);
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kNobody), 0u);
  EXPECT_THAT(pool_.StreamsWithFree(kB), ElementsAre(kA));
  EXPECT_THAT(pool_.StreamsWithFree(kA), IsEmpty());
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kA), pointer);  // the stream's own memory, at once
  Free(pointer, kA);
  pool_.Reached(kA);
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kB), pointer);
  // Memory that is freed on a stream that was made to follow belongs to that stream.
  Free(pointer, kA);
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kB), 0u);
}

TEST_F(SuballocatorTest, AFreeFollowsTheStreamThatItWasAllocatedFor) {
  const uint64_t pointer = Allocate(20 * kMiB, kA), other = Allocate(20 * kMiB, kB);
  Allocate(4096, kB);  // another stream used this last
  EXPECT_TRUE(pool_.Free(pointer));
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kB), 0u);
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kA), pointer);
  // When the stream is gone and its work is over, the memory is available to all.
  pool_.Forget(kB);
  EXPECT_EQ(Check(), "");
  EXPECT_TRUE(pool_.Free(other));
  EXPECT_EQ(pool_.Allocate(20 * kMiB, kA), other);
}

TEST_F(SuballocatorTest, OfAForeignStreamNothingIsKeptUntilItFrees) {
  constexpr StreamId kForeign = kFirstForeign | 7;
  const uint64_t one = Allocate(kMiB, kForeign);
  const uint64_t two = Allocate(kMiB, kForeign);
  EXPECT_EQ(pool_.streams_known(), 0u);
  Free(one, kItsOwn);
  EXPECT_EQ(pool_.streams_known(), 0u);
  Free(two, kForeign);
  EXPECT_EQ(pool_.streams_known(), 1u);
  EXPECT_TRUE(pool_.HasFree(kForeign));
  EXPECT_FALSE(pool_.HasFree(kA));
  EXPECT_EQ(Allocate(kMiB, kForeign), two);
  EXPECT_FALSE(pool_.HasFree(kForeign));
  pool_.Forget(kForeign);
  EXPECT_EQ(pool_.streams_known(), 0u);
  // A stream whose end is reported is known from its first allocation on, so its own frees count as its own.
  const uint64_t own = Allocate(kMiB, kA);
  Free(own, kItsOwn);
  EXPECT_TRUE(pool_.HasFree(kA));
}

TEST_F(SuballocatorTest, FreesAreCountedSoThatALateAnswerIsKnown) {
  EXPECT_EQ(pool_.FreesOf(kA), 0u);
  const uint64_t one = Allocate(4096, kA), two = Allocate(8192, kA);
  Free(one, kA);
  EXPECT_EQ(pool_.FreesOf(kA), 1u);
  pool_.Reached(kA);
  EXPECT_EQ(pool_.FreesOf(kA), 1u);
  Free(two, kA);
  EXPECT_EQ(pool_.FreesOf(kA), 2u);
}

TEST_F(SuballocatorTest, FreeNeighboursOfTwoStreamsMergeWhenBothAreOver) {
  const uint64_t a = Allocate(4 * kMiB, kA), b = Allocate(4 * kMiB, kB);
  EXPECT_EQ(b, a + 4 * kMiB);
  Free(a, kA);
  Free(b, kB);
  EXPECT_EQ(pool_.stats().largest_free, 12 * kMiB);  // the end of the segment
  pool_.Reached(kB);
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(pool_.stats().largest_free, 16 * kMiB);
  pool_.Reached(kA);
  EXPECT_EQ(pool_.stats().largest_free, 20 * kMiB);
}

TEST_F(SuballocatorTest, WhatIsNoLiveAllocationIsNotFreed) {
  const uint64_t pointer = Allocate(4096, kA);
  EXPECT_FALSE(pool_.Free(pointer + 512, kA));
  EXPECT_FALSE(pool_.Free(pointer - 512, kA));
  EXPECT_FALSE(pool_.Free(0, kA));
  EXPECT_FALSE(pool_.Free(UINT64_MAX, kA));
  Free(pointer, kA);
  EXPECT_FALSE(pool_.Free(pointer, kA));  // set apart
  const uint64_t large = Allocate(4 * kMiB, kA);
  Free(large, kA);
  EXPECT_FALSE(pool_.Free(large, kA));  // listed
  EXPECT_EQ(pool_.SizeOf(large), 0u);
}

TEST_F(SuballocatorTest, IdleSegmentsAreGivenBackLargestFirst) {
  const uint64_t small = Allocate(4096, kA), middle = Allocate(4 * kMiB, kA),
                 large = Allocate(64 * kMiB, kB), held = Allocate(32 * kMiB, kB);
  EXPECT_THAT(pool_.TakeIdle(UINT64_MAX), IsEmpty());
  Free(small, kA);
  Free(middle, kA);
  Free(large, kB);
  EXPECT_THAT(pool_.TakeIdle(0), IsEmpty());
  const auto taken = pool_.TakeIdle(kMiB);
  EXPECT_EQ(Check(), "");
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].bytes, 64 * kMiB);
  EXPECT_EQ(taken[0].base, large);
  EXPECT_THAT(pool_.TakeIdle(UINT64_MAX), SizeIs(2));
  EXPECT_EQ(pool_.stats().reserved, 32 * kMiB);
  EXPECT_EQ(pool_.stats().allocations, 1u);
  const auto rest = pool_.TakeAll();
  ASSERT_THAT(rest, SizeIs(1));
  EXPECT_EQ(rest[0].base, held);
  EXPECT_EQ(pool_.stats().reserved, 0u);
  EXPECT_EQ(pool_.stats().live, 0u);
  EXPECT_FALSE(pool_.Free(held, kB));
}

TEST_F(SuballocatorTest, IdleSegmentsAreTakenOneByOne) {
  const uint64_t small = Allocate(4096, kA), held = Allocate(32 * kMiB, kB),
                 large = Allocate(64 * kMiB, kB);
  EXPECT_EQ(pool_.TakeOneIdle().bytes, 0u);
  Free(small, kA);  // set apart
  Free(large, kB);
  EXPECT_EQ(pool_.TakeOneIdle().bytes, 2 * kMiB);
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(pool_.TakeOneIdle().base, large);
  EXPECT_EQ(pool_.TakeOneIdle().bytes, 0u);
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(pool_.stats().reserved, 32 * kMiB);
  Free(held, kB);
}

TEST_F(SuballocatorTest, SegmentsOfStreamsThatAreToBeSparedStay) {
  const uint64_t small = Allocate(4096, kA), of_a = Allocate(32 * kMiB, kA),
                 of_b = Allocate(64 * kMiB, kB);
  Free(small, kA);  // set apart
  Free(of_a, kA);
  Free(of_b, kB);
  EXPECT_THAT(pool_.TakeIdle(UINT64_MAX, {kA, kB}), IsEmpty());
  const auto taken = pool_.TakeIdle(UINT64_MAX, {kA});
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].base, of_b);
  pool_.Reached(kA);
  EXPECT_THAT(pool_.TakeIdle(UINT64_MAX, {kA}), SizeIs(2));
  EXPECT_EQ(Check(), "");
  EXPECT_EQ(pool_.stats().reserved, 0u);
}

TEST_F(SuballocatorTest, WhenThereAreNoMoreSegmentsEitherKindServes) {
  Allocate(19 * kMiB, kA);
  EXPECT_EQ(pool_.Allocate(4096, kA), 0u);
  const uint64_t small = pool_.AllocateAnywhere(4096, kA);
  EXPECT_NE(small, 0u);
  EXPECT_EQ(Check(), "");
  Free(small, kA);
  EXPECT_EQ(pool_.AllocateAnywhere(0, kA), 0u);
  EXPECT_EQ(pool_.AllocateAnywhere(2 * kMiB, kA), 0u);
}

TEST_F(SuballocatorTest, SurplusIsOfTheSameKindAndOnlyWhenMuchIsIdle) {
  Free(Allocate(4096));
  Free(Allocate(30 * kMiB));
  // Alternating small and large requests do not take each other's segments.
  EXPECT_THAT(pool_.TakeSurplus(pool_.SegmentFor(4096)), SizeIs(1));
  const auto taken = pool_.TakeSurplus(pool_.SegmentFor(40 * kMiB));
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].bytes, 30 * kMiB);
  const uint64_t most = Allocate(200 * kMiB);
  Free(Allocate(30 * kMiB));
  EXPECT_THAT(pool_.TakeSurplus(pool_.SegmentFor(11 * kMiB)), IsEmpty());  // a sixth is idle
  Free(most);
  EXPECT_THAT(pool_.TakeSurplus(pool_.SegmentFor(11 * kMiB)), SizeIs(1));
}

TEST_F(SuballocatorTest, TheLeastSegmentServesTheRequest) {
  for (const uint64_t bytes : {uint64_t{1}, kMiB - 1, kMiB, kMiB + 1, 3 * kMiB + 5, 77 * kMiB}) {
    const Suballocator::Want least = pool_.LeastSegmentFor(bytes);
    EXPECT_LT(least.bytes - bytes, 512u);
    EXPECT_EQ(least.large, pool_.SegmentFor(bytes).large);
    pool_.AddSegment(next_, least);
    EXPECT_EQ(pool_.Allocate(bytes, kA), next_) << bytes;
    next_ += 256 * kMiB;
  }
}

}  // namespace
}  // namespace gpushare::pool
