// SPDX-License-Identifier: Apache-2.0
// Decisions allocate no memory once the tenants are registered, and a registration that finds none changes nothing.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "gtest/gtest.h"
#include "sched/arbiter.h"

namespace {
std::atomic<int> allocations{0};
int fails_in = 0;  // 1: the next one fails
}  // namespace

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored \
    "-Wmismatched-new-delete"  // both are replaced here, gcc sees only one
#endif
void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (fails_in > 0 && --fails_in == 0) throw std::bad_alloc();
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept;  // clang does not declare it
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace gpushare::sched {
namespace {

TEST(Allocation, NoneAfterRegistration) {
  Arbiter arbiter{ArbiterOptions{}};
  std::vector<TenantId> ids;
  for (int i = 0; i < 1000; ++i) {
    TenantLimits limits;
    if (i % 3 == 0) limits.guarantee = 0.0005;
    if (i % 3 == 1) limits.cap = 0.01;
    if (i % 5 == 0) limits.band = Band::kLow;
    ids.push_back(arbiter.Add(limits, Time(Nanos(0))));
  }
  std::vector<Grant> grants;
  grants.reserve(ids.size());
  Nanos now{0};
  const int before = allocations.load();
  int granted = 0;
  for (int round = 0; round < 20'000; ++round) {
    now += Micros(7);
    const TenantId id = ids[static_cast<size_t>(round) * 7919 % ids.size()];
    if (round % 11 == 0) {
      arbiter.Touch(id, Time(now));
    } else if (round % 13 == 0) {
      arbiter.Sync(id, Time(now));
    } else {
      arbiter.Block(id, Micros(14), false, Time(now));
    }
    grants.clear();
    arbiter.Run(Time(now), grants);
    for (const Grant& g : grants) {
      ++granted;
      arbiter.Launched(g.tenant, 1, Time(now));
      arbiter.Settle(g.tenant, g.phase, g.amount, Micros(15), 1, Time(now));
    }
  }
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_GT(granted, 10'000);
  EXPECT_STREQ(arbiter.CheckInvariants(), "");
}

// Makes the call again and again, each time with a later one of its allocations failing, until none fails.
// Returns how many failed.
template <typename Call, typename Then>
int FailEach(const Call& call, const Then& then) {
  for (int failed = 0;; ++failed) {
    fails_in = failed + 1;
    try {
      call();
      fails_in = 0;
      return failed;
    } catch (const std::bad_alloc&) {
      fails_in = 0;
      then();
    }
  }
}

TEST(Allocation, ARegistrationWithoutMemoryChangesNothing) {
  int failed = 0;
  // Each number of tenants before, since the books grow now and then.
  for (int before = 0; before < 20; ++before) {
    Arbiter arbiter{ArbiterOptions{}};
    TenantId parent = kNoTenant;
    for (int i = 0; i <= before; ++i) parent = arbiter.Add({}, Time(Nanos(0)));
    const auto add = [&](Band band, TenantId in_family_of) {
      TenantId id = kNoTenant;
      failed += FailEach([&] { id = arbiter.Add({.band = band}, Time(Nanos(0)), in_family_of); },
                         [&, tenants = arbiter.tenants()] {
                           EXPECT_STREQ(arbiter.CheckInvariants(), "");
                           EXPECT_EQ(arbiter.tenants(), tenants);
                         });
      EXPECT_STREQ(arbiter.CheckInvariants(), "");
      return id;
    };
    add(Band::kNormal, kNoTenant);
    const TenantId first = add(Band::kLow, parent);  // makes the family, and a group in each band
    add(Band::kLow, parent);
    add(Band::kLow, parent);
    // The first child moves to another band, where the family has no group.
    failed += FailEach([&] { arbiter.Update(first, {.band = Band::kHigh}, Time(Nanos(0))); },
                       [&] { EXPECT_STREQ(arbiter.CheckInvariants(), ""); });
    EXPECT_STREQ(arbiter.CheckInvariants(), "");
  }
  EXPECT_GT(failed, 100);
}

}  // namespace
}  // namespace gpushare::sched
