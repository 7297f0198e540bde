// SPDX-License-Identifier: Apache-2.0
// Tenants with a parent at the gate: a bound of the parent applies to all its children together.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

constexpr auto kUp = CopyDirection::kHostToDevice, kDown = CopyDirection::kDeviceToHost;

class FamilyTest : public EngineTest {
 protected:
  Tenant MakeChild(const Tenant& parent, const TenantOptions& options) {
    return Make(options, &parent);
  }
  // Copies pieces of `size` until `end`, each as soon as the previous one has begun. Adds the bytes to `sum`.
  std::unique_ptr<base::ClockThread> StartCopying(const Tenant& t, uint64_t size, Time end,
                                                  std::atomic<uint64_t>& sum) {
    return clock().StartThread("copies", [this, t, size, end, &sum] {
      while (t.gate->AdmitCopy(kUp, size, end) == Verdict::kAdmitted) {
        sum += size;
        if (clock().Now() >= end) return;
      }
    });
  }
  std::unique_ptr<base::ClockThread> StartLaunching(Tenant& t, Nanos cost, Time end) {
    return clock().StartThread("launches", [this, &t, cost, end] {
      ASSERT_EQ(driver_->PushContext(context_), Result::kSuccess);
      while (clock().Now() < end) {
        if (Launch(t, cost, end) != Verdict::kAdmitted) break;
      }
      Synchronize(t);
      driver_->PopContext();
    });
  }
};

TEST_F(FamilyTest, TheParentsCopyRateIsTheSumOfItsChildrens) {
  Tenant parent = Make({.limits = {}, .h2d_bytes_per_s = 100e6});
  Tenant a = MakeChild(parent, {}), b = MakeChild(parent, {});
  EXPECT_TRUE(a.gate->LimitsCopies(kUp));
  EXPECT_FALSE(a.gate->LimitsCopies(kDown));
  const Time end = clock().Now() + Seconds(2);
  std::atomic<uint64_t> of_a{0}, of_b{0};
  auto first = StartCopying(a, 100'000, end, of_a), second = StartCopying(b, 400'000, end, of_b);
  first->Join();
  second->Join();
  EXPECT_NEAR(static_cast<double>(of_a + of_b), 200e6, 3e6);
  // Each child gets the same number of bytes, whatever the size of its copies.
  EXPECT_NEAR(static_cast<double>(of_a), 100e6, 3e6);
  for (Tenant* each : {&a, &b, &parent}) Drop(*each);
}

TEST_F(FamilyTest, AChildsOwnRateIsInNobodysWay) {
  Tenant parent = Make({.limits = {}, .h2d_bytes_per_s = 100e6});
  Tenant slow = MakeChild(parent, {.limits = {}, .h2d_bytes_per_s = 10e6}),
         fast = MakeChild(parent, {});
  const Time end = clock().Now() + Seconds(2);
  std::atomic<uint64_t> of_slow{0}, of_fast{0};
  auto first = StartCopying(slow, 100'000, end, of_slow),
       second = StartCopying(fast, 100'000, end, of_fast);
  first->Join();
  second->Join();
  EXPECT_NEAR(static_cast<double>(of_slow), 20e6, 1e6);
  EXPECT_NEAR(static_cast<double>(of_fast), 180e6, 3e6);
  for (Tenant* each : {&slow, &fast, &parent}) Drop(*each);
}

TEST_F(FamilyTest, WhatTheParentCopiesItselfCountsToo) {
  Tenant parent = Make({.limits = {}, .h2d_bytes_per_s = 100e6}), child = MakeChild(parent, {});
  const Time end = clock().Now() + Seconds(2);
  std::atomic<uint64_t> of_parent{0}, of_child{0};
  auto first = StartCopying(parent, 200'000, end, of_parent),
       second = StartCopying(child, 100'000, end, of_child);
  first->Join();
  second->Join();
  EXPECT_NEAR(static_cast<double>(of_parent), 100e6, 3e6);
  EXPECT_NEAR(static_cast<double>(of_child), 100e6, 3e6);
  for (Tenant* each : {&child, &parent}) Drop(*each);
}

TEST_F(FamilyTest, ANewRateOfTheParentWakesItsChildren) {
  Tenant parent = Make({.limits = {}, .h2d_bytes_per_s = 1e3}), child = MakeChild(parent, {});
  clock().SleepUntil(clock().Now() + Seconds(1));
  ASSERT_EQ(child.gate->AdmitCopy(kUp, 1'000'000, clock().Now()), Verdict::kAdmitted);
  const Time began = clock().Now();  // paying the debt would take a quarter of an hour
  Time admitted{};
  auto waiter = clock().StartThread("waits", [&] {
    EXPECT_EQ(child.gate->AdmitCopy(kUp, 1000, kNever), Verdict::kAdmitted);
    admitted = clock().Now();
  });
  clock().SleepUntil(began + Millis(10));
  parent.gate->Update({});
  waiter->Join();
  EXPECT_NEAR(static_cast<double>((admitted - began).count()), 10e6, 0.1e6);
  for (Tenant* each : {&child, &parent}) Drop(*each);
}

TEST_F(FamilyTest, ARefusedCopyGivesASiblingItsTurn) {
  Tenant parent = Make({.limits = {}, .h2d_bytes_per_s = 1e3});
  Tenant a = MakeChild(parent, {}), b = MakeChild(parent, {});
  clock().SleepUntil(clock().Now() + Seconds(1));
  ASSERT_EQ(a.gate->AdmitCopy(kUp, 1'000'000, clock().Now()), Verdict::kAdmitted);
  const Time began = clock().Now();
  Time admitted{};
  auto waiter = clock().StartThread("waits", [&] {
    EXPECT_EQ(b.gate->AdmitCopy(kUp, 5, kNever), Verdict::kAdmitted);
    admitted = clock().Now();
  });
  clock().SleepUntil(began + Millis(10));
  a.gate->CopyRefused(kUp, 1'000'000);
  waiter->Join();
  EXPECT_NEAR(static_cast<double>((admitted - began).count()), 10e6, 0.1e6);
  for (Tenant* each : {&a, &b, &parent}) Drop(*each);
}

TEST_F(FamilyTest, MembersThatCopyDivideTheWeightOfTheFamilyWhereCopiesGoInPieces) {
  const auto weighs = [](double weight) { return TenantOptions{.limits = {.weight = weight}}; };
  Tenant parent = Make(weighs(2)), light = MakeChild(parent, weighs(5)),
         heavy = MakeChild(parent, weighs(10)), other = Make(weighs(1));
  const auto first_piece = [&](const Tenant& t) {
    uint64_t first = 0;
    const auto put = [&](uint64_t, uint64_t count) {
      if (first == 0) first = count;
      return true;
    };
    const Copied copied = t.gate->Copy(*t.stream, {.direction = kUp, .parts = 32 << 20}, put);
    EXPECT_EQ(copied.parts, uint64_t{32} << 20);
    return first >> 10;
  };
  EXPECT_EQ(first_piece(heavy), 4096u);
  EXPECT_EQ(first_piece(other), 2048u);  // half of what the family weighs, not a tenth
  EXPECT_EQ(first_piece(light), 2048u);
  EXPECT_EQ(first_piece(heavy), 4096u);
  EXPECT_EQ(first_piece(other), 3072u);  // two thirds of the family's weight are the heavy one's
  EXPECT_EQ(first_piece(parent), 512u);  // the least; a tenth of the heavy one's
  clock().SleepUntil(clock().Now() + Millis(100));
  EXPECT_EQ(first_piece(light), 4096u);  // its siblings have stopped
  EXPECT_EQ(first_piece(other), 2048u);
  for (Tenant* each : {&other, &heavy, &light, &parent}) Drop(*each);
}

TEST_F(FamilyTest, ALongCopyMakesRoomForASiblingThatBegins) {
  Tenant parent = Make({}), a = MakeChild(parent, {}), b = MakeChild(parent, {}), other = Make({});
  std::vector<uint64_t> pieces;
  const auto put = [&](uint64_t, uint64_t count) {
    pieces.push_back(count >> 10);
    if (pieces.size() == 1) {
      const auto ignored = [](uint64_t, uint64_t) { return true; };
      EXPECT_EQ(b.gate->Copy(*b.stream, {.direction = kUp, .parts = 16 << 20}, ignored).parts,
                uint64_t{16} << 20);
    }
    return true;
  };
  a.gate->Copy(*a.stream, {.direction = kUp, .parts = 32 << 20}, put);
  ASSERT_GE(pieces.size(), 2u);
  EXPECT_EQ(pieces[0], 4096u);
  EXPECT_EQ(pieces[1], 2048u);
  for (Tenant* each : {&other, &b, &a, &parent}) Drop(*each);
}

TEST_F(FamilyTest, TheParentsCapBoundsWhatItsChildrenRun) {
  TenantOptions capped;
  capped.limits.cap = 0.3;
  TenantOptions heavy;
  heavy.limits.weight = 2;
  Tenant parent = Make(capped), a = MakeChild(parent, heavy), b = MakeChild(parent, {});
  const Time from = clock().Now(), end = from + Seconds(2);
  auto first = StartLaunching(a, Micros(50), end), second = StartLaunching(b, Micros(200), end);
  first->Join();
  second->Join();
  clock().SleepUntil(clock().Now() + Millis(2));
  const double elapsed = static_cast<double>((end - from).count());
  const double of_a = static_cast<double>(a.gate->stats().measured.count()) / elapsed;
  const double of_b = static_cast<double>(b.gate->stats().measured.count()) / elapsed;
  EXPECT_NEAR(of_a + of_b, 0.3, 0.01);
  EXPECT_NEAR(of_a, 0.2, 0.015);
  for (Tenant* each : {&a, &b, &parent}) Drop(*each);
}

}  // namespace
}  // namespace gpushare::gate
