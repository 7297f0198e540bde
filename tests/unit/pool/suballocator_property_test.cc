// SPDX-License-Identifier: Apache-2.0
// Random programs with several streams, compared with a plain model: live memory never overlaps, memory goes to
// another stream only after the first one's work was reported to be over, and nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "pool/suballocator.h"

namespace gpushare::pool {
namespace {

constexpr uint64_t kMebi = 1 << 20;

struct Live {
  uint64_t bytes;
  StreamId stream;
};

class Model {
 public:
  void Allocated(uint64_t pointer, uint64_t bytes, StreamId stream) {
    ASSERT_EQ(pointer % kGranule, 0u);
    const auto next = live_.lower_bound(pointer);
    if (next != live_.end()) {
      ASSERT_LE(pointer + bytes, next->first);
    }
    if (next != live_.begin()) {
      ASSERT_LE(std::prev(next)->first + std::prev(next)->second.bytes, pointer);
    }
    const auto in = std::prev(segments_.upper_bound(pointer));
    ASSERT_LE(pointer + bytes, in->first + in->second);
    // Every granule was free or belonged to this stream.
    for (uint64_t at = pointer; at < pointer + bytes; at += kGranule) {
      const auto used = used_.find(at);
      if (used == used_.end()) continue;
      ASSERT_EQ(used->second, stream) << "memory of a stream whose work goes on";
    }
    live_[pointer] = {bytes, stream};
  }
  void Freed(uint64_t pointer, StreamId stream) {
    const uint64_t bytes = live_.at(pointer).bytes;
    for (uint64_t at = pointer; at < pointer + bytes; at += kGranule) {
      if (stream == kNobody) {
        used_.erase(at);
      } else {
        used_[at] = stream;
      }
    }
    live_.erase(pointer);
  }
  void Reached(StreamId stream) {
    std::erase_if(used_, [&](const auto& entry) { return entry.second == stream; });
  }
  void Segment(uint64_t base, uint64_t bytes) { segments_[base] = bytes; }
  void Dropped(const Suballocator::Range& range) {
    ASSERT_EQ(segments_.at(range.base), range.bytes);
    segments_.erase(range.base);
    const auto at = live_.lower_bound(range.base);
    ASSERT_TRUE(at == live_.end() || at->first >= range.base + range.bytes) << "it was not idle";
    used_.erase(used_.lower_bound(range.base), used_.lower_bound(range.base + range.bytes));
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const auto& [pointer, live] : live_) sum += Granules(live.bytes) * kGranule;
    return sum;
  }
  std::map<uint64_t, Live> live_;

 private:
  std::map<uint64_t, StreamId>
      used_;  // by granule: the stream on which it was freed, whose work may go on
  std::map<uint64_t, uint64_t> segments_;
};

class SuballocatorPropertyTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(SuballocatorPropertyTest, RandomPrograms) {
  std::mt19937 random(GetParam());
  SuballocatorOptions options;
  options.quick_blocks = GetParam() % 3 == 0 ? 2 : 64;
  options.quick_most = GetParam() % 4 == 0 ? 0 : kMebi / 4;
  options.small_most = kMebi / 4;
  options.small_segment = kMebi / 2;
  options.large_segment = 2 * kMebi;
  options.segment_unit = kMebi / 4;
  Suballocator pool(options);
  Model model;
  uint64_t next = uint64_t{0x7f} << 40;
  for (int step = 0; step < 3000; ++step) {
    const StreamId stream = random() % 4;
    const uint64_t dice = random() % 100;
    if (dice < 55) {
      // Repeating sizes and others.
      const uint64_t bytes = random() % 2 == 0 ? (1 + random() % 8) * 12'000
                                               : 1 + random() % (random() % 4 ? 40'000 : kMebi);
      uint64_t pointer = pool.Allocate(bytes, stream);
      if (pointer == 0) {
        const Suballocator::Want want =
            random() % 3 ? pool.SegmentFor(bytes) : pool.LeastSegmentFor(bytes);
        pool.AddSegment(next, want);
        model.Segment(next, want.bytes);
        next += want.bytes + (random() % 2) * kMebi;  // some segments are neighbours
        pointer = pool.Allocate(bytes, stream);
      }
      ASSERT_NE(pointer, 0u);
      ASSERT_EQ(pool.SizeOf(pointer), Granules(bytes) * kGranule);
      ASSERT_NO_FATAL_FAILURE(model.Allocated(pointer, bytes, stream));
    } else if (dice < 96) {
      if (model.live_.empty()) continue;
      auto at = model.live_.begin();
      std::advance(at, random() % model.live_.size());
      const uint64_t pointer = at->first;
      const StreamId on = random() % 4 ? at->second.stream : stream;
      const bool own = on == at->second.stream && random() % 2 == 0;
      model.Freed(pointer, on);
      ASSERT_TRUE(pool.Free(pointer, own ? kItsOwn : on));
    } else if (dice < 99) {
      if (random() % 2 == 0) {
        pool.Reached(stream);
      } else {
        pool.Forget(stream);  // the program creates another stream with the same number
        for (auto& [pointer, live] : model.live_) {
          if (live.stream == stream) live.stream = kNobody;
        }
      }
      model.Reached(stream);
    } else {
      for (const auto& range : pool.TakeIdle(random() % 2 ? 1 : UINT64_MAX)) {
        ASSERT_NO_FATAL_FAILURE(model.Dropped(range));
      }
    }
    if (step % 10 == 0) {
      ASSERT_EQ(pool.CheckInvariants().message(), "") << "step " << step;
      ASSERT_EQ(pool.stats().live, model.bytes());
    }
  }
  // When everything is freed and over, each segment is one block and can be released.
  while (!model.live_.empty()) {
    const uint64_t pointer = model.live_.begin()->first;
    model.Freed(pointer, 1);
    ASSERT_TRUE(pool.Free(pointer, 1));
  }
  for (StreamId stream = 1; stream < 4; ++stream) pool.Reached(stream);
  EXPECT_EQ(pool.CheckInvariants().message(), "");
  const uint64_t segments = pool.stats().segments;
  EXPECT_EQ(pool.TakeIdle(UINT64_MAX).size(), segments);
  EXPECT_EQ(pool.stats().reserved, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SuballocatorPropertyTest, ::testing::Range(1u, 13u));

}  // namespace
}  // namespace gpushare::pool
