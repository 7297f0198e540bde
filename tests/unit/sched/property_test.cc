// SPDX-License-Identifier: Apache-2.0
// Random tenants on a random device, and random calls: the invariants that must always hold.
//
// A failing case prints its seed and its tenants. GPUSHARE_PROPERTY_SEED=N runs that case, and
// GPUSHARE_PROPERTY_CASES=N sets the number of cases.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/sched/harness.h"

namespace gpushare::sched {
namespace {

using Mode = HarnessTenant::Mode;

class Source {
 public:
  explicit Source(uint64_t seed) : random_(seed) {}
  double Uniform(double lo, double hi) {
    return lo + (hi - lo) * std::generate_canonical<double, 53>(random_);
  }
  double LogUniform(double lo, double hi) { return std::exp(Uniform(std::log(lo), std::log(hi))); }
  int Int(int lo, int hi) {  // both included
    return lo + static_cast<int>(random_() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool Chance(double p) { return Uniform(0, 1) < p; }

 private:
  std::mt19937_64 random_;
};

std::vector<uint64_t> Seeds(int cases) {
  if (kSlowBuild) cases = (cases + 9) / 10;
  if (const char* one = std::getenv("GPUSHARE_PROPERTY_SEED"))
    return {std::strtoull(one, nullptr, 10)};
  if (const char* many = std::getenv("GPUSHARE_PROPERTY_CASES")) cases = std::atoi(many);
  std::vector<uint64_t> seeds;
  for (int i = 1; i <= cases; ++i) seeds.push_back(static_cast<uint64_t>(i));
  return seeds;
}

std::string Describe(uint64_t seed, const std::vector<HarnessTenant>& tenants) {
  std::ostringstream out;
  out << "GPUSHARE_PROPERTY_SEED=" << seed;
  for (const HarnessTenant& t : tenants) {
    out << "\n  weight " << t.limits.weight << " guarantee " << t.limits.guarantee << " cap "
        << t.limits.cap << " band " << static_cast<int>(t.limits.band) << " mode "
        << static_cast<int>(t.mode) << " bias " << t.bias << " repeat " << t.repeat
        << " kernels us";
    for (Nanos k : t.kernels) out << " " << k.count() / 1000;
  }
  return out.str();
}

std::vector<Nanos> Kernels(Source& source, double longest_us) {
  const double typical = source.LogUniform(10, longest_us);
  std::vector<Nanos> kernels;
  for (int i = source.Int(1, 8); i > 0; --i) {
    const double us = std::clamp(typical * source.LogUniform(0.5, 2), 8.0, longest_us);
    kernels.push_back(Nanos(static_cast<int64_t>(us * 1e3)));
  }
  return kernels;
}

double Longest(const std::vector<HarnessTenant>& tenants) {
  Nanos longest{0};
  for (const HarnessTenant& t : tenants) {
    longest = std::max(longest, *std::max_element(t.kernels.begin(), t.kernels.end()));
  }
  return static_cast<double>(longest.count()) / 1e9;
}

// The share of `all` that each backlogged tenant is due: min(cap, guarantee + weight x level), with the level at
// which everything is distributed.
std::vector<double> Entitlements(const std::vector<HarnessTenant>& tenants, double all = 1) {
  const auto at = [&](double level) {
    std::vector<double> x;
    for (const HarnessTenant& t : tenants) {
      x.push_back(std::min(t.limits.cap, t.limits.guarantee + t.limits.weight * level));
    }
    return x;
  };
  double lo = 0, hi = 1e9;
  for (int i = 0; i < 200; ++i) {
    const double level = std::sqrt(std::max(lo, 1e-12) * hi);
    double sum = 0;
    for (double x : at(level)) sum += x;
    (sum > all ? hi : lo) = level;
  }
  return at(lo);
}

TEST(Property, BackloggedTenantsGetWhatTheyAreDue) {
  double worst_of_all = 0;
  for (uint64_t seed : Seeds(40)) {
    Source source(seed);
    std::vector<HarnessTenant> tenants(static_cast<size_t>(source.Int(2, 12)));
    double unreserved = 0.9;
    for (HarnessTenant& t : tenants) {
      t.limits.weight = source.LogUniform(1, 20);
      if (source.Chance(0.4)) {
        t.limits.guarantee = source.Uniform(0, unreserved);
        unreserved -= t.limits.guarantee;
      }
      if (source.Chance(0.3)) t.limits.cap = source.Uniform(std::max(0.05, t.limits.guarantee), 1);
      t.kernels = Kernels(source, 2000);
    }
    // Predictions are exact here. With wrong ones the same holds, but later (see shares_test.cc).
    const std::string what = Describe(seed, tenants);
    SCOPED_TRACE(what);
    const std::vector<double> due = Entitlements(tenants);
    const double longest = Longest(tenants);
    double promised = 0;
    for (double x : due) promised += x;
    HarnessOptions options;
    options.seed = seed;
    Harness h(options, tenants);
    h.RunUntil(Seconds(4));
    const Nanos from = Seconds(1), to = Seconds(4);
    EXPECT_GE(h.Busy(from, to), std::min(1.0, promised) * 0.99);
    const double error = h.WorstShareError(due, from, to, Seconds(1), /*absolute=*/true);
    worst_of_all = std::max(worst_of_all, error);
    EXPECT_LE(error, 1.0 + 200 * longest);
    for (size_t i = 0; i < tenants.size(); ++i) {
      EXPECT_LE(h.MostUsed(i, from, to), tenants[i].limits.cap + 0.005 + longest);
      // A tenant that is due less than its longest command in a second may run less than once a second.
      if (due[i] > 3 * Longest({tenants[i]})) {
        EXPECT_GT(h.LeastUsed(i, from, to), 0) << "tenant " << i << " starved";
      }
    }
    EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
  }
  RecordProperty("worst_pp", std::to_string(worst_of_all));
  std::printf("  worst second of any case: %.3f pp\n", worst_of_all);
}

// Random families: parents divide the device like tenants, and the children divide their parent's share.
TEST(Property, FamiliesGetWhatTheirParentsAreDue) {
  double worst_of_all = 0;
  for (uint64_t seed : Seeds(40)) {
    Source source(seed + 3'000'000);
    std::vector<HarnessTenant> tenants;
    std::vector<double> due;
    std::vector<std::vector<size_t>> families;  // children by family
    std::vector<HarnessTenant> roots;
    double unreserved = 0.9;
    for (int i = source.Int(2, 4); i > 0; --i) {
      HarnessTenant root = Parent({});
      root.limits.weight = source.LogUniform(1, 10);
      if (source.Chance(0.4)) {
        root.limits.guarantee = source.Uniform(0, unreserved);
        unreserved -= root.limits.guarantee;
      }
      if (source.Chance(0.3))
        root.limits.cap = source.Uniform(std::max(0.1, root.limits.guarantee), 1);
      const size_t parent = tenants.size();
      tenants.push_back(root);
      due.push_back(0);
      families.emplace_back();
      double left = root.limits.guarantee * 0.9, caps = 0;
      for (int c = source.Int(1, 4); c > 0; --c) {
        HarnessTenant child;
        child.parent = parent;
        child.limits.weight = source.LogUniform(1, 10);
        if (left > 0 && source.Chance(0.4)) {
          child.limits.guarantee = source.Uniform(0, left);
          left -= child.limits.guarantee;
        }
        if (source.Chance(0.2))
          child.limits.cap = source.Uniform(std::max(0.05, child.limits.guarantee), 1);
        child.kernels = Kernels(source, 2000);
        caps += child.limits.cap;
        families.back().push_back(tenants.size());
        tenants.push_back(child);
        due.push_back(0);
      }
      root.limits.cap = std::min(root.limits.cap, caps);  // they cannot use more than their caps
      root.kernels = {Micros(1)};
      roots.push_back(root);
    }
    const std::string what = Describe(seed, tenants);
    SCOPED_TRACE(what);
    const std::vector<double> of_roots = Entitlements(roots);
    double promised = 0;
    for (size_t f = 0; f < families.size(); ++f) {
      promised += of_roots[f];
      std::vector<HarnessTenant> members;
      for (const size_t i : families[f]) members.push_back(tenants[i]);
      const std::vector<double> of_members = Entitlements(members, of_roots[f]);
      for (size_t i = 0; i < members.size(); ++i) due[families[f][i]] = of_members[i];
    }
    std::vector<HarnessTenant> who_launch;
    for (const HarnessTenant& t : tenants) {
      if (!t.kernels.empty()) who_launch.push_back(t);
    }
    const double longest = Longest(who_launch);
    HarnessOptions options;
    options.seed = seed;
    Harness h(options, tenants);
    h.RunUntil(Seconds(4));
    const Nanos from = Seconds(1), to = Seconds(4);
    EXPECT_GE(h.Busy(from, to), std::min(1.0, promised) * 0.99);
    const double error = h.WorstShareError(due, from, to, Seconds(1), /*absolute=*/true);
    worst_of_all = std::max(worst_of_all, error);
    EXPECT_LE(error, 1.0 + 200 * longest);
    for (size_t f = 0; f < families.size(); ++f) {
      for (Nanos at = from; at + Seconds(1) <= to; at += Millis(10)) {
        double used = 0;
        for (const size_t i : families[f]) used += h.Used(i, at, at + Seconds(1)) / 1e9;
        ASSERT_NEAR(used, of_roots[f], 0.01 + 2 * longest) << "family " << f;
        ASSERT_LE(used, roots[f].limits.cap + 0.005 + longest) << "family " << f;
      }
    }
    EXPECT_STREQ(h.arbiter().CheckInvariants(), "");
  }
  RecordProperty("worst_pp", std::to_string(worst_of_all));
  std::printf("  worst second of any case: %.3f pp\n", worst_of_all);
}

TEST(Property, BooksBalanceWhateverTenantsDo) {
  for (uint64_t seed : Seeds(40)) {
    Source source(seed + 1'000'000);
    std::vector<HarnessTenant> tenants(static_cast<size_t>(source.Int(1, 10)));
    for (HarnessTenant& t : tenants) {
      t.limits.weight = source.LogUniform(0.1, 100);
      if (source.Chance(0.3)) t.limits.guarantee = source.Uniform(0, 1);  // the sum may exceed 1
      if (source.Chance(0.3)) t.limits.cap = source.Uniform(std::max(0.02, t.limits.guarantee), 1);
      if (source.Chance(0.3)) t.limits.band = static_cast<Band>(source.Int(0, 2));
      t.kernels = Kernels(source, 20'000);
      t.mode = static_cast<Mode>(source.Int(0, t.limits.band == Band::kHigh ? 2 : 1));
      if (t.limits.band == Band::kHigh) t.mode = Mode::kRequests;
      t.repeat = source.Int(1, 30);
      t.load = source.Uniform(0.05, 0.5);
      t.bias = source.LogUniform(0.3, 3);
      t.host_lo = Micros(source.Int(1, 5));
      t.host_hi = t.host_lo + Micros(source.Int(0, 20));
      if (source.Chance(0.2)) t.start = Millis(source.Int(1, 600));
      if (source.Chance(0.2)) t.stop = t.start + Millis(source.Int(1, 600));
    }
    const std::string what = Describe(seed, tenants);
    SCOPED_TRACE(what);
    HarnessOptions options;
    options.seed = seed;
    options.sms = source.Chance(0.5) ? 0 : 80;
    for (HarnessTenant& t : tenants) t.sms = source.Int(1, 200);
    options.check_invariants = true;
    options.arbiter.low_band_floor = source.Chance(0.5) ? 0.02 : 0;
    Harness h(options, tenants);
    for (int i = 0; i < 10; ++i) {
      const size_t who = static_cast<size_t>(source.Int(0, static_cast<int>(tenants.size()) - 1));
      TenantLimits limits = tenants[who].limits;
      limits.weight = source.LogUniform(0.1, 100);
      limits.guarantee = source.Chance(0.5) ? source.Uniform(0, 1) : 0;
      limits.cap = source.Chance(0.5) ? std::max(limits.guarantee, source.Uniform(0.02, 1)) : 1;
      if (limits.band != Band::kHigh) limits.band = static_cast<Band>(source.Int(1, 2));
      h.At(Millis(source.Int(1, 900)), [&h, who, limits] { h.Update(who, limits); });
    }
    h.RunUntil(Seconds(1));
    ASSERT_EQ(h.broken(), "");
    // Device time is conserved: the sum over the tenants equals the time that the device was busy, and the charges
    // equal the use, except for work in flight.
    double used = 0;
    for (size_t i = 0; i < tenants.size(); ++i) {
      used += h.Used(i, Nanos(0), Seconds(1));
      const auto view = h.arbiter().View(h.id(i));
      const double charged = static_cast<double>((view.charged - view.outstanding).count());
      const double in_flight = static_cast<double>(h.QueueLength(i) + 70) * 20e6 * 1.2;
      EXPECT_LE(charged, h.Used(i, Nanos(0), Seconds(1)) + 1e6) << "tenant " << i;
      EXPECT_GE(charged, h.Used(i, Nanos(0), Seconds(1)) - in_flight) << "tenant " << i;
    }
    EXPECT_NEAR(used, h.Busy(Nanos(0), Seconds(1)) * 1e9, 1e3);
  }
}

// Any sequence of calls with any arguments keeps the invariants. Grants go only to tenants that asked, are never
// smaller than asked for, and the next time to run is never in the past.
TEST(Property, RandomCallsKeepTheInvariants) {
  for (uint64_t seed : Seeds(30)) {
    Source source(seed + 2'000'000);
    SCOPED_TRACE("GPUSHARE_PROPERTY_SEED=" + std::to_string(seed));
    ArbiterOptions options;
    options.low_band_floor = source.Chance(0.3) ? 0.05 : 0;
    Arbiter arbiter(options);
    std::vector<TenantId> ids;
    std::vector<Nanos> asked(256, Nanos(0));  // by id; groups of families take some ids
    std::vector<Grant> grants;
    Nanos now{0};
    const auto limits = [&] {
      TenantLimits l;
      l.weight = source.LogUniform(1e-3, 1e3);
      if (source.Chance(0.3)) l.guarantee = source.Uniform(0, 1);
      if (source.Chance(0.3)) l.cap = source.Uniform(0.01, 1);
      l.band = static_cast<Band>(source.Int(0, 2));
      return l;
    };
    for (int step = 0; step < 3000; ++step) {
      now += Nanos(static_cast<int64_t>(source.LogUniform(1, 1e6)));
      const Time t(now - Nanos(source.Chance(0.05) ? 5000 : 0));  // an earlier clock reading
      const Nanos amount(static_cast<int64_t>(source.LogUniform(1, 1e8)));
      if (ids.empty() || (ids.size() < 40 && source.Chance(0.05))) {
        const bool is_child = !ids.empty() && source.Chance(0.4);
        const TenantId parent =
            is_child ? ids[static_cast<size_t>(source.Int(0, static_cast<int>(ids.size()) - 1))]
                     : kNoTenant;
        ids.push_back(arbiter.Add(limits(), t, parent));
        asked[ids.back()] = Nanos(0);
      }
      const size_t who = static_cast<size_t>(source.Int(0, static_cast<int>(ids.size()) - 1));
      const TenantId id = ids[who];
      const Phase phase = static_cast<Phase>(source.Int(0, 3));
      switch (source.Int(0, 17)) {
        case 0:
        case 1:
        case 2:
        case 3:
          asked[id] = amount;
          arbiter.Block(id, amount, source.Chance(0.05), t);
          break;
        case 4:
          arbiter.Unblock(id, t);
          break;
        case 5:
          arbiter.Sync(id, t);
          break;
        case 6:
          arbiter.Touch(id, t);
          break;
        case 7:
          arbiter.Charge(id, amount, t);
          break;
        case 8:
        case 9:
          arbiter.Settle(id, phase, amount, amount * source.Int(0, 3), source.Int(0, 3), t);
          break;
        case 10:
          arbiter.Launched(id, source.Int(0, 4), t);
          break;
        case 11:
          arbiter.Return(id, phase, amount, t);
          break;
        case 12:
          if (source.Chance(0.2)) {
            arbiter.Remove(id, t);
            ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(who));
          } else {
            arbiter.Update(id, limits(), t);
          }
          break;
        case 13:
          arbiter.HoldUp(id, t);
          break;
        case 14:
          arbiter.Resume(id, t);
          break;
        case 15:
          if (amount.count() % 4 == 0) {
            arbiter.Await(t);
          } else {
            arbiter.Foresee(t + amount * source.Int(-1, 2), t);
          }
          break;
        case 16:
          arbiter.HoldExclusive(id, source.Chance(0.1) ? kNever : t + amount);
          break;
        case 17:
          arbiter.SetGrant(id, amount * source.Int(-1, 1));
          break;
      }
      ASSERT_STREQ(arbiter.CheckInvariants(), "") << "step " << step;
      std::vector<bool> was_blocked(256, false);
      for (TenantId i : ids) was_blocked[i] = arbiter.View(i).blocked;
      grants.clear();
      const Time again = arbiter.Run(t, grants);
      ASSERT_GT(again, t);
      for (const Grant& g : grants) {
        ASSERT_TRUE(was_blocked[g.tenant]) << "step " << step;
        was_blocked[g.tenant] = false;  // and is granted only once
        ASSERT_GE(g.amount, asked[g.tenant]);
        ASSERT_FALSE(arbiter.View(g.tenant).blocked);
      }
      ASSERT_STREQ(arbiter.CheckInvariants(), "") << "step " << step << ", after Run";
    }
    // Without further calls every waiting tenant is served: work that is never settled does not block for ever. A
    // held exclusive lease would, so it ends here.
    for (TenantId id : ids) arbiter.HoldExclusive(id, Time(now));
    for (int i = 0; i < 100'000; ++i) {
      bool waiting = false;
      for (TenantId id : ids) waiting |= arbiter.View(id).blocked;
      if (!waiting) break;
      grants.clear();
      const Time again = arbiter.Run(Time(now), grants);
      for (const Grant& g : grants)
        arbiter.Settle(g.tenant, g.phase, g.amount, g.amount, 1, Time(now));
      if (grants.empty()) {
        ASSERT_NE(again, kNever) << "somebody waits, and nothing will wake them";
        now = again.time_since_epoch();
      }
    }
    for (TenantId id : ids) EXPECT_FALSE(arbiter.View(id).blocked);
  }
}

}  // namespace
}  // namespace gpushare::sched
