// SPDX-License-Identifier: Apache-2.0
#include "broker/link_book.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/broker/pages.h"

namespace gpushare::broker {
namespace {

constexpr uint64_t kLinkMiB = uint64_t{1} << 20;
constexpr double kLinkRate = 50;  // bytes per ns
constexpr Nanos kLinkPoll = Micros(20);
constexpr uint64_t kLinkIsUnbound = ipc::LimitsPage::kLinkUnbound;

// A process that copies to the device, as the gate does: it gives pieces while it has grants and room, and sees by polling what
// is done.
struct Copier {
  uint64_t piece = 4 * kLinkMiB;  // 0: it does not copy
  uint64_t most = 8 * kLinkMiB;   // in flight
  Nanos pause{0};                 // between two pieces, after the earlier is done
  bool reports = true;            // what is done
  Pages pages;
  LinkBook::Member* member = nullptr;
  uint64_t given = 0, done = 0;
  Time idle_since{};
};

// The device's link: pieces are copied one after the other, in the order in which they were given.
class LinkBookTest : public ::testing::Test {
 protected:
  void Add(Copier& copier, const TimeBook::Tenant& tenant) {
    copiers.push_back(&copier);
    copier.member = book.Join(&tenant, copier.pages.seat, changed);
  }
  TimeBook::Tenant* Tenant(double weight, TimeBook::Tenant* parent = nullptr,
                           sched::Band band = sched::Band::kNormal) {
    return tenants.AddTenant({.weight = weight, .band = band}, now, nullptr, parent);
  }
  void Give(Copier& copier) {
    const uint64_t granted = copier.pages.limits.link_granted[0];
    const bool bound = granted != 0 && granted != kLinkIsUnbound;
    const uint64_t window = copier.pages.limits.link_window[0];
    const uint64_t most = window != 0 ? std::min(copier.most, window) : copier.most;
    const uint64_t piece = std::min(copier.piece, most / 2);
    while (piece > 0 && copier.given - copier.done + piece <= most &&
           now - copier.idle_since >= copier.pause && (!bound || copier.given < granted)) {
      copier.given += piece;
      link.push_back({&copier, piece});
    }
    copier.pages.usage.link_given[0] = copier.given;
    copier.pages.usage.link_wanted[0] =
        bound && copier.piece > 0 ? copier.given + 64 * kLinkMiB : 0;
    if (copier.reports) copier.pages.usage.link_done[0] = copier.done;
  }
  // Returns the bytes that each has copied in this time.
  std::vector<double> Run(Nanos time) {
    std::vector<double> copied;
    for (const Copier* const copier : copiers) copied.push_back(-static_cast<double>(copier->done));
    for (const Time end = now + time; now < end; now += kLinkPoll) {
      for (Copier* const copier : copiers) Give(*copier);
      if (now >= look_at) look_at = std::min(book.Look(now, changed), now + Millis(5));
      double budget = rate * static_cast<double>(kLinkPoll.count());
      capacity += budget;
      while (!link.empty() && budget > 0) {
        Piece& first = link.front();
        const double step = std::min(budget, first.left);
        budget -= step;
        first.left -= step;
        moved += step;
        if (first.left > 0) break;
        first.of->done += first.bytes;
        first.of->idle_since = now;
        link.pop_front();
      }
    }
    for (size_t i = 0; i < copiers.size(); ++i) copied[i] += static_cast<double>(copiers[i]->done);
    return copied;
  }
  // The part of the link's time in which it was used since the last call.
  double Busy() { return std::exchange(moved, 0) / std::exchange(capacity, 0); }
  static double PartOf(const std::vector<double>& copied, size_t i) {
    double sum = 0;
    for (const double each : copied) sum += each;
    return copied.at(i) / sum;
  }

  struct Piece {
    Piece(Copier* copier, uint64_t size)
        : of(copier), bytes(size), left(static_cast<double>(size)) {}
    Copier* of;
    uint64_t bytes;
    double left;
  };
  TimeBook tenants;
  LinkBook book;
  Changed changed;
  Time now{Seconds(1)}, look_at{};
  std::vector<Copier*> copiers;
  std::deque<Piece> link;
  double moved = 0, capacity = 0;
  double rate = kLinkRate;
};

TEST_F(LinkBookTest, WhoCopiesAloneIsNotBound) {
  Copier alone, other{.piece = 0, .pages = {}};
  Add(alone, *Tenant(1));
  EXPECT_EQ(alone.pages.limits.link_granted[0], 0u);
  Add(other, *Tenant(1));
  EXPECT_EQ(alone.pages.limits.link_granted[0], kLinkIsUnbound);
  Run(Millis(50));
  EXPECT_EQ(alone.pages.limits.link_granted[0], kLinkIsUnbound);
  EXPECT_GT(Busy(), 0.99);
  book.Leave(other.member, changed);
  EXPECT_EQ(alone.pages.limits.link_granted[0], 0u);
}

TEST_F(LinkBookTest, WeightsDivideTheLinkWhateverTheSizesOfCopies) {
  Copier large, small{.piece = 1 * kLinkMiB, .most = 4 * kLinkMiB, .pages = {}},
      tiny{.piece = 128 << 10, .most = 2 * kLinkMiB, .pages = {}};
  Add(large, *Tenant(1));
  Add(small, *Tenant(2));
  Add(tiny, *Tenant(4));
  Run(Millis(100));
  Busy();
  const std::vector<double> copied = Run(Millis(500));
  EXPECT_NEAR(PartOf(copied, 0), 1.0 / 7, 0.01);
  EXPECT_NEAR(PartOf(copied, 1), 2.0 / 7, 0.01);
  EXPECT_NEAR(PartOf(copied, 2), 4.0 / 7, 0.01);
  EXPECT_GT(Busy(), 0.98);
}

TEST_F(LinkBookTest, AFamilyWeighsWhatItsParentDoesAndTwoProcessesWhatTheirTenantDoes) {
  TimeBook::Tenant* const parent = Tenant(1);
  TimeBook::Tenant* const other = Tenant(1);
  Copier first, second, third, fourth;
  Add(first, *Tenant(3, parent));
  Add(second, *Tenant(1, parent));
  Add(third, *other);
  Add(fourth, *other);
  Run(Millis(100));
  const std::vector<double> copied = Run(Millis(500));
  EXPECT_NEAR(PartOf(copied, 0), 3.0 / 8, 0.01);
  EXPECT_NEAR(PartOf(copied, 1), 1.0 / 8, 0.01);
  EXPECT_NEAR(PartOf(copied, 2), 1.0 / 4, 0.01);
  EXPECT_NEAR(PartOf(copied, 3), 1.0 / 4, 0.01);
}

TEST_F(LinkBookTest, WhatOneDoesNotCopyIsTheOthersAndNotSavedUp) {
  Copier first, second;
  Add(first, *Tenant(1));
  Add(second, *Tenant(1));
  Run(Millis(100));
  second.piece = 0;
  Run(Millis(50));
  EXPECT_EQ(first.pages.limits.link_granted[0], kLinkIsUnbound);
  Busy();
  Run(Millis(500));
  EXPECT_GT(Busy(), 0.99);
  second.piece = 4 * kLinkMiB;
  Run(Millis(20));
  EXPECT_NEAR(PartOf(Run(Millis(100)), 0), 0.5, 0.02);
  // One that has ended holds nobody up.
  book.Leave(second.member, changed);
  copiers.pop_back();
  Busy();
  Run(Millis(1));
  EXPECT_EQ(first.pages.limits.link_granted[0], 0u) << "from the next look on";
  Run(Millis(50));
  EXPECT_GT(Busy(), 0.98);
}

// Such a program has less than its part because it does not copy for most of the time.
TEST_F(LinkBookTest, WhoDoesNotKeepTheLinkBusyIsNotWaitedFor) {
  Copier always, seldom{.piece = 64 << 10, .most = 64 << 10, .pause = Micros(40), .pages = {}};
  Add(always, *Tenant(1));
  Add(seldom, *Tenant(1));
  Run(Millis(200));
  Busy();
  Run(Millis(1000));
  EXPECT_GT(Busy(), 0.98);
}

// The link copies 1 MiB from one look of the copiers to the next, so this one can have a quarter of it.
TEST_F(LinkBookTest, BesideWhoHasLittleInFlightTheOthersHaveLess) {
  Copier little{.piece = kLinkMiB / 8, .most = kLinkMiB / 4, .pages = {}}, much;
  Add(little, *Tenant(1));
  Add(much, *Tenant(1));
  Run(Millis(300));
  Busy();
  EXPECT_GT(PartOf(Run(Seconds(2)), 0), 0.18);
  EXPECT_GT(Busy(), 0.95);
  EXPECT_EQ(little.pages.limits.link_window[0].load(), 0u);
  EXPECT_GE(much.pages.limits.link_window[0].load(), LinkBook::kLeastWindow);
  EXPECT_LE(much.pages.limits.link_window[0].load(), 2 * kLinkMiB);
  // Beside one that has as much in flight, and alone, it is as it was.
  Copier other;
  Add(other, *Tenant(1));
  little.piece = 0;
  Run(Seconds(1));
  EXPECT_EQ(much.pages.limits.link_window[0].load(), 0u);
  Busy();
  EXPECT_NEAR(PartOf(Run(Millis(500)), 1), 0.5, 0.02);
  EXPECT_GT(Busy(), 0.95);
  little.piece = kLinkMiB / 8;
  other.piece = 0;
  Run(Millis(500));
  EXPECT_NE(much.pages.limits.link_window[0].load(), 0u);
  little.piece = 0;
  Run(Millis(50));
  EXPECT_EQ(much.pages.limits.link_window[0].load(), 0u);
}

TEST_F(LinkBookTest, PrioritiesShareTheLinkWithoutRegardToOneAnother) {
  Copier high, normal, low;
  Add(high, *Tenant(1, nullptr, sched::Band::kHigh));
  Add(normal, *Tenant(1));
  Add(low, *Tenant(1, nullptr, sched::Band::kLow));
  EXPECT_EQ(high.pages.limits.link_granted[0], 0u);
  Run(Millis(100));
  EXPECT_EQ(high.pages.limits.link_granted[0], 0u);
  EXPECT_EQ(normal.pages.limits.link_granted[0], kLinkIsUnbound);
  EXPECT_EQ(low.pages.limits.link_granted[0], kLinkIsUnbound);
}

TEST_F(LinkBookTest, NonsenseOfAProcessDoesNotKeepTheOthersFromTheLink) {
  Copier honest;
  Add(honest, *Tenant(1));
  Copier hostile{.piece = 0, .pages = {}};
  Add(hostile, *Tenant(1));
  copiers.pop_back();  // the test writes its page
  ipc::UsagePage& page = hostile.pages.usage;
  const auto run = [&](const auto& scribble) {
    for (int i = 0; i < 10000; ++i) {
      scribble(i);
      Run(Micros(100));
      if (i == 2000) Busy();
    }
    return Busy();
  };
  // It copies ever more, and none of it is ever done.
  EXPECT_GT(run([&](int) {
              page.link_given[0] += 64 * kLinkMiB;
              page.link_wanted[0] = UINT64_MAX;
            }),
            0.95);
  // It is done a byte at a time.
  EXPECT_GT(run([&](int) {
              page.link_given[0] += 1;
              page.link_done[0] += 1;
            }),
            0.95);
  page.link_given[0] = page.link_done[0] = UINT64_MAX;
  EXPECT_GT(run([&](int i) { page.link_done[0] = i % 2 == 0 ? 0 : UINT64_MAX; }), 0.95);
}

TEST_F(LinkBookTest, WhosePriorityIsChangedStartsLevelWithTheOthersOfTheNewOne) {
  Copier stays, changes, first{.piece = 0, .pages = {}}, second{.piece = 0, .pages = {}};
  TimeBook::Tenant* const tenant = Tenant(1);
  Add(stays, *Tenant(1));
  Add(changes, *tenant);
  Add(first, *Tenant(1, nullptr, sched::Band::kLow));
  Add(second, *Tenant(1, nullptr, sched::Band::kLow));
  Run(Seconds(2));
  first.piece = second.piece = 4 * kLinkMiB;
  Run(Millis(200));
  tenant->limits.band = sched::Band::kLow;
  stays.piece = 0;
  Run(Millis(50));
  std::vector<double> copied = Run(Millis(300));
  for (const size_t i : std::array<size_t, 3>{1, 2, 3})
    EXPECT_NEAR(PartOf(copied, i), 1.0 / 3, 0.02) << i;
  // And back, among those that have copied for longer.
  tenant->limits.band = sched::Band::kNormal;
  stays.piece = 4 * kLinkMiB;
  first.piece = second.piece = 0;
  Run(Millis(50));
  copied = Run(Millis(300));
  for (const size_t i : std::array<size_t, 2>{0, 1})
    EXPECT_NEAR(PartOf(copied, i), 1.0 / 2, 0.02) << i;
}

// What is done is what they say. In the end they stop, copy as others do, or end.
TEST_F(LinkBookTest, HoweverFastProcessesSayTheyWereWeightsDivideTheLinkSoonAfter) {
  for (const char* const then : {"they stop", "they copy", "they end"}) {
    SCOPED_TRACE(then);
    Copier light, heavy{.piece = 1 * kLinkMiB, .most = 2 * kLinkMiB, .pages = {}};
    Copier liar{.piece = 0, .pages = {}}, other{.piece = 0, .pages = {}};
    Add(light, *Tenant(1));
    Add(heavy, *Tenant(4));
    rate = 25;
    Run(Millis(200));
    for (Copier* const each : {&liar, &other}) {
      each->member = book.Join(Tenant(1), each->pages.seat, changed);
    }
    for (int i = 0; i < 600; ++i) {
      for (Copier* const each : {&liar, &other}) {
        each->given = each->done += uint64_t{1} << 32;
        each->pages.usage.link_given[0] = each->given;
        each->pages.usage.link_done[0] = each->done;
        each->pages.usage.link_wanted[0] = UINT64_MAX;
      }
      Run(Micros(100));
    }
    for (Copier* const each : {&liar, &other}) {
      each->pages.usage.link_wanted[0] = 0;
      if (std::string_view(then) == "they end") book.Leave(each->member, changed);
      if (std::string_view(then) != "they copy") continue;
      each->piece = 4 * kLinkMiB;
      copiers.push_back(each);
    }
    // While they are there, only time makes the mark less that they have set.
    Run(std::string_view(then) == "they end" ? Millis(150) : Millis(500));
    Busy();
    const std::vector<double> copied = Run(Millis(500));
    EXPECT_NEAR(copied.at(1) / copied.at(0), 4, 0.2);
    EXPECT_GT(Busy(), 0.95);
    if (std::string_view(then) != "they end") {
      for (Copier* const each : {&liar, &other}) book.Leave(each->member, changed);
    }
    for (Copier* const each : {&light, &heavy}) book.Leave(each->member, changed);
    copiers.clear();
    link.clear();
  }
}

TEST_F(LinkBookTest, ALookAtManyThatLieGrantsNoMoreThanTheGreatestDepth) {
  std::array<Pages, 64> liars;
  for (Pages& each : liars) book.Join(Tenant(1), each.seat, changed);
  uint64_t before = 0;
  for (int i = 0; i < 20; ++i) {
    for (Pages& each : liars) {
      each.usage.link_given[0] += uint64_t{1} << 32;
      each.usage.link_done[0] = each.usage.link_given[0].load();
      each.usage.link_wanted[0] = UINT64_MAX;
    }
    now = std::min(book.Look(now, changed), now + Millis(5));
    uint64_t granted = 0;
    for (const Pages& each : liars) {
      ASSERT_NE(each.limits.link_granted[0], kLinkIsUnbound);
      granted += each.limits.link_granted[0];
    }
    if (i > 0) {
      EXPECT_LE(granted - before, LinkBook::kMostDepth);
    }
    before = granted;
  }
}

}  // namespace
}  // namespace gpushare::broker
