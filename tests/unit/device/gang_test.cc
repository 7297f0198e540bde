// SPDX-License-Identifier: Apache-2.0
#include "gpushare/gang.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/device/device_test.h"

namespace gpushare {
namespace {

constexpr size_t kGpus = 4;

class GangTest : public DeviceTest {
 protected:
  std::string config() const override {
    return "sms=100,memory=8GiB,overlap=serial,clock=virtual,devices=4,h2d=10GB/s,d2h=10GB/s";
  }
  // A tenant with a virtual device, a stream and a kernel on each GPU.
  struct Party {
    std::vector<VirtualDevice> devices;
    std::vector<Stream> streams;
  };
  void SetUp() override {
    DeviceTest::SetUp();
    for (size_t i = 0; i < kGpus; ++i) {
      gpus_.push_back(Must(Gpu::Open(*runtime_, std::to_string(i))));
      modules_.push_back(Must(Module::Load(gpus_.back(), kPtx)));
    }
  }
  void TearDown() override {
    modules_.clear();
    gpus_.clear();
    DeviceTest::TearDown();
  }
  Party MakeParty(const std::string& name) {
    const Tenant tenant = MakeTenant(name);
    Party party;
    for (const Gpu& gpu : gpus_) {
      party.devices.push_back(Must(VirtualDevice::Create(gpu, tenant, "")));
      party.streams.push_back(Must(Stream::Create(party.devices.back())));
    }
    return party;
  }
  static std::vector<GangMember> Members(const Party& party, const std::vector<size_t>& gpus) {
    std::vector<GangMember> members;
    for (const size_t i : gpus) members.push_back({&party.devices[i], {&party.streams[i]}});
    return members;
  }
  absl::Status Work(const Party& party, size_t gpu, absl::Duration cost) {
    const Function spin = Must(modules_[gpu].GetFunction("spin"));
    const absl::Status launched = party.streams[gpu].Launch(
        spin, Whole(), static_cast<uint64_t>(absl::ToInt64Nanoseconds(cost)));
    return launched.ok() ? party.streams[gpu].Synchronize() : launched;
  }
  // Releases the lease, which keeps a GPU from others, after `time`.
  Thread FreeAfter(Lease& lease, absl::Duration time) {
    return Must(runtime_->StartThread("frees", [this, &lease, time] {
      runtime_->SleepFor(time);
      EXPECT_OK(lease.Release().status());
    }));
  }
  // Works on a GPU from 1 ms on, and reports when it was served.
  Thread WorkSoon(const Party& party, size_t gpu, absl::Duration& served) {
    return Must(runtime_->StartThread("waits", [this, &party, gpu, &served] {
      runtime_->SleepFor(absl::Milliseconds(1));
      EXPECT_OK(Work(party, gpu, absl::Microseconds(100)));
      served = runtime_->Now();
    }));
  }
  double Measured(const VirtualDevice& device) {
    return absl::ToDoubleMilliseconds(Must(device.stats()).compute.measured);
  }

  std::vector<Gpu> gpus_;
  std::vector<Module> modules_;
};

TEST_F(GangTest, HoldsAllOfItsGpusAndChargesEach) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Gang gang =
      Must(Gang::Acquire(Members(a, {2, 0}), {.hint = absl::Milliseconds(1), .exclusive = true}));
  Thread other = Must(runtime_->StartThread("other", [&] {
    const absl::Duration began = runtime_->Now();
    EXPECT_OK(Work(b, 1, absl::Microseconds(100)));  // a GPU that is not in the gang
    EXPECT_LT(runtime_->Now() - began, absl::Milliseconds(1));
    EXPECT_OK(Work(b, 0, absl::Microseconds(100)));
    EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(5));
  }));
  runtime_->SleepFor(absl::Milliseconds(3));
  EXPECT_OK(Work(a, 0, absl::Milliseconds(2)));
  EXPECT_OK(Work(a, 2, absl::Milliseconds(1)));
  const LeaseResult result = Must(gang.Release());
  EXPECT_NEAR(absl::ToDoubleMilliseconds(result.held), 6, 0.2);
  EXPECT_FALSE(result.overrun);
  other.Join();
  runtime_->SleepFor(absl::Milliseconds(5));
  // No other tenant could use the GPUs meanwhile.
  EXPECT_NEAR(Measured(a.devices[0]), 6, 0.2);
  EXPECT_NEAR(Measured(a.devices[2]), 6, 0.2);
  EXPECT_EQ(Measured(a.devices[1]), 0);
  EXPECT_EQ(gang.Release().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(GangTest, WhatTimesOutHoldsNothingAndPaysForWhatItKept) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Lease last = Must(Lease::Acquire(b.devices[3], {.exclusive = true, .any_thread = true}));
  const absl::Duration began = runtime_->Now();
  const absl::Status late =
      Gang::Acquire(Members(a, {0, 3}), {.exclusive = true, .timeout = absl::Milliseconds(20)})
          .status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(runtime_->Now() - began), 20, 0.2);
  const absl::Duration after = runtime_->Now();
  EXPECT_OK(Work(b, 0, absl::Microseconds(100)));
  EXPECT_LT(runtime_->Now() - after, absl::Milliseconds(1));
  EXPECT_NEAR(Measured(a.devices[0]), 20, 0.5);
  EXPECT_EQ(Measured(a.devices[3]), 0);
  EXPECT_OK(last.Release().status());
}

TEST_F(GangTest, TheMaximumCountsFromWhenItIsWhole) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Lease last = Must(Lease::Acquire(b.devices[3], {.exclusive = true, .any_thread = true}));
  Thread frees = FreeAfter(last, absl::Milliseconds(30));
  absl::Duration served;
  Thread waits = WorkSoon(b, 0, served);
  Gang gang = Must(
      Gang::Acquire(Members(a, {0, 3}), {.maximum = absl::Milliseconds(35), .exclusive = true}));
  const absl::Duration whole = runtime_->Now();
  runtime_->SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(Must(gang.Release()).overrun);
  waits.Join();
  frees.Join();
  EXPECT_GE(served - whole, absl::Milliseconds(20));
  EXPECT_LT(served - whole, absl::Milliseconds(21));
}

TEST_F(GangTest, WhoOverrunsTheMaximumKeepsNobodyOut) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Lease last = Must(Lease::Acquire(b.devices[3], {.exclusive = true, .any_thread = true}));
  Thread frees = FreeAfter(last, absl::Milliseconds(5));
  absl::Duration served;
  Thread waits = WorkSoon(b, 0, served);
  Gang gang = Must(
      Gang::Acquire(Members(a, {0, 3}), {.maximum = absl::Milliseconds(100), .exclusive = true}));
  const absl::Duration whole = runtime_->Now();
  runtime_->SleepFor(absl::Milliseconds(400));
  EXPECT_TRUE(Must(gang.Release()).overrun);
  waits.Join();
  frees.Join();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(served - whole), 100, 1);
}

TEST_F(GangTest, WhatIsKeptTooLongGoesBackInBetween) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Lease last = Must(Lease::Acquire(
      b.devices[3], {.maximum = absl::Seconds(10), .exclusive = true, .any_thread = true}));
  Thread frees = FreeAfter(last, absl::Milliseconds(50));
  absl::Duration served;
  Thread waits = WorkSoon(b, 0, served);
  const absl::Duration began = runtime_->Now();
  Gang gang = Must(
      Gang::Acquire(Members(a, {0, 3}), {.maximum = absl::Milliseconds(10), .exclusive = true}));
  EXPECT_GE(runtime_->Now() - began, absl::Milliseconds(50));
  EXPECT_LT(runtime_->Now() - began, absl::Milliseconds(52));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(served - began), 10, 1);
  waits.Join();
  frees.Join();
}

TEST_F(GangTest, MembersThatKeepNobodyOutPayFromWhenItIsWhole) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Lease last = Must(Lease::Acquire(b.devices[3], {.exclusive = true, .any_thread = true}));
  EXPECT_EQ(Gang::Acquire(Members(a, {0, 3}), {.timeout = absl::Milliseconds(20)}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_NEAR(Measured(a.devices[0]), 0, 0.1);
  Thread frees = FreeAfter(last, absl::Milliseconds(20));
  Gang gang = Must(Gang::Acquire(Members(a, {0, 3})));
  EXPECT_OK(Work(a, 0, absl::Milliseconds(2)));
  EXPECT_OK(gang.Release().status());
  frees.Join();
  runtime_->SleepFor(absl::Milliseconds(5));
  EXPECT_NEAR(Measured(a.devices[0]), 2, 0.2);
}

// Another exclusive request of the same tenant does not let other tenants in.
TEST_F(GangTest, ItsOwnExclusiveLeasesDoNotEndIt) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  Gang gang = Must(Gang::Acquire(Members(a, {0, 1}), {.exclusive = true, .any_thread = true}));
  const absl::Duration whole = runtime_->Now();
  absl::Duration served;
  Thread waits = Must(runtime_->StartThread("waits", [&] {
    EXPECT_OK(Work(b, 0, absl::Microseconds(100)));
    served = runtime_->Now();
  }));
  {
    Lease own = Must(Lease::Acquire(a.devices[0], {.exclusive = true, .any_thread = true}));
    runtime_->SleepFor(absl::Milliseconds(2));
  }
  runtime_->SleepFor(absl::Milliseconds(8));
  EXPECT_OK(gang.Release().status());
  waits.Join();
  EXPECT_GE(served - whole, absl::Milliseconds(10));
}

TEST_F(GangTest, NestsAndKeepsToTheOrder) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  std::vector<std::pair<std::string, size_t>> by_uuid;
  for (size_t i = 0; i < kGpus; ++i) by_uuid.emplace_back(Must(gpus_[i].Probe()).uuid, i);
  std::sort(by_uuid.begin(), by_uuid.end());
  const size_t first = by_uuid[0].second, second = by_uuid[1].second;
  {
    Lease outer = Must(Lease::Acquire(a.devices[first]));
    EXPECT_OK(Gang::Acquire(Members(a, {first, second})).status());
    EXPECT_EQ(Gang::Acquire(Members(b, {first, second})).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  {
    Lease outer = Must(Lease::Acquire(a.devices[second]));
    const absl::Status circle = Gang::Acquire(Members(a, {first, second})).status();
    EXPECT_EQ(circle.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(circle.message()), ::testing::HasSubstr("in the order of UUIDs"));
    // A lease that is not bound to a thread ignores what the thread holds.
    EXPECT_OK(Gang::Acquire(Members(a, {first, second}), {.any_thread = true}).status());
  }
  EXPECT_OK(Gang::Acquire(Members(b, {first, second})).status());
}

TEST_F(GangTest, NonsenseIsRefused) {
  const Party a = MakeParty("a"), b = MakeParty("b");
  const auto code = [](const absl::StatusOr<Gang>& gang) { return gang.status().code(); };
  EXPECT_EQ(code(Gang::Acquire({})), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Gang::Acquire({}).status().message()),
              ::testing::HasSubstr("has no members"));
  EXPECT_EQ(code(Gang::Acquire({{nullptr, {}}})), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Gang::Acquire({{&a.devices[0], {}}, {&b.devices[0], {}}})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Gang::Acquire({{&a.devices[0], {&a.streams[1]}}})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Gang::Acquire(Members(a, {0}), {.streams = {&a.streams[0]}})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Gang::Acquire(Members(a, {0}), {.hint = absl::Hours(1)})),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(gpushare_gang_release(nullptr, nullptr), GPUSHARE_INVALID_ARGUMENT);
  gpushare_gang_member member = {};  // without a struct_size
  gpushare_lease_options options = {};
  options.struct_size = sizeof(options);
  gpushare_gang out = nullptr;
  EXPECT_EQ(gpushare_gang_acquire(&member, 1, &options, &out), GPUSHARE_INVALID_ARGUMENT);
  member.struct_size = sizeof(member);
  EXPECT_EQ(gpushare_gang_acquire(&member, 0, &options, &out), GPUSHARE_INVALID_ARGUMENT);
  EXPECT_THAT(gpushare_last_message(), ::testing::HasSubstr("has no members"));
}

// Threads that request GPUs in any order, some of which give up: all of them end, and no GPU belongs to two gangs at
// once. The simulated clock would report a deadlock.
TEST_F(GangTest, NoCircleFormsAndNoGpuIsTwoGangs) {
  constexpr size_t kParties = 5, kRounds = 30;
  std::vector<Party> parties;
  for (size_t i = 0; i < kParties; ++i) parties.push_back(MakeParty("p" + std::to_string(i)));
  size_t holder[kGpus] = {};  // one thread runs at a time
  size_t whole = 0, late = 0;
  const auto run = [&](size_t me) {
    std::minstd_rand random(me + 1);
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<size_t> gpus = {0, 1, 2, 3};
      std::shuffle(gpus.begin(), gpus.end(), random);
      gpus.resize(2 + random() % 3);
      const bool hurried = random() % 4 == 0;
      absl::StatusOr<Gang> gang = Gang::Acquire(
          Members(parties[me], gpus),
          {.exclusive = true,
           .timeout = hurried ? absl::Microseconds(random() % 300) : absl::InfiniteDuration()});
      if (!gang.ok()) {
        ASSERT_TRUE(hurried) << gang.status();
        ASSERT_EQ(gang.status().code(), absl::StatusCode::kDeadlineExceeded);
        ++late;
        continue;
      }
      ++whole;
      for (const size_t gpu : gpus) ASSERT_EQ(std::exchange(holder[gpu], me + 1), 0u);
      for (const size_t gpu : gpus) ASSERT_OK(Work(parties[me], gpu, absl::Microseconds(20)));
      for (const size_t gpu : gpus) ASSERT_EQ(std::exchange(holder[gpu], size_t{0}), me + 1);
      ASSERT_OK(gang->Release().status());
    }
  };
  {
    std::vector<Thread> threads;
    for (size_t i = 0; i < kParties; ++i) {
      threads.push_back(Must(runtime_->StartThread("p" + std::to_string(i), [&, i] { run(i); })));
    }
  }
  EXPECT_EQ(whole + late, kParties * kRounds);
  EXPECT_GE(whole, kParties * kRounds / 2);
  EXPECT_GE(late, 5u);
}

}  // namespace
}  // namespace gpushare
