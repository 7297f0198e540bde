// SPDX-License-Identifier: Apache-2.0
// Copies by a rate that comes from outside and that all tenants of an engine share.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/unit/gate/engine_test.h"

namespace gpushare::gate {
namespace {

constexpr auto kTo = CopyDirection::kHostToDevice, kFrom = CopyDirection::kDeviceToHost;

// A supply whose bytes the test hands out while a tenant waits for them.
class GivenBytes final : public CopySupply {
 public:
  bool LimitsCopies(CopyDirection direction) const override { return direction == kTo && limits; }
  CopyState Copies(CopyDirection direction, Time) override {
    if (suspended) return CopyState::kSuspended;
    if (!LimitsCopies(direction)) return CopyState::kUnlimited;
    return bytes > 0 ? CopyState::kOpen : CopyState::kUsedUp;
  }
  void ChargeCopy(CopyDirection direction, int64_t charged) override {
    if (LimitsCopies(direction)) bytes -= charged;
  }
  Time AwaitCopies(CopyDirection, Time) override {
    wanted = 1 - bytes;
    return kNever;
  }
  void NobodyAwaitsCopies(CopyDirection) override { wanted = 0; }

  LinkState Link(CopyDirection) const override { return link; }
  uint64_t LinkWindow(CopyDirection direction) const override {
    return direction == kTo ? window.load() : 0;
  }

  std::atomic<LinkState> link{LinkState::kFree};
  std::atomic<uint64_t> window{0};
  std::atomic<bool> limits{true}, suspended{false};
  std::atomic<int64_t> bytes{0}, wanted{0};
};

class SuppliedCopiesTest : public EngineTest {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    EngineOptions options;
    options.copy_supply = given;
    MakeEngine(options);
  }
  Verdict Copy(const Tenant& t, uint64_t bytes, Nanos timeout = Nanos(0)) {
    return t.gate->AdmitCopy(kTo, bytes, clock().Now() + timeout);
  }
  void Give(int64_t bytes) {
    given->bytes += bytes;
    engine_->Supplied();
  }
  // Hands out `pieces` times `piece` bytes, every 100 us.
  std::unique_ptr<base::ClockThread> StartGiving(int64_t piece, int pieces) {
    return clock().StartThread("giver", [this, piece, pieces] {
      for (int i = 0; i < pieces; ++i) {
        clock().SleepUntil(clock().Now() + Micros(100));
        Give(piece);
      }
    });
  }
  // Copies pieces of `size` until `end`, each when the previous one has begun and `pause` has passed. Adds the bytes
  // to `sum`.
  std::unique_ptr<base::ClockThread> StartCopying(const Tenant& t, uint64_t size, Time end,
                                                  std::atomic<uint64_t>& sum,
                                                  Nanos pause = Nanos(0)) {
    return clock().StartThread("copies", [this, t, size, end, &sum, pause] {
      while (t.gate->AdmitCopy(kTo, size, end) == Verdict::kAdmitted) {
        sum += size;
        if (pause > Nanos(0)) clock().SleepUntil(clock().Now() + pause);
      }
    });
  }

  const std::shared_ptr<GivenBytes> given = std::make_shared<GivenBytes>();
};

TEST_F(SuppliedCopiesTest, KeepToWhatComes) {
  TenantOptions options;
  options.h2d_bytes_per_s = 1e15;  // never the tighter limit
  Tenant t = Make(options);
  EXPECT_TRUE(t.gate->LimitsCopies(kTo));
  EXPECT_FALSE(t.gate->LimitsCopies(kFrom));
  EXPECT_EQ(Copy(t, 100, Micros(10)), Verdict::kDeadline);
  given->bytes = 40;
  EXPECT_EQ(Copy(t, 100), Verdict::kAdmitted);
  EXPECT_EQ(Copy(t, 100), Verdict::kDeadline);
  // The waiter is woken when the bytes arrive, and afterwards nothing is wanted.
  const Time begin = clock().Now();
  auto giver = clock().StartThread("giver", [&] {
    clock().SleepUntil(begin + Millis(3));
    EXPECT_EQ(given->wanted, 61);  // the debt and one byte
    Give(61);
  });
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 100), Verdict::kAdmitted);
  EXPECT_NEAR(static_cast<double>((clock().Now() - begin).count()), 3e6, 1e5);
  EXPECT_EQ(given->wanted, 0);
  giver->Join();
  // A copy that the driver refused is credited, and one that passes at its bound is charged.
  t.gate->CopyRefused(kTo, 100);
  EXPECT_EQ(Copy(t, 100), Verdict::kAdmitted);
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 1000, kNever, Micros(50)), Verdict::kAdmitted);
  EXPECT_EQ(given->bytes, -1099);
  EXPECT_EQ(given->wanted, 0);
  // An impossible copy gives no credit when the driver refuses it.
  t.gate->AdmitCopy(kTo, UINT64_MAX, kNever, Nanos(1));
  t.gate->CopyRefused(kTo, UINT64_MAX);
  EXPECT_EQ(given->bytes, -1099);
  given->limits = false;
  EXPECT_EQ(Copy(t, 1 << 30), Verdict::kAdmitted);
  Drop(t);
}

// Two pieces fill what the supply lets a tenant have in flight.
TEST_F(SuppliedCopiesTest, PiecesAreHalfOfTheWindow) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  given->limits = false;
  given->link = LinkState::kBound;
  Tenant t = Make({});
  const auto largest = [&](CopyDirection direction, uint64_t window) {
    given->window = window;
    uint64_t most = 0;
    const auto put = [&](uint64_t, uint64_t parts) {
      most = std::max(most, parts);
      return true;
    };
    EXPECT_EQ(t.gate->Copy(*t.stream, {.direction = direction, .parts = 16 * kMiB}, put).parts,
              16 * kMiB);
    return most;
  };
  EXPECT_EQ(largest(kTo, 0), 4 * kMiB);
  EXPECT_EQ(largest(kTo, kMiB), kMiB / 2);
  EXPECT_EQ(largest(kFrom, kMiB), 4 * kMiB);
  EXPECT_EQ(largest(kTo, 1), kMiB / 8);
  EXPECT_EQ(largest(kTo, UINT64_MAX), 4 * kMiB);
  Drop(t);
}

TEST_F(SuppliedCopiesTest, KeepToTheirOwnRateAsWell) {
  TenantOptions options;
  options.h2d_bytes_per_s = 1e6;
  Tenant t = Make(options);
  given->bytes = 1'000'000;
  clock().SleepUntil(clock().Now() + Millis(1));
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 11'000), Verdict::kAdmitted);
  const Time begin = clock().Now();
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 1), Verdict::kAdmitted);
  EXPECT_NEAR(static_cast<double>((clock().Now() - begin).count()), 10e6,
              1e5);  // the time to pay the debt
  given->limits = false;
  EXPECT_TRUE(t.gate->LimitsCopies(kTo));
  Drop(t);
}

TEST_F(SuppliedCopiesTest, ADebtOutlivesTheTenantThatMadeIt) {
  Tenant t = Make({});
  given->bytes = 1;
  EXPECT_EQ(Copy(t, 1000), Verdict::kAdmitted);
  Drop(t);
  EXPECT_EQ(given->bytes, -999);
  Tenant next = Make({});
  Give(999);
  EXPECT_EQ(Copy(next, 1), Verdict::kDeadline);
  Give(1);
  EXPECT_EQ(Copy(next, 1), Verdict::kAdmitted);
  Drop(next);
}

TEST_F(SuppliedCopiesTest, TenantsGetTheSameWhateverTheirPieces) {
  Tenant a = Make({}), b = Make({}), c = Make({});
  const Time end = clock().Now() + Millis(100);
  std::atomic<uint64_t> small{0}, large{0}, two{0};
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  threads.push_back(StartCopying(a, 1'000, end, small));
  threads.push_back(StartCopying(b, 64'000, end, large));
  threads.push_back(StartCopying(c, 4'000, end, two));  // a tenant with two threads gets no more
  threads.push_back(StartCopying(c, 4'000, end, two));
  threads.push_back(StartGiving(9'000, 1000));
  for (auto& thread : threads) thread->Join();
  const double sum = static_cast<double>(small + large + two);
  EXPECT_NEAR(sum, 9e6, 1e5);
  for (const std::atomic<uint64_t>* each : {&small, &large, &two}) {
    EXPECT_NEAR(static_cast<double>(each->load()) / sum, 1.0 / 3, 0.01);
  }
  EXPECT_EQ(given->wanted, 0);
  for (Tenant* each : {&a, &b, &c}) Drop(*each);
}

TEST_F(SuppliedCopiesTest, AFamilyGetsTheSameAsATenantAndDividesThatEvenly) {
  Tenant parent = Make({}), a = Make({}, &parent), b = Make({}, &parent), other = Make({});
  const Time end = clock().Now() + Millis(100);
  std::atomic<uint64_t> small{0}, large{0}, own{0}, others{0};
  std::vector<std::unique_ptr<base::ClockThread>> threads;
  threads.push_back(StartCopying(a, 1'000, end, small));
  threads.push_back(StartCopying(b, 24'000, end, large));
  threads.push_back(StartCopying(parent, 5'000, end, own));
  threads.push_back(StartCopying(other, 9'000, end, others));
  threads.push_back(StartGiving(9'000, 1000));
  for (auto& thread : threads) thread->Join();
  const double sum = static_cast<double>(small + large + own + others);
  EXPECT_NEAR(sum, 9e6, 1e5);
  EXPECT_NEAR(static_cast<double>(others) / sum, 1.0 / 2, 0.01);
  for (const std::atomic<uint64_t>* each : {&small, &large, &own}) {
    EXPECT_NEAR(static_cast<double>(each->load()) / sum, 1.0 / 6, 0.01);
  }
  EXPECT_EQ(given->wanted, 0);
  for (Tenant* each : {&a, &b, &parent, &other}) Drop(*each);
}

TEST_F(SuppliedCopiesTest, WhoComesBackAfterEachCopyWaitsForOnePieceOfAnother) {
  Tenant a = Make({}), b = Make({});
  const Time end = clock().Now() + Millis(100);
  std::atomic<uint64_t> small{0}, large{0};
  auto first = StartCopying(a, 1'000, end, small, Micros(10));
  auto second = StartCopying(b, 64'000, end, large);
  StartGiving(9'000, 1000)->Join();
  first->Join();
  second->Join();
  EXPECT_GE(small / 1'000 + 1, large / 64'000);
  EXPECT_GT(large / 64'000, 100u);
  Drop(a);
  Drop(b);
}

TEST_F(SuppliedCopiesTest, WhoWaitsForALimitOfItsOwnIsInNobodysWay) {
  TenantOptions slow;
  slow.h2d_bytes_per_s = 1e6;
  Tenant a = Make(slow), b = Make({});
  const Time end = clock().Now() + Millis(100);
  std::atomic<uint64_t> own{0}, other{0};
  auto first = StartCopying(a, 10'000, end, own), second = StartCopying(b, 10'000, end, other);
  StartGiving(10'000, 1000)->Join();
  first->Join();
  second->Join();
  EXPECT_NEAR(static_cast<double>(own), 1e5, 2e4);
  EXPECT_NEAR(static_cast<double>(own + other), 1e7, 2e4);
  Drop(a);
  Drop(b);
}

TEST_F(SuppliedCopiesTest, NobodyWantsMoreWhenWhoWaitedHasGone) {
  Tenant t = Make({}), suspended = Make({}), removed = Make({});
  const Time begin = clock().Now();
  auto body = [&](const Tenant& of, Verdict expected) {
    return clock().StartThread("waits", [this, &of, expected] {
      EXPECT_EQ(of.gate->AdmitCopy(kTo, 10, clock().Now() + Millis(9)), expected);
    });
  };
  auto first = body(suspended, Verdict::kDeadline), second = body(removed, Verdict::kSuspended);
  EXPECT_EQ(Copy(t, 10, Millis(1)), Verdict::kDeadline);
  EXPECT_EQ(given->wanted, 1);  // the other tenants still wait
  suspended.gate->Suspend();
  driver_->SynchronizeStream(removed.handle);
  removed.gate->RemoveStream(removed.stream);
  engine_->RemoveTenant(removed.gate);
  driver_->DestroyStream(removed.handle);
  clock().SleepUntil(begin + Millis(2));
  EXPECT_EQ(given->wanted, 0);
  // The bytes that arrive now go to the tenants that can use them.
  given->bytes = 1;
  EXPECT_EQ(Copy(t, 10), Verdict::kAdmitted);
  first->Join();
  second->Join();
  // The limit is removed while a tenant waits.
  auto lifts = clock().StartThread("lifts", [&] {
    clock().SleepUntil(clock().Now() + Millis(1));
    EXPECT_GT(given->wanted, 0);
    given->limits = false;
    engine_->Supplied();
  });
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 10), Verdict::kAdmitted);
  EXPECT_EQ(given->wanted, 0);
  lifts->Join();
  suspended.gate->Resume();
  Drop(t);
  Drop(suspended);
}

TEST_F(SuppliedCopiesTest, ASuspensionDoesNotHoldWhatGoesThoughSuspended) {
  given->limits = false;
  Tenant t = Make({});
  t.gate->Suspend();
  EXPECT_EQ(Copy(t, 1, Millis(1)), Verdict::kDeadline);
  EXPECT_EQ(t.gate->AdmitCopyThoughSuspended(kTo, 10), Verdict::kAdmitted);
  given->suspended = true;  // also suspended by the broker
  EXPECT_EQ(t.gate->AdmitCopyThoughSuspended(kTo, 10), Verdict::kAdmitted);
  EXPECT_EQ(t.gate->stats().copy_bytes[0], 20u);
  // The tenant's own limit holds it, after all the saved-up credit is spent.
  t.gate->Update({.limits = {}, .h2d_bytes_per_s = 1000});
  const Time begin = clock().Now();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(t.gate->AdmitCopyThoughSuspended(kTo, 10), Verdict::kAdmitted);
  }
  EXPECT_GE(clock().Now() - begin, Millis(10));
  t.gate->Resume();
  Drop(t);
}

TEST_F(SuppliedCopiesTest, NoneBeginsWhileTheSupplyIsSuspended) {
  given->limits = false;
  given->suspended = true;
  Tenant t = Make({});
  EXPECT_EQ(Copy(t, 1, Millis(1)), Verdict::kDeadline);
  EXPECT_EQ(t.gate->AdmitCopy(kFrom, 1, clock().Now() + Millis(2), Millis(1)), Verdict::kDeadline);
  const Time begin = clock().Now();
  auto resumes = clock().StartThread("resumes", [&] {
    clock().SleepUntil(begin + Millis(3));
    given->suspended = false;
    engine_->Supplied();
  });
  EXPECT_EQ(t.gate->AdmitCopy(kTo, 1), Verdict::kAdmitted);
  EXPECT_NEAR(static_cast<double>((clock().Now() - begin).count()), 3e6, 1e5);
  resumes->Join();
  Drop(t);
}

}  // namespace
}  // namespace gpushare::gate
