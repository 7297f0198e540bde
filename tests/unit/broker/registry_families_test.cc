// SPDX-License-Identifier: Apache-2.0
// Tenants of a registry that have a parent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/json.h"
#include "tests/unit/broker/registry_bench.h"

namespace gpushare::broker {
namespace {

using ::testing::HasSubstr;

class RegistryFamilies : public RegistryBench {
 protected:
  struct Entry {
    std::string name, spec, parent = {};
  };
  static Config Of(const std::vector<Entry>& entries) {
    Config config;
    for (const Entry& entry : entries) {
      TenantConfig& tenant = config.tenants.emplace_back();
      tenant.name = entry.name;
      tenant.spec = entry.spec;
      tenant.parent = entry.parent;
    }
    return config;
  }
  void Use(const std::vector<Entry>& entries) {
    const absl::Status applied = Apply(Of(entries));
    ASSERT_TRUE(applied.ok()) << applied;
    ASSERT_STREQ(registry_.CheckInvariants(), nullptr);
  }
  // A refused configuration changes nothing.
  std::string Refused(const std::vector<Entry>& entries) {
    const std::string before = ToJson(registry_.TakeSnapshot(now_));
    const absl::Status applied = Apply(Of(entries));
    EXPECT_FALSE(applied.ok());
    EXPECT_EQ(ToJson(registry_.TakeSnapshot(now_)), before);
    EXPECT_STREQ(registry_.CheckInvariants(), nullptr);
    return std::string(applied.message());
  }
  std::string SetRefused(const std::string& tenant, const std::string& change) {
    return std::string(registry_.Set(tenant, "", change, now_, changed_).status().message());
  }
  // Takes all memory that it can get, 64 MiB at a time, while the others answer.
  void Fill(Process& process) {
    constexpr uint64_t kPiece = 64 << 20;
    for (;;) {
      process.pages.Ask(process.pages.usage.memory_charged + kPiece);
      for (int i = 0; i < 1000 && !process.pages.answered(); ++i) {
        Look(Millis(1));
        for (Process& each : processes_) {
          if (each.session != nullptr) each.pages.AnswerRecall();
        }
      }
      if (process.pages.granted() < process.pages.usage.memory_charged + kPiece) return;
      process.pages.usage.memory_charged += kPiece;
    }
  }
};

TEST_F(RegistryFamilies, WhatAChildIsPromisedComesOutOfItsParents) {
  Use({{"team", "memory=10GiB,guarantee=60%"},
       {"a", "memory=10GiB,guarantee=40%", "team"},
       {"b", "memory=10GiB,guarantee=20%", "team"},
       {"other", "memory=6GiB,guarantee=40%"}});
  const Snapshot snapshot = registry_.TakeSnapshot(now_);
  EXPECT_EQ(snapshot.gpus[0].memory_promised, 16 * kGibibyte);
  EXPECT_NEAR(snapshot.gpus[0].guaranteed, 1, 1e-9);
  EXPECT_EQ(Shown("a")->parent, "team");
  EXPECT_EQ(Shown("team")->parent, "");
}

TEST_F(RegistryFamilies, AllTogetherHoldNoMoreThanTheParentsQuota) {
  Use({{"team", "memory=4GiB"},
       {"a", "memory=3GiB", "team"},
       {"b", "memory=3GiB", "team"},
       {"c", "", "team"},
       {"other", "memory=1GiB"}});
  Process &a = Start("a", ""), &b = Start("b", ""), &c = Start("c", ""),
          &other = Start("other", "");
  Process& team = Start("team", "");
  Fill(a);
  EXPECT_EQ(a.pages.usage.memory_charged.load(), 3 * kGibibyte);
  Fill(b);
  EXPECT_EQ(b.pages.usage.memory_charged.load(), 1 * kGibibyte);
  for (Process* const late : {&c, &team}) {
    Fill(*late);
    EXPECT_EQ(late->pages.usage.memory_charged.load(), 0u);
  }
  EXPECT_EQ(Shown("team")->memory_used, 4 * kGibibyte) << "of all of them";
  EXPECT_EQ(Shown("team")->memory_peak, 4 * kGibibyte);
  EXPECT_EQ(Shown("a")->memory_used, 3 * kGibibyte);
  Fill(other);
  EXPECT_EQ(other.pages.usage.memory_charged.load(), kGibibyte) << "it has what is its own";
  // What one leaves is its siblings', with and without a quota of their own.
  End(a);
  Fill(c);
  EXPECT_EQ(c.pages.usage.memory_charged.load(), 3 * kGibibyte);
}

// Its process sees the quota that bounds it.
TEST_F(RegistryFamilies, AProcessIsToldTheQuotaThatBoundsIt) {
  Use({{"team", "memory=4GiB,priority=low"}, {"a", "memory=8GiB", "team"}, {"b", "", "team"}});
  const auto told = [this](const std::string& tenant) {
    ipc::Hello hello;
    hello.tenant = tenant;
    Process& process = processes_.emplace_back();
    process.session = *registry_.Register({.pid = ++pid_, .uid = 1000, .began = 1}, hello);
    ipc::OpenGpu open;
    open.uuid = kGpuOfRegistry;
    return registry_.Open(*process.session, open, process.pages.seat, now_, changed_).value_or("-");
  };
  EXPECT_EQ(told("a"), "memory=4GiB,priority=low");
  EXPECT_EQ(told("b"), "memory=4GiB,priority=low");
  // A lower limit of the parent's is a lower one of its children's.
  ASSERT_TRUE(registry_.Set("team", "", "memory=2GiB", now_, changed_).ok());
  EXPECT_EQ(Shown("a")->memory_limit, 2 * kGibibyte);
  ASSERT_TRUE(registry_.Set("team", "", "memory=16GiB", now_, changed_).ok());
  EXPECT_EQ(Shown("a")->memory_limit, 8 * kGibibyte);
}

TEST_F(RegistryFamilies, AChangeIsWithinTheParent) {
  Use({{"team", "memory=4GiB,guarantee=50%,cap=80%"},
       {"a", "guarantee=30%", "team"},
       {"b", "", "team"}});
  EXPECT_EQ(SetRefused("b", "guarantee=30%"),
            "on GPU GPU-0: tenant 'b': a guarantee of 30% asked, 20% left of the 50% of its parent "
            "'team' (30% guaranteed to its other children); ask for less ('compute' or "
            "'guarantee'), or raise the parent's");
  EXPECT_TRUE(registry_.Set("b", "", "guarantee=20%", now_, changed_).ok());
  EXPECT_THAT(SetRefused("b", "priority=high"), HasSubstr("priority: high given, but its parent "
                                                          "'team' is normal"));
  const std::string less = SetRefused("team", "guarantee=40%");
  EXPECT_THAT(less, HasSubstr("tenant 'team' on GPU GPU-0: then its child does not fit: tenant "
                              "'b': a guarantee of 20% asked, 10% left of the 40%"));
  EXPECT_EQ(Shown("team")->guarantee, 0.5);
  // Children without a priority of their own have the parent's.
  EXPECT_TRUE(registry_.Set("team", "", "priority=low", now_, changed_).ok());
  EXPECT_EQ(Shown("a")->priority, "low");
  // A guarantee holds at the parent's priority, so that of a child below it would not be kept.
  EXPECT_TRUE(registry_.Set("a", "", "priority=low", now_, changed_).ok());
  EXPECT_THAT(
      SetRefused("team", "priority=high"),
      HasSubstr("then its child does not fit: tenant 'a': a guarantee of 30% at priority low "
                "asked, but its parent 'team' is high"));
  EXPECT_TRUE(registry_.Set("a", "", "guarantee=0%", now_, changed_).ok());
  EXPECT_TRUE(registry_.Set("team", "", "priority=high", now_, changed_).ok());
  EXPECT_THAT(SetRefused("a", "guarantee=10%"), HasSubstr("leave out the child's 'compute'"));
  EXPECT_EQ(Shown("a")->priority, "low");
  EXPECT_EQ(Shown("b")->priority, "high");
}

TEST_F(RegistryFamilies, SuspendingTheParentHoldsItsOwnWork) {
  Use({{"team", "memory=4GiB"}, {"a", "", "team"}});
  Process &team = Start("team", ""), &a = Start("a", "");
  ASSERT_TRUE(registry_.Suspend("team", true, now_, changed_).ok());
  EXPECT_TRUE(team.pages.limits.flags & ipc::LimitsPage::kSuspended);
  EXPECT_FALSE(a.pages.limits.flags & ipc::LimitsPage::kSuspended);
  Run(a, Millis(20));
  EXPECT_GT(a.ran_ns, 0);
}

TEST_F(RegistryFamilies, ATenantWithoutProcessesChangesItsParent) {
  Use({{"one", "memory=8GiB,guarantee=50%"},
       {"two", "memory=8GiB,guarantee=50%"},
       {"a", "memory=4GiB,guarantee=30%", "one"}});
  Use({{"one", "memory=8GiB,guarantee=50%"},
       {"two", "memory=8GiB,guarantee=50%"},
       {"a", "memory=4GiB,guarantee=30%", "two"}});
  EXPECT_EQ(Shown("a")->parent, "two");
  Use({{"one", "memory=4GiB"}, {"two", "memory=4GiB"}, {"a", "memory=4GiB,guarantee=30%"}});
  EXPECT_EQ(Shown("a")->parent, "");
  EXPECT_EQ(registry_.TakeSnapshot(now_).gpus[0].memory_promised, 12 * kGibibyte);
  // The child becomes the parent.
  Use({{"a", "memory=8GiB", "one"}, {"one", "memory=8GiB"}});
  Use({{"a", "memory=8GiB"}, {"one", "memory=8GiB", "a"}});
  EXPECT_EQ(Shown("one")->parent, "a");
  EXPECT_EQ(Shown("two"), nullptr);
  // Its child is not listed any more, and it gets a parent itself.
  Use({{"a", "memory=8GiB", "b"}, {"b", "memory=8GiB"}});
  EXPECT_EQ(Shown("one"), nullptr);
  Use({});
  EXPECT_TRUE(registry_.TakeSnapshot(now_).shares.empty());
}

// What a parent had is free in the same change that takes it and its children away, or gives them another parent.
TEST_F(RegistryFamilies, AFamilyWithoutProcessesMakesRoomAtOnce) {
  Use({{"one", "memory=10GiB"}, {"a", "", "one"}});
  Use({{"two", "memory=10GiB"}, {"a", "", "two"}});
  EXPECT_EQ(Shown("a")->parent, "two");
  Use({{"x", "memory=10GiB"}});
  EXPECT_EQ(registry_.TakeSnapshot(now_).gpus[0].memory_promised, 10 * kGibibyte);
}

TEST_F(RegistryFamilies, OneWithProcessesKeepsItsParent) {
  Use({{"one", "memory=8GiB"}, {"a", "memory=4GiB", "one"}});
  Process& a = Start("a", "");
  EXPECT_EQ(Refused({{"one", "memory=4GiB"}, {"a", "memory=4GiB"}}),
            "tenant 'a': its parent cannot be another one while its processes run; end them first");
  EXPECT_THAT(Refused({{"one", ""}}), HasSubstr("a quota of memory cannot come or go"));
  EXPECT_EQ(Refused({{"one", "memory=4GiB", "two"}, {"two", "memory=8GiB"}}),
            "tenant 'one': it cannot have a parent while processes of its own child 'a' run; end "
            "them first");
  // Neither is listed any more: both stay as long as the process does.
  Use({});
  ASSERT_NE(Shown("one"), nullptr);
  EXPECT_EQ(Shown("a")->parent, "one");
  EXPECT_FALSE(Try("a", "").ok());
  Fill(a);
  EXPECT_EQ(a.pages.usage.memory_charged.load(), 4 * kGibibyte);
  End(a);
  EXPECT_TRUE(registry_.TakeSnapshot(now_).shares.empty());
}

// What a child that is not listed any more has of its parent's stays its own while its processes run.
TEST_F(RegistryFamilies, WhoIsNoLongerListedCountsWhileItRuns) {
  Use({{"team", "memory=8GiB,guarantee=50%"}, {"a", "guarantee=40%", "team"}});
  Process& a = Start("a", "");
  EXPECT_THAT(Refused({{"team", "memory=8GiB,guarantee=50%"}, {"b", "guarantee=20%", "team"}}),
              HasSubstr("tenant 'b': a guarantee of 20% asked, 10% left of the 50%"));
  EXPECT_THAT(Refused({{"team", "memory=8GiB,guarantee=30%"}}),
              HasSubstr("tenant 'a': a guarantee of 40% asked, 30% left"));
  Use({{"team", "memory=8GiB,guarantee=50%,priority=low"}, {"b", "guarantee=10%", "team"}});
  EXPECT_EQ(Shown("a")->priority, "low");
  End(a);
  EXPECT_EQ(Shown("a"), nullptr);
  Use({{"team", "memory=8GiB,guarantee=50%"}, {"b", "guarantee=50%", "team"}});
}

TEST_F(RegistryFamilies, OutlastsTheBroker) {
  const std::vector<Entry> listed = {{"team", "memory=8GiB,guarantee=50%"},
                                     {"a", "memory=4GiB,guarantee=20%", "team"},
                                     {"b", "memory=8GiB", "team"}};
  Use(listed);
  Process &a = Start("a", ""), &b = Start("b", "");
  Fill(a);
  Fill(b);
  ASSERT_TRUE(registry_.Set("team", "", "guarantee=80%", now_, changed_).ok());
  ASSERT_TRUE(registry_.Set("a", "", "guarantee=70%", now_, changed_).ok());
  const Remains remains = registry_.TakeRemains();
  std::vector<std::string> dropped;
  const auto note = [&](const std::string& what, const absl::Status& why) {
    dropped.push_back(absl::StrCat(what, ": ", why.message()));
  };
  {
    Registry next(Gpus());
    ASSERT_TRUE(next.Apply(Of(listed), now_, changed_).ok());
    next.Restore(remains, now_, changed_, note);
    EXPECT_STREQ(next.CheckInvariants(), nullptr);
    EXPECT_TRUE(dropped.empty()) << dropped[0];
    const Snapshot snapshot = next.TakeSnapshot(now_);
    EXPECT_EQ(snapshot.gpus[0].guaranteed, 0.8);
    EXPECT_EQ(snapshot.shares[0].guarantee, 0.7);
    EXPECT_EQ(snapshot.shares[2].tenant, "team");
    EXPECT_EQ(snapshot.shares[2].memory_granted, 8 * kGibibyte);
  }
  // They are not listed any more, but still hold what they hold, within the parent.
  Use({});
  {
    Registry next(Gpus());
    ASSERT_TRUE(
        next.Apply(Of({{"all", "memory=8GiB"}, {"team", "memory=8GiB", "all"}}), now_, changed_)
            .ok());
    next.Restore(registry_.TakeRemains(), now_, changed_, note);
    EXPECT_STREQ(next.CheckInvariants(), nullptr);
    EXPECT_THAT(dropped, ::testing::Contains(HasSubstr(
                             "the parent 'team' of tenant 'a': 'team' has a parent itself now")));
    dropped.clear();
  }
  Registry next(Gpus());
  ASSERT_TRUE(next.Apply(Config(), now_, changed_).ok());
  const std::vector<Registry::Session*> restored =
      next.Restore(registry_.TakeRemains(), now_, changed_, note);
  ASSERT_EQ(restored.size(), 2u);
  EXPECT_TRUE(dropped.empty()) << dropped[0];
  EXPECT_STREQ(next.CheckInvariants(), nullptr);
  const Snapshot snapshot = next.TakeSnapshot(now_);
  ASSERT_EQ(snapshot.shares.size(), 3u) << ToJson(snapshot);
  EXPECT_EQ(snapshot.shares[0].parent, "team");
  EXPECT_EQ(snapshot.gpus[0].memory_promised, 8 * kGibibyte);
  for (Registry::Session* const session : restored) next.Free(session, now_, changed_);
  EXPECT_TRUE(next.TakeSnapshot(now_).shares.empty());
  EXPECT_STREQ(next.CheckInvariants(), nullptr);
}

// On two GPUs, of which the second has less room for the family than the first.
TEST_F(RegistryFamilies, ARestartLosesNothingOfAFamilyThatNoLongerFits) {
  const std::vector<GpuInfo> gpus = {
      {.uuid = "GPU-0", .memory = 16 * kGibibyte, .reserve = 0, .sm_count = 132},
      {.uuid = "GPU-1", .memory = 16 * kGibibyte, .reserve = 0, .sm_count = 132}};
  Config before = Of({{"team", "memory=8GiB,guarantee=50%,cap=70%"},
                      {"a", "memory=6GiB,guarantee=40%,weight=3", "team"},
                      {"b", "memory=2GiB", "team"},
                      {"c", "", "team"}});
  before.tenants[0].on["GPU-1"] = "memory=12GiB";
  Registry last(gpus);
  ASSERT_TRUE(last.Apply(before, now_, changed_).ok());
  const auto start = [&](Registry& registry, const std::string& tenant, int32_t pid) {
    const auto session = registry.Register({.pid = pid, .uid = 1000, .began = 1},
                                           {.tenant = tenant, .program = "", .spec = ""});
    EXPECT_TRUE(session.ok()) << session.status();
    std::map<std::string, Process*> on;
    for (const GpuInfo& gpu : gpus) {
      Process& process = *(on[gpu.uuid] = &processes_.emplace_back());
      ipc::OpenGpu open;
      open.uuid = gpu.uuid;
      const auto given = registry.Open(**session, open, process.pages.seat, now_, changed_);
      EXPECT_TRUE(given.ok()) << given.status();
    }
    return on;
  };
  const auto ask = [&](Registry& registry, Process& process, uint64_t bytes) {
    process.pages.Ask(bytes);
    for (int i = 0; i < 1000 && !process.pages.answered(); ++i) {
      registry.Look(now_ += Millis(1), changed_);
      for (Process& each : processes_) each.pages.AnswerRecall();
    }
    process.pages.usage.memory_charged = std::min(bytes, process.pages.granted());
    return process.pages.granted() >= bytes;
  };
  const std::pair<std::string, uint64_t> wanted[] = {{"a", 6}, {"b", 2}, {"c", 0}};
  int32_t pid = 0;
  for (const auto& [tenant, gibibytes] : wanted) {
    for (const auto& [gpu, process] : start(last, tenant, ++pid)) {
      EXPECT_TRUE(ask(last, *process, gibibytes * kGibibyte));
      process->pages.usage.memory_charged = process->pages.granted();  // the last has what is left
    }
  }
  const uint64_t held[2] = {8 * kGibibyte, 12 * kGibibyte};
  const Remains remains = last.TakeRemains();

  struct Now {
    Config config;
    bool knows_gpus = true;
    uint64_t quota[2] = {};  // of the family, on each GPU
    double guarantee[2] = {};
  };
  Config less = Of({{"team", "memory=1GiB,guarantee=10%"}});
  Config others = Of({{"other", "memory=10GiB,guarantee=80%"}});
  others.tenants[0].on["GPU-0"] = "memory=4GiB,guarantee=50%";
  Config full = Of({{"other", "memory=4GiB"}});
  full.tenants[0].on["GPU-1"] = "memory=100%";
  Config listed = before;  // the GPUs are not known, so it could not be checked
  listed.tenants[0].on["GPU-1"] = "memory=17GiB";
  const Now cases[] = {
      {less, true, {kGibibyte, kGibibyte}, {0.1, 0.1}},
      {others, true, {8 * kGibibyte, 6 * kGibibyte}, {0.5, 0}},
      {full, true, {8 * kGibibyte, 0}, {0.5, 0.5}},
      {listed, false, {8 * kGibibyte, 16 * kGibibyte}, {0.5, 0.5}},
  };
  for (const Now& now : cases) {
    SCOPED_TRACE(absl::StrCat("case ", &now - cases));
    Registry next(now.knows_gpus ? gpus : std::vector<GpuInfo>());
    ASSERT_TRUE(next.Apply(now.config, now_, changed_).ok());
    Remains left = remains;
    for (const GpuInfo& gpu : gpus) {
      if (!now.knows_gpus) left.gpus.push_back({gpu.uuid, gpu.memory, gpu.sm_count});
    }
    std::vector<std::string> dropped;
    const std::vector<Registry::Session*> restored =
        next.Restore(left, now_, changed_, [&](const std::string& what, const absl::Status& why) {
          dropped.push_back(absl::StrCat(what, ": ", why.message()));
          EXPECT_THAT(what, HasSubstr("a part of the share of tenant"));
        });
    ASSERT_STREQ(next.CheckInvariants(), nullptr);
    const auto shown = [&](const std::string& tenant, const std::string& gpu) {
      for (const Share& share : next.TakeSnapshot(now_).shares) {
        if (share.tenant == tenant && share.gpu == gpu) return share;
      }
      ADD_FAILURE() << tenant << " has no share of " << gpu;
      return Share();
    };
    for (const size_t i : {0u, 1u}) {
      const std::string& gpu = gpus[i].uuid;
      EXPECT_EQ(shown("team", gpu).memory_granted, held[i]);
      EXPECT_EQ(shown("team", gpu).memory_limit, now.quota[i]);
      EXPECT_EQ(shown("team", gpu).guarantee, now.guarantee[i]);
      for (const char* const child : {"a", "b", "c"}) EXPECT_EQ(shown(child, gpu).parent, "team");
      EXPECT_EQ(shown("a", gpu).memory_granted, 6 * kGibibyte);
      EXPECT_EQ(shown("a", gpu).guarantee, now.guarantee[i] >= 0.4 ? 0.4 : 0);
      EXPECT_EQ(shown("a", gpu).weight, 3);
    }
    // They come back to what they had, and have no more than the family's quota leaves.
    std::map<std::string, Process*> back;
    for (int32_t i = 0; i < 3; ++i) {
      back = start(next, wanted[i].first, i + 1);
      for (const auto& [gpu, process] : back) {
        process->pages.usage.memory_charged = process->pages.granted();
      }
    }
    for (const size_t i : {0u, 1u}) {
      // One that is alone in its book is granted what there is.
      EXPECT_EQ(shown("team", gpus[i].uuid).memory_granted, std::max(held[i], now.quota[i]));
      Process& process = *back[gpus[i].uuid];
      EXPECT_FALSE(ask(next, process, process.pages.granted() + 1));
      EXPECT_STREQ(next.CheckInvariants(), nullptr);
    }
    // A configuration that is read again counts them as they are.
    if (now.knows_gpus) {
      const absl::Status again = next.Apply(now.config, now_, changed_);
      EXPECT_TRUE(again.ok()) << again;
    }
    while (!next.sessions().empty()) {
      next.Free(const_cast<Registry::Session*>(&next.sessions().front()), now_, changed_);
    }
    EXPECT_STREQ(next.CheckInvariants(), nullptr);
    if (now.knows_gpus) {
      EXPECT_LE(next.TakeSnapshot(now_).shares.size(), 2u);
    }
  }
}

// Whatever follows whatever, a configuration is applied as a whole or not at all, and the books are right.
TEST_F(RegistryFamilies, AnyConfigurationsOneAfterAnother) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  const char* const specs[] = {"memory=4GiB",
                               "memory=2GiB,guarantee=30%",
                               "guarantee=20%",
                               "",
                               "memory=3GiB,priority=low",
                               "memory=25%,priority=high,cap=50%"};
  const std::string names[] = {"a", "b", "c", "d", "e"};
  std::map<std::string, int> applied;
  int refused = 0;
  const auto any = [&] {
    Config config;
    config.unlisted = below(2) == 0;
    if (below(3) == 0) config.reserve["*"] = below(2) == 0 ? "6GiB" : "12GiB";
    const bool lists = below(8) > 0;
    for (const std::string& name : names) {
      if (!lists || below(4) == 0) continue;
      TenantConfig& tenant = config.tenants.emplace_back();
      tenant.name = name;
      tenant.spec = specs[below(6)];
    }
    for (TenantConfig& tenant : config.tenants) {
      const std::string& other = config.tenants[below(2) % config.tenants.size()].name;
      if (below(2) == 0 && other != tenant.name) tenant.parent = other;
    }
    return config;
  };
  int restarts = 0;
  for (int round = 0; round < 20'000; ++round) {
    switch (below(6)) {
      case 0: {
        const Config config = any();
        const std::string before = ToJson(registry_.TakeSnapshot(now_));
        const absl::Status status = Apply(config);
        if (status.ok()) {
          size_t children = 0;
          for (const TenantConfig& tenant : config.tenants) children += !tenant.parent.empty();
          ++applied[absl::StrCat(children)];
        } else {
          ++refused;
          ASSERT_EQ(ToJson(registry_.TakeSnapshot(now_)), before) << status;
        }
        break;
      }
      case 1: {
        const auto process = Try(names[below(5)], specs[below(6)]);
        if (process.ok()) (*process)->pages.Ask(below(4) * kGibibyte);
        break;
      }
      case 2: {
        std::vector<Process*> running;
        for (Process& process : processes_) {
          if (process.session != nullptr) running.push_back(&process);
        }
        if (running.size() > 1) End(*running[below(static_cast<uint32_t>(running.size()))]);
        break;
      }
      case 3:
        registry_.Set(names[below(5)], "", specs[below(6)], now_, changed_).IgnoreError();
        break;
      case 4: {  // the next broker, perhaps with another configuration
        Registry next(Gpus());
        const Config config = below(2) == 0 ? registry_.config() : any();
        if (!next.Apply(config, now_, changed_).ok()) break;
        const auto ignore = [](const std::string&, const absl::Status&) {};
        const Remains remains = registry_.TakeRemains();
        const std::vector<Registry::Session*> restored =
            next.Restore(remains, now_, changed_, ignore);
        ASSERT_EQ(restored.size(), remains.processes.size());
        for (size_t i = 0; i < restored.size(); ++i) {
          ASSERT_EQ(restored[i]->places.size(), remains.processes[i].holds.size()) << round;
          for (const Registry::Place& place : restored[i]->places) {
            ASSERT_EQ(place.memory->granted, remains.processes[i].holds[0].granted) << round;
          }
        }
        for (Registry::Session* const session : restored) {
          ASSERT_STREQ(next.CheckInvariants(), nullptr) << round;
          next.Free(session, now_, changed_);
          ++restarts;
        }
        ASSERT_STREQ(next.CheckInvariants(), nullptr) << round;
        break;
      }
      default:
        Look(Millis(200));
    }
    ASSERT_STREQ(registry_.CheckInvariants(), nullptr) << round;
  }
  EXPECT_GT(restarts, 500);
  EXPECT_GT(refused, 50);
  EXPECT_GT(applied["0"], 5);
  EXPECT_GT(applied["1"], 5);
  EXPECT_GT(applied["2"], 5);
}

}  // namespace
}  // namespace gpushare::broker
