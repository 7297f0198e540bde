// SPDX-License-Identifier: Apache-2.0
#include "workload/allocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gpushare::workload {
namespace {

using ::testing::HasSubstr;

void CheckLegal(const AllocationPattern& pattern) {
  std::vector<uint64_t> live(pattern.buffers);
  uint64_t sum = 0, peak = 0;
  uint32_t next = 0;
  for (const AllocationPattern::Step& step : pattern.steps) {
    ASSERT_LT(step.buffer, pattern.buffers);
    if (step.bytes == 0) {
      ASSERT_NE(live[step.buffer], 0u);
      sum -= live[step.buffer];
      live[step.buffer] = 0;
    } else {
      ASSERT_EQ(step.buffer, next++);
      live[step.buffer] = step.bytes;
      sum += step.bytes;
    }
    peak = std::max(peak, sum);
  }
  EXPECT_EQ(next, pattern.buffers);
  EXPECT_EQ(peak, pattern.peak);
}

TEST(AllocationsTest, EveryBufferIsTakenOnceAndWeightsStay) {
  const AllocationPattern gpt = *TransformerTraining({});
  CheckLegal(gpt);
  // GPT-2 small without its position embeddings and last norm: 124 million weights of 14 bytes stay allocated.
  uint64_t left = 0;
  std::vector<uint64_t> live(gpt.buffers);
  for (const auto& step : gpt.steps) live[step.buffer] = step.bytes;
  for (const uint64_t bytes : live) left += bytes;
  EXPECT_NEAR(static_cast<double>(left), 14 * 123.6e6, 14 * 1e6);
  EXPECT_GT(gpt.peak, left);
  CheckLegal(*ConvolutionTraining({}));
}

TEST(AllocationsTest, ActivationsGrowWithTheBatch) {
  const uint64_t one = ConvolutionTraining({.batch = 1})->peak,
                 many = ConvolutionTraining({.batch = 65})->peak;
  // Convolutions and their normalized outputs: 11.1 million activations for each image, twice.
  EXPECT_NEAR(static_cast<double>(many - one) / 64, 4 * 11.1e6, 4e6);
}

TEST(AllocationsTest, IterationsRepeat) {
  const TrainingLoop plain = {.iterations = 3, .evaluate_every = 0, .short_batch_every = 0};
  const AllocationPattern three = *TransformerTraining({.loop = plain});
  const size_t each = (three.steps.size() - three.steady) / 2;
  for (size_t i = 0; i < each; ++i) {
    ASSERT_EQ(three.steps[three.steady + i].bytes, three.steps[three.steady + each + i].bytes);
  }
}

TEST(AllocationsTest, RangesAreChecked) {
  EXPECT_THAT(std::string(TransformerTraining({.batch = 0}).status().message()),
              HasSubstr("batch is 0: allowed are integers from 1 to 4096"));
  EXPECT_FALSE(ConvolutionTraining({.batch = 5000}).ok());
  EXPECT_FALSE(ConvolutionTraining({.loop = {.iterations = 0}}).ok());
  EXPECT_FALSE(TransformerTraining({.loop = {.evaluate_every = -1}}).ok());
}

}  // namespace
}  // namespace gpushare::workload
