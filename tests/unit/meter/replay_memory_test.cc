// SPDX-License-Identifier: Apache-2.0
// The replay where the host has no memory: once a command is appended, nothing that follows needs any.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "meter/graph_shape.h"
#include "meter/replay.h"
#include "tests/contract/failing_memory.h"

namespace gpushare::meter {
namespace {

using work::FailingMemory;

constexpr Replay::Command kKernel = {.cost_ns = 10'000, .footprint = 1};

class ReplayMemoryTest : public ::testing::Test {
 protected:
  // `a` has completed a batch of so many commands.
  void Complete(int commands) {
    for (int i = 0; i < commands; ++i) replay_.Append(a_, kKernel, replay_.now());
    replay_.Boundary(a_);
    replay_.Complete(a_, replay_.now() + Micros(10 * commands));
  }
  // A command of `a` has ended in the model by now.
  void EndInTheModel() {
    replay_.Append(a_, kKernel, replay_.now());
    replay_.Boundary(a_, /*holds=*/false);
    replay_.Append(b_, kKernel, replay_.now() + Micros(10));
    replay_.Boundary(b_);
    replay_.UsedSoFar(b_, replay_.now() + Micros(20));
  }

  Replay replay_{10};
  const Replay::StreamId a_ = replay_.AddStream(0, 0), b_ = replay_.AddStream(1, 0);
};

// The command goes to the front of a queue again, and at some lengths of that there is no room in front.
TEST_F(ReplayMemoryTest, ABatchThatIsFoundToRunOnEndsAsInTheModel) {
  int refused = 0;
  for (int before = 0; before < 40; ++before) {
    SCOPED_TRACE(before);
    for (const bool fails : {true, false}) {
      Complete(1 + before % 2);
      EndInTheModel();
      const int failed = FailingMemory::failed();
      Nanos overrun = Nanos(0);
      Replay::Batch batch;
      {
        std::optional<FailingMemory> none;
        if (fails) none.emplace();
        replay_.Holds(a_);
        overrun = replay_.Overrun(a_);
        batch = replay_.Complete(a_, replay_.now() + Micros(5));
      }
      const bool had_none = FailingMemory::failed() != failed;
      refused += had_none ? 1 : 0;
      EXPECT_EQ(overrun, had_none ? Nanos(0) : Micros(10));
      EXPECT_EQ(batch.commands.size(), 1u);
      EXPECT_EQ(batch.tenant, 0u);
      EXPECT_NEAR(batch.used_ns, had_none ? 10'000 : 15'000, 5'001);
      const Replay::Batch other = replay_.Complete(b_, replay_.now());
      EXPECT_EQ(other.commands.size(), 1u);
      EXPECT_EQ(replay_.pending(a_) + replay_.pending(b_), 0);
    }
  }
  EXPECT_GT(refused, 0);
}

// Two kernels side by side, which the replay keeps in queues of their own.
TEST_F(ReplayMemoryTest, AGraphWithBranchesNeedsNoneEither) {
  const auto shape = std::make_shared<BranchedShape>(
      BranchedShape{{{1, 0.25f}, {0.6f, 0.5f}}, Branches::Of(2, {})});
  for (int i = 0; i < 20; ++i) {
    const Replay::StreamId stream = replay_.AddStream(0, 0);
    for (int graphs = 0; graphs < 2; ++graphs) {
      replay_.AppendGraph(stream, kKernel, shape, replay_.now());
      replay_.Boundary(stream);
    }
    const int failed = FailingMemory::failed();
    {
      const FailingMemory none;
      replay_.Complete(stream, replay_.now() + Micros(12));
      replay_.RemoveStream(stream);  // with a graph that has begun
    }
    EXPECT_EQ(FailingMemory::failed(), failed);
  }
}

TEST_F(ReplayMemoryTest, WhatFollowsAnAppendNeedsNone) {
  Complete(3);
  EndInTheModel();
  replay_.Append(a_, kKernel, replay_.now());
  replay_.Append(b_, kKernel, replay_.now());
  replay_.Boundary(b_);
  const int failed = FailingMemory::failed();
  {
    const FailingMemory none;
    replay_.Stamped(a_, /*found_idle=*/true);
    replay_.Complete(a_, replay_.now() + Micros(1));
    replay_.Abandon(a_);
    replay_.DropBoundary(b_);
    replay_.Complete(b_, replay_.now() + Micros(30));
    replay_.UsedSoFar(b_, replay_.now() + Micros(30));
    replay_.RemoveStream(a_);
    replay_.RemoveStream(b_);
  }
  EXPECT_EQ(FailingMemory::failed(), failed);
}

}  // namespace
}  // namespace gpushare::meter
