// SPDX-License-Identifier: Apache-2.0
// When tenants request memory, and which tenant holds the device's memory then.
#include "harness/stage/asking.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "harness/stage/calls.h"

namespace gpushare::harness {
namespace {

// A clock that advances only during waits.
class JumpingClock final : public base::Clock {
 public:
  Time Now() override { return now_; }
  base::WaitResult Wait(const std::atomic<uint32_t>&, uint32_t, Time deadline, Nanos) override {
    now_ = std::max(now_, deadline);
    if (waited_) waited_();
    return base::WaitResult::kDeadline;
  }
  void WhenAnybodyWaits(std::function<void()> waited) { waited_ = std::move(waited); }
  void Wake(const std::atomic<uint32_t>&, int) override {}
  std::unique_ptr<base::ClockThread> StartThread(std::string, std::function<void()>) override {
    return nullptr;
  }

 private:
  Time now_{};
  std::function<void()> waited_;
};

// A device of 100 bytes, of which one tenant may have `quota`. Memory that is given back stays in use until it is
// collected.
struct Device {
  uint64_t capacity = 100, used = 0, uncollected = 0;
};
class QuotaMemory final : public Memory {
 public:
  QuotaMemory(Device* device, uint64_t quota, bool keeps)
      : device_(*device), quota_(quota), keeps_(keeps) {}

  absl::StatusOr<uint64_t> Allocate(MemoryFamily, uint64_t bytes) override {
    if (breaks) return absl::InternalError("broken");
    device_.used -= std::exchange(device_.uncollected, 0);
    if (held_ + bytes > quota_ || device_.used + bytes > device_.capacity) {
      return absl::ResourceExhaustedError("no");
    }
    held_ += bytes;
    device_.used += bytes;
    return ++last_;
  }
  absl::Status Free(MemoryFamily, uint64_t, uint64_t bytes) override {
    held_ -= bytes;
    (keeps_ ? device_.uncollected += bytes : device_.used -= bytes);
    return absl::OkStatus();
  }
  bool breaks = false;

 private:
  Device& device_;
  const uint64_t quota_;
  const bool keeps_;
  uint64_t held_ = 0, last_ = 0;
};

class AskingTest : public ::testing::Test {
 protected:
  JumpingClock clock_;
  Device device_;
  Asking asking_{clock_, [this] { return device_.used; }};
};

TEST_F(AskingTest, InTurnsAndWithWhatEachHolds) {
  QuotaMemory a(&device_, 30, false), b(&device_, 100, false);
  asking_.Add(&a, {.sizes = {20, 15}, .keep = 4, .every = Millis(2)});
  asking_.Add(&b, {.sizes = {10}, .keep = 2, .every = Millis(1)});
  asking_.Play(Time(Seconds(1)), Time(Seconds(1) + Millis(5)));
  const auto of_a = asking_.Take(0).requests, of_b = asking_.Take(1).requests;
  ASSERT_EQ(of_a.size(), 3u);
  EXPECT_TRUE(of_a[0].granted);
  EXPECT_FALSE(of_a[1].granted);  // 35 with a quota of 30: it gives the 20 back
  EXPECT_EQ(of_a[1].held, 20u);
  EXPECT_EQ(of_a[1].at, Millis(2));
  EXPECT_TRUE(of_a[2].granted);
  EXPECT_EQ(of_a[2].held, 0u);
  EXPECT_EQ(asking_.Take(0).most_bytes, 20u);
  ASSERT_EQ(of_b.size(), 5u);
  EXPECT_EQ(of_b[4].held, 10u);  // it gave the older of its two pieces back before it asked
  EXPECT_EQ(asking_.Take(1).most_bytes, 20u);
}

TEST_F(AskingTest, WhatACallOfOneGivesBackOfAnothersPoolIsNotItsOwn) {
  QuotaMemory pool(&device_, 100, true), plain(&device_, 100, false);
  asking_.Add(&pool, {.sizes = {40, 10}, .keep = 1, .every = Millis(2)});
  asking_.Add(&plain, {.sizes = {25}, .keep = 1, .every = Millis(2)});
  asking_.Play(Time(), Time(Millis(20)));
  EXPECT_EQ(asking_.Take(0).most_bytes, 40u);
  EXPECT_EQ(asking_.Take(1).most_bytes, 25u);
}

TEST_F(AskingTest, WhoCannotAskAnyMoreEndsAndTheOthersGoOn) {
  QuotaMemory a(&device_, 30, false), b(&device_, 100, false);
  a.breaks = true;
  asking_.Add(&a, {.sizes = {20}, .every = Millis(1)});
  asking_.Add(&b, {.sizes = {10}, .every = Millis(1)});
  asking_.Play(Time(), Time(Millis(3)));
  EXPECT_EQ(asking_.Take(0).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(asking_.Take(0).requests.size(), 0u);
  EXPECT_EQ(asking_.Take(1).requests.size(), 3u);
}

TEST_F(AskingTest, OfSeveralProcessesOneCallsAtATime) {
  // Another process is inside a call, during which the device gets 50 bytes more.
  const std::string path = absl::StrCat(::testing::TempDir(), "/asking-turns-", getpid());
  const auto opened = [&path] {
    return base::UniqueFd(open(path.c_str(), O_RDWR | O_CREAT, 0600));
  };
  const base::UniqueFd other = opened();
  ASSERT_EQ(flock(other.get(), LOCK_EX), 0);
  int waits = 0;
  clock_.WhenAnybodyWaits([&] {
    ++waits;
    if (waits == 3) device_.used += 50;
    if (waits == 5) flock(other.get(), LOCK_UN);
  });
  QuotaMemory a(&device_, 100, false);
  Asking asking(
      clock_, [this] { return device_.used; }, opened());
  asking.Add(&a, {.sizes = {20}, .keep = 4, .every = Millis(1)});
  asking.Play(Time(Millis(1)), Time(Millis(2)));
  EXPECT_EQ(asking.Take(0).most_bytes, 20u);
  ASSERT_EQ(asking.Take(0).requests.size(), 1u);
  EXPECT_GT(asking.Take(0).requests[0].at, Nanos(0));  // the time of its turn
  EXPECT_GE(waits, 5);
  EXPECT_EQ(flock(other.get(), LOCK_EX | LOCK_NB), 0) << "the turn was not given back";
  unlink(path.c_str());
}

TEST_F(AskingTest, NobodyAsks) {
  QuotaMemory a(&device_, 30, false);
  asking_.Add(&a, {});
  EXPECT_TRUE(asking_.nobody_asks());
  asking_.Play(Time(), Time(Seconds(1)));
  EXPECT_EQ(asking_.Take(0).requests.size(), 0u);
}

TEST(Calls, TheirCostsAreMediansOfBurstsBesideEachOther) {
  const CallCost cost = CostOf("launch", {200, 300, 1000}, {100, 100, 1000}, 10);
  EXPECT_EQ(cost.ns, 30);
  EXPECT_EQ(cost.bare_ns, 10);
  EXPECT_EQ(cost.ratio, 2);  // the median of 2, 3 and 1: a disturbance affects both sides
  EXPECT_EQ(CostOf("launch", {}, {}, 10).ratio, 0);
}

}  // namespace
}  // namespace gpushare::harness
