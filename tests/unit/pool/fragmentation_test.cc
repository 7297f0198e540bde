// SPDX-License-Identifier: Apache-2.0
// The fraction of reserved memory that serves nobody, for the allocations of training loops. Everything is counted,
// so every run gives the same result.
#include <gtest/gtest.h>

#include <vector>

#include "pool/suballocator.h"
#include "workload/allocations.h"

namespace gpushare::pool {
namespace {

using workload::AllocationPattern;

struct Result {
  SuballocatorStats stats;
  uint64_t segments_given_back = 0;
  uint64_t segments_taken = 0;           // calls to the driver in total
  uint64_t segments_taken_steadily = 0;  // after the first iteration
};

Result Replay(const AllocationPattern& pattern) {
  Result result;
  Suballocator pool;
  std::vector<uint64_t> pointers(pattern.buffers);
  uint64_t next = uint64_t{0x7f} << 40;
  for (size_t i = 0; i < pattern.steps.size(); ++i) {
    const AllocationPattern::Step& step = pattern.steps[i];
    if (step.bytes == 0) {
      EXPECT_TRUE(pool.Free(pointers[step.buffer], 1));
      continue;
    }
    uint64_t& pointer = pointers[step.buffer];
    pointer = pool.Allocate(step.bytes, 1);
    if (pointer != 0) continue;
    const Suballocator::Want want = pool.SegmentFor(step.bytes);
    result.segments_given_back += pool.TakeSurplus(want).size();
    pool.AddSegment(next, want);
    next += want.bytes;
    ++result.segments_taken;
    if (i >= pattern.steady) ++result.segments_taken_steadily;
    pointer = pool.Allocate(step.bytes, 1);
    EXPECT_NE(pointer, 0u);
  }
  EXPECT_EQ(pool.CheckInvariants().message(), "");
  result.stats = pool.stats();
  return result;
}

// The fraction of the peak reservation that the peak of live memory did not need.
double Waste(const SuballocatorStats& stats) {
  return 1 - static_cast<double>(stats.peak_live) / static_cast<double>(stats.peak_reserved);
}

class FragmentationTest : public ::testing::Test {
 protected:
  void Check(const AllocationPattern& pattern) {
    const Result result = Replay(pattern);
    const double waste = Waste(result.stats);
    std::printf(
        "%-28s %6.2f GiB live at most, %6.2f GiB reserved: %4.1f %% of it idle; %zu steps; "
        "segments: %d, "
        "of them %d after the first iteration; %d given back\n",
        pattern.label.c_str(), static_cast<double>(result.stats.peak_live) / (1 << 30),
        static_cast<double>(result.stats.peak_reserved) / (1 << 30), 100 * waste,
        pattern.steps.size(), static_cast<int>(result.segments_taken),
        static_cast<int>(result.segments_taken_steadily),
        static_cast<int>(result.segments_given_back));
    EXPECT_LE(waste, 0.15) << pattern.label;
    EXPECT_GE(result.stats.peak_live, pattern.peak);
    // An iteration that repeats the previous one finds nearly everything there: fewer than one in thirty of the later
    // allocations call the driver.
    EXPECT_LE(result.segments_taken_steadily, (pattern.steps.size() - pattern.steady) / 2 / 30)
        << pattern.label;
  }
};

TEST_F(FragmentationTest, TransformerTraining) {
  for (const int64_t batch : {1, 4, 8, 32}) Check(*workload::TransformerTraining({.batch = batch}));
  Check(*workload::TransformerTraining({.layers = 24,
                                        .hidden = 2048,
                                        .heads = 16,
                                        .sequence = 1024,
                                        .vocabulary = 32'000,
                                        .batch = 4}));
}

TEST_F(FragmentationTest, ConvolutionTraining) {
  for (const int64_t batch : {1, 8, 32, 128})
    Check(*workload::ConvolutionTraining({.batch = batch}));
}

}  // namespace
}  // namespace gpushare::pool
