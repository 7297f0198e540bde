// SPDX-License-Identifier: Apache-2.0
// State that outlasts the processes of tenants that are not listed, on the virtual clock.
#include "broker/registry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/broker/registry_bench.h"

namespace gpushare::broker {
namespace {

class RegistryTest : public RegistryBench {};

// Also when the configuration is read again.
TEST_F(RegistryTest, SliceAndFloorAreTheConfigurations) {
  Process& process = Start("a", "");
  process.pages.usage.time_wanted_ns = kSlice.count();
  Look(Nanos(0));
  EXPECT_EQ(process.pages.limits.grant_ns.load(), 4'000'000);
  process.pages.usage.time_used_ns = 4'000'000;
  Config config = Unlisted();
  config.slice = Millis(1);
  config.floor = 0.25;
  ASSERT_TRUE(Apply(config).ok());
  Look(Millis(10));
  EXPECT_EQ(process.pages.limits.grant_ns.load(), 1'000'000);

  Process& high = Start("b", "priority=high");
  const auto held = [&] { return (high.pages.limits.flags.load() & ipc::LimitsPage::kHeld) != 0; };
  high.pages.usage.time_wanted_ns = high.pages.usage.time_in_flight_ns = kSlice.count();
  for (int i = 0; i < 2000 && !held(); ++i) Look(Micros(100));
  EXPECT_TRUE(held());
  ASSERT_TRUE(Apply(Unlisted()).ok());
  Look(Millis(10));
  EXPECT_FALSE(held());
  for (int i = 0; i < 2000; ++i) {
    Look(Micros(100));
    ASSERT_FALSE(held());
  }
}

TEST_F(RegistryTest, WhoIsNotListedTakesNoGuaranteeOfOneThatIs) {
  Config config = Unlisted();
  for (const auto& [name, spec] :
       {std::pair("paid", "guarantee=50%"), std::pair("first", "priority=high,guarantee=20%")}) {
    TenantConfig& tenant = config.tenants.emplace_back();
    tenant.name = name;
    tenant.spec = spec;
  }
  ASSERT_TRUE(Apply(config).ok());
  EXPECT_EQ(Try("stranger", "priority=high").status().message(),
            absl::StrCat("tenant 'stranger' on GPU ", kGpuOfRegistry,
                         ": priority=high with a cap of 100% asked, 50% left beside what is "
                         "guaranteed to 'paid'; ask for a 'cap' of so much, or for no 'priority', "
                         "or have it listed"));
  Process& stranger = Start("stranger", "priority=high,cap=30%");
  EXPECT_EQ(Try("another", "priority=high,cap=30%").status().code(),
            absl::StatusCode::kResourceExhausted);
  Start("another", "priority=high,cap=20%");
  EXPECT_TRUE(Try("stranger", "priority=high,cap=30%").ok());  // one more process of it
  Start("modest", "");
  Start("first", "");  // as the configuration has it
  End(stranger);
  // Without any guarantee everything is as before.
  ASSERT_TRUE(Apply(Unlisted()).ok());
  Start("free", "priority=high");
}

TEST_F(RegistryTest, ALoopOfShortProcessesKeepsToTheCap) {
  for (const Nanos each : {Millis(5), Millis(20), Millis(300)}) {
    // The tolerance is the saved-up credit and a slice, relative to the window, and half a percentage point.
    EXPECT_LE(Loop("loop", "cap=20%", each, Seconds(4)), 0.2 + 0.005 + 5.1 / 4000) << each.count();
    EXPECT_LE(Loop("pauses", "cap=20%", each, Seconds(4), Millis(3)), 0.2 + 0.005 + 5.1 / 4000);
  }
  EXPECT_GE(Loop("loop", "cap=20%", Millis(300), Seconds(4)), 0.19);
}

TEST_F(RegistryTest, WhoOwesNothingAnyMoreIsForgotten) {
  Process& idle = Start("idle", "cap=20%");
  End(idle);
  EXPECT_EQ(Shown("idle"), nullptr);
  Process& busy = Start("busy", "cap=20%");
  Run(busy, Millis(100));
  End(busy);
  ASSERT_NE(Shown("busy"), nullptr);
  Look(Millis(1900));
  ASSERT_NE(Shown("busy"), nullptr);
  Look(Millis(200));  // its debt to the others' weights has expired
  EXPECT_EQ(Shown("busy"), nullptr);
  EXPECT_EQ(registry_.Look(now_, changed_), kNever);
}

TEST_F(RegistryTest, ALongKernelIsOwedAsLongAsItTakes) {
  Process& one = Start("kernel", "cap=1%");
  Run(one, Millis(5));
  one.pages.usage.time_used_ns += Seconds(1).count();
  End(one);
  Look(Seconds(60));
  Process& two = Start("kernel", "cap=1%");
  Run(two, Seconds(1));
  EXPECT_EQ(two.ran_ns, 0);
  End(two);
  Look(Seconds(42));
  EXPECT_EQ(Shown("kernel"), nullptr);
}

TEST_F(RegistryTest, ALimitOfCopiesIsKeptToByProcessesOneAfterAnother) {
  uint64_t granted = 0;
  const Time begin = now_;
  while (now_ - begin < Seconds(2)) {
    Process& process = Start("copies", "h2d=1GiB/s");
    process.pages.usage.copy_wanted[0] = kGibibyte;
    Look(Millis(1));
    granted += process.pages.limits.copy_granted[0].load();
    End(process);
  }
  EXPECT_LE(granted, 2.1 * kGibibyte);
}

TEST_F(RegistryTest, ADormantTenantKeepsNoMemoryAndNoGuarantee) {
  Process& one = Start("a", "memory=12GiB,guarantee=80%,cap=90%");
  Run(one, Millis(50));
  End(one);
  ASSERT_NE(Shown("a"), nullptr);
  EXPECT_EQ(Shown("a")->guarantee, 0);
  EXPECT_EQ(Shown("a")->memory_limit, UINT64_MAX);
  EXPECT_EQ(Shown("a")->cap, 0.9);
  Process& two = Start("b", "memory=12GiB,guarantee=80%");
  EXPECT_EQ(two.pages.granted(), 12 * kGibibyte);
  // Both are admitted anew.
  const absl::StatusOr<Process*> back = Try("a", "memory=12GiB,guarantee=80%,cap=90%");
  EXPECT_TRUE(absl::IsResourceExhausted(back.status())) << back.status();
  const absl::StatusOr<Process*> less = Try("a", "memory=4GiB,guarantee=20%,cap=90%");
  ASSERT_TRUE(less.ok()) << less.status();
  EXPECT_EQ((*less)->pages.granted(), 4 * kGibibyte);
  EXPECT_EQ(Shown("a")->guarantee, 0.2);
}

TEST_F(RegistryTest, OrdersOutlastProcesses) {
  End(Start("a", ""));
  Process* process = &Start("a", "memory=1GiB");
  ASSERT_TRUE(registry_.Suspend("a", true, now_, changed_).ok());
  ASSERT_TRUE(registry_.Set("a", "", "cap=10%", now_, changed_).ok());
  End(*process);
  Look(Seconds(3600));
  process = &Start("a", "memory=2GiB,cap=100%");
  Run(*process, Millis(100));
  EXPECT_EQ(process->ran_ns, 0);
  EXPECT_EQ(Shown("a")->cap, 0.1);
  ASSERT_TRUE(registry_.Suspend("a", false, now_, changed_).ok());
  Run(*process, Seconds(2));
  EXPECT_NEAR(static_cast<double>(process->ran_ns), 0.2e9, 0.015e9);
  ASSERT_TRUE(registry_.Drain("a", "", true, changed_).ok());
  End(*process);
  Look(Seconds(3600));
  EXPECT_TRUE(absl::IsUnavailable(Try("a", "").status()));
  ASSERT_TRUE(registry_.Drain("a", "", false, changed_).ok());
  Look(Nanos(0));
  ASSERT_NE(Shown("a"), nullptr);  // 'set' is in force still,
  ASSERT_TRUE(Apply(Unlisted()).ok());
  EXPECT_EQ(Shown("a"), nullptr);  // until the configuration is read again
}

TEST_F(RegistryTest, ADormantTenantCanBeOrdered) {
  Process& one = Start("a", "memory=12GiB,cap=50%");
  Run(one, Millis(50));
  End(one);
  ASSERT_TRUE(registry_.Set("a", "", "cap=10%", now_, changed_).ok());
  EXPECT_TRUE(
      absl::IsResourceExhausted(registry_.Set("a", "", "memory=17GiB", now_, changed_).status()));
  Look(Seconds(10));
  EXPECT_EQ(Shown("a")->cap, 0.1);
  EXPECT_EQ(Start("b", "memory=4GiB").pages.granted(), 4 * kGibibyte);
  EXPECT_EQ(Start("a", "memory=1GiB").pages.granted(), 12 * kGibibyte);  // as it was set
}

TEST_F(RegistryTest, ItsNameIsItsOwners) {
  Process& one = Start("a", "cap=20%");
  Run(one, Millis(50));
  End(one);
  EXPECT_TRUE(absl::IsPermissionDenied(Try("a", "", 1001).status()));
  Look(Seconds(3));
  EXPECT_TRUE(Try("a", "", 1001).ok());
}

TEST_F(RegistryTest, ListedAndNoLonger) {
  Process& one = Start("a", "memory=12GiB,cap=1%");
  Run(one, Millis(50));
  one.pages.usage.time_used_ns += Millis(100).count();
  End(one);
  Config config = Unlisted();
  config.tenants.emplace_back();
  config.tenants[0].name = "a";
  config.tenants[0].spec = "memory=8GiB,cap=1%";
  ASSERT_TRUE(Apply(config).ok());
  Process& two = Start("a", "");
  EXPECT_EQ(two.pages.granted(), 8 * kGibibyte);
  Run(two, Seconds(1));
  EXPECT_EQ(two.ran_ns, 0);  // its debt is not forgiven
  ASSERT_TRUE(Apply(Unlisted()).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Try("a", "", 0).status()));
  End(two);
  EXPECT_EQ(Shown("a"), nullptr);
  EXPECT_TRUE(Try("a", "memory=16GiB").ok());
}

TEST_F(RegistryTest, WhoIsNotListedAndStaysHasRoomInALaterConfiguration) {
  Process& process = Start("mine", "memory=12GiB", 7);
  Config config = Unlisted();
  config.reserve["*"] = "8GiB";
  const absl::Status refused = Apply(config);
  EXPECT_EQ(refused.message(),
            "to tenants that are not listed and have processes, GPU GPU-0 has 12 GiB promised of "
            "8 GiB, and 0% of its time guaranteed of 100%");
  Look(Nanos(0));
  EXPECT_EQ(registry_.TakeSnapshot(now_).gpus[0].memory, 16 * kGibibyte);
  End(process);
  EXPECT_TRUE(Apply(config).ok());
  Look(Nanos(0));
}

TEST_F(RegistryTest, WithoutUnlistedOnesThereAreNoDormantOnes) {
  Process& one = Start("a", "cap=1%");
  Run(one, Millis(50));
  ASSERT_TRUE(registry_.Suspend("a", true, now_, changed_).ok());
  End(one);
  ASSERT_TRUE(Apply(Config()).ok());
  EXPECT_EQ(Shown("a"), nullptr);
  EXPECT_TRUE(absl::IsNotFound(Try("a", "").status()));
}

TEST_F(RegistryTest, WhoIsWrongIsToldWhatThereIs) {
  Config config;
  for (int i = 0; i < 12; ++i) {
    TenantConfig& tenant = config.tenants.emplace_back();
    tenant.name = absl::StrCat("t", i / 10, i % 10);
    tenant.uids = {i < 3 ? 7u : 8u};
  }
  ASSERT_TRUE(Apply(config).ok());
  EXPECT_EQ(registry_.Suspend("t1", true, now_, changed_).message(),
            "no tenant 't1'; there are 't00', 't01', 't02', 't03', 't04', 't05', 't06', 't07', "
            "'t08', 't09' and 2 more");
  EXPECT_EQ(registry_.Drain("", "GPU-x", true, changed_).message().substr(0, 36),
            "the broker has no GPU GPU-x; it has ");
  EXPECT_EQ(
      registry_.Set("t00", "GPU-x", "cap=10%", now_, changed_).status().message().substr(0, 36),
      "the broker has no GPU GPU-x; it has ");
  // A process is told only of its own user's tenants.
  EXPECT_EQ(Try("", "", 7).status().message(),
            "the configuration names user 7 for 3 tenants ('t00', 't01', 't02'): say which with "
            "GPUSHARE_TENANT");
  EXPECT_EQ(
      Try("t", "", 7).status().message(),
      "there is no tenant 't': add it to the configuration, or allow 'unlisted' ones; user 7 may "
      "be 't00', 't01', 't02'");
  EXPECT_EQ(Try("t", "", 9).status().message(),
            "there is no tenant 't': add it to the configuration, or allow 'unlisted' ones");
  ASSERT_TRUE(Apply(Config()).ok());
  EXPECT_EQ(registry_.Suspend("t1", true, now_, changed_).message(),
            "no tenant 't1'; there is none");
}

TEST_F(RegistryTest, NothingGuaranteedIsNought) {
  Config config = Unlisted();
  config.tenants.emplace_back().name = "stays";
  ASSERT_TRUE(Apply(config).ok());
  Process& a = Start("a", "compute=30%");
  Process& b = Start("b", "compute=60%");
  EXPECT_NEAR(registry_.TakeSnapshot(now_).gpus.at(0).guaranteed, 0.9, 1e-9);
  End(a);
  End(b);
  const double guaranteed = registry_.TakeSnapshot(now_).gpus.at(0).guaranteed;
  EXPECT_EQ(guaranteed, 0);
  EXPECT_FALSE(std::signbit(guaranteed));
}

TEST_F(RegistryTest, AnyGroupOfAUserMayBeATenants) {
  Config config;
  for (const char* const name : {"lab", "staff", "web"}) config.tenants.emplace_back().name = name;
  config.tenants[0].gids = {5000};
  config.tenants[1].gids = {20, 5000};
  config.tenants[2].uids = {1000};
  ASSERT_TRUE(Apply(config).ok());
  const auto as = [&](const std::string& tenant, uint32_t uid, uint32_t gid,
                      std::vector<uint32_t> groups) {
    const Registry::Credentials who{
        .pid = 7, .uid = uid, .gid = gid, .began = 1, .groups = std::move(groups)};
    const absl::StatusOr<Registry::Session*> session =
        registry_.Register(who, {.tenant = tenant, .program = "", .spec = ""});
    if (!session.ok()) return std::string(absl::StatusCodeToString(session.status().code()));
    return (*session)->tenant->name;
  };
  EXPECT_EQ(as("lab", 1001, 1001, {27, 5000}), "lab");
  EXPECT_EQ(as("lab", 1001, 1001, {27, 500}), "PERMISSION_DENIED");
  EXPECT_EQ(as("lab", 1001, 1001, {}), "PERMISSION_DENIED");
  EXPECT_EQ(as("", 1001, 1001, {20}), "staff");
  EXPECT_EQ(as("", 1001, 1001, {5000}), "INVALID_ARGUMENT") << "it may be two";
  // Its user and its own group go first.
  EXPECT_EQ(as("", 1000, 1000, {5000}), "web");
  EXPECT_EQ(as("", 1001, 20, {5000}), "staff");
}

// A process's groups are not kept. One that comes back is asked for those that it has then, also if its tenant is drained.
TEST_F(RegistryTest, WhoWasAdmittedByAGroupComesBack) {
  Config config;
  config.tenants.emplace_back().name = "lab";
  config.tenants[0].gids = {5000};
  ASSERT_TRUE(Apply(config).ok());
  const auto as = [&](std::vector<uint32_t> groups) {
    return registry_.Register(
        {.pid = 7, .uid = 1, .gid = 1, .began = 1, .groups = std::move(groups)},
        {.tenant = "lab", .program = "", .spec = ""});
  };
  Registry::Session* const before = *as({5000});
  EXPECT_TRUE(before->who.groups.empty());
  Process& process = processes_.emplace_back();
  ipc::OpenGpu open;
  open.uuid = kGpuOfRegistry;
  ASSERT_TRUE(registry_.Open(*before, open, process.pages.seat, now_, changed_).ok());
  registry_.End(*before, now_, changed_);
  ASSERT_TRUE(registry_.Drain("lab", "", true, changed_).ok());
  EXPECT_FALSE(as({}).ok());
  EXPECT_TRUE(as({5000}).ok());
}

// A program may drop privileges after it has registered. Its pid and its beginning say that it is the same.
TEST_F(RegistryTest, AProcessThatHasChangedItsUserComesBackAsWhatItWas) {
  Config config;
  config.tenants.emplace_back();
  config.tenants[0].name = "a";
  config.tenants[0].spec = "memory=4GiB";
  config.tenants[0].uids = {0};
  ASSERT_TRUE(Apply(config).ok());
  Process& before = Start("a", "", 0);
  const Registry::Credentials was = before.session->who;
  before.pages.usage.memory_charged = 3 * kGibibyte;
  registry_.End(*before.session, now_, changed_);  // its connection is lost
  ipc::Hello hello;
  hello.tenant = "a";
  const auto as = [&](uint32_t uid, uint64_t began) {
    return registry_.Register({.pid = was.pid, .uid = uid, .began = began}, hello);
  };
  EXPECT_TRUE(absl::IsPermissionDenied(as(1000, was.began + 1).status())) << "another process";
  EXPECT_TRUE(absl::IsPermissionDenied(as(1000, 0).status())) << "perhaps another one";
  const absl::StatusOr<Registry::Session*> back = as(1000, was.began);
  ASSERT_TRUE(back.ok()) << back.status();
  Process& after = processes_.emplace_back();
  after.session = *back;
  ipc::OpenGpu open;
  open.uuid = kGpuOfRegistry;
  ASSERT_TRUE(registry_.Open(**back, open, after.pages.seat, now_, changed_).ok());
  EXPECT_EQ(after.pages.granted(), 4 * kGibibyte) << "what it had, once";
  EXPECT_EQ(Shown("a")->memory_granted, 4 * kGibibyte);
}

// What it was before counts for the program that it was.
TEST_F(RegistryTest, AProcessThatRunsAnotherProgramIsAdmittedAnew) {
  Config config;
  config.unlisted = true;
  config.tenants.emplace_back();
  config.tenants[0].name = "a";
  config.tenants[0].spec = "memory=4GiB";
  config.tenants[0].uids = {0};
  ASSERT_TRUE(Apply(config).ok());
  const auto as = [&](const std::string& tenant, uint32_t uid, uint64_t image) {
    return registry_.Register({.pid = 7, .uid = uid, .began = 1},
                              {.tenant = tenant, .program = "", .spec = "", .image = image});
  };
  Registry::Session* const before = *as("a", 0, 1);
  Process& process = processes_.emplace_back();
  ipc::OpenGpu open;
  open.uuid = kGpuOfRegistry;
  ASSERT_TRUE(registry_.Open(*before, open, process.pages.seat, now_, changed_).ok());
  registry_.End(*before, now_, changed_);
  EXPECT_TRUE(absl::IsPermissionDenied(as("a", 1000, 2).status()));
  ASSERT_TRUE(registry_.Drain("a", "", true, changed_).ok());
  EXPECT_TRUE(absl::IsUnavailable(as("a", 0, 2).status())) << "it would be a new process";
  EXPECT_TRUE(as("a", 1000, 1).ok()) << "it is the same program";
  ASSERT_TRUE(registry_.Drain("a", "", false, changed_).ok());
  // Another program of the process is another session, whichever tenant it is.
  for (const char* const tenant : {"a", "b"}) {
    const absl::StatusOr<Registry::Session*> next = as(tenant, 0, 3 + (uint64_t{1} << 63));
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_TRUE(Registry::Replaces(**next, *before));
    EXPECT_EQ((*next)->former, nullptr);
  }
  const absl::StatusOr<Registry::Session*> unknown = as("b", 0, 0);
  ASSERT_TRUE(unknown.ok());
  EXPECT_FALSE(Registry::Replaces(**unknown, *before));
  const absl::StatusOr<Registry::Session*> other = registry_.Register(
      {.pid = 8, .uid = 0, .began = 1}, {.tenant = "a", .program = "", .spec = "", .image = 3});
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(Registry::Replaces(**other, *before)) << "it is another process";
}

TEST_F(RegistryTest, NamesWithoutEndDoNotFillIt) {
  Process& held = Start("held", "cap=20%", 7);
  ASSERT_TRUE(registry_.Suspend("held", true, now_, changed_).ok());
  End(held);
  for (uint32_t i = 0; i < 3000; ++i) {
    Process& process = Start(absl::StrCat("name-", i), "cap=1%", i < 1000 ? 7 : i);
    Run(process, Micros(200));
    process.pages.usage.time_used_ns += Seconds(60).count();
    End(process);
    const size_t shares = registry_.TakeSnapshot(now_).shares.size();
    EXPECT_LE(shares, 1 + (i < 1000 ? Registry::kMostDormantOfOwner : Registry::kMostDormant));
  }
  EXPECT_EQ(registry_.TakeSnapshot(now_).shares.size(), Registry::kMostDormant + 1);
  EXPECT_TRUE(Shown("held")->suspended);
  Look(Seconds(25 * 3600));
  EXPECT_EQ(registry_.TakeSnapshot(now_).shares.size(), 1u);
}

TEST_F(RegistryTest, OrdersWithoutEndDoNotFillIt) {
  for (int i = 0; i < 200; ++i) {
    Process& process = Start(absl::StrCat("job-", i), "memory=1GiB");
    ASSERT_TRUE(registry_.Set(absl::StrCat("job-", i), "", "cap=10%", now_, changed_).ok());
    End(process);
  }
  EXPECT_EQ(registry_.TakeSnapshot(now_).shares.size(), Registry::kMostDormantOfOwner);
  EXPECT_EQ(Shown("job-100"), nullptr);
  EXPECT_NE(Shown("job-199"), nullptr);
}

TEST_F(RegistryTest, WhoHasNoNameIsNotRemembered) {
  Process& process = Start("", "cap=1%");
  Run(process, Millis(50));
  EXPECT_EQ(registry_.TakeSnapshot(now_).shares.size(), 1u);
  End(process);
  EXPECT_EQ(registry_.TakeSnapshot(now_).shares.size(), 0u);
}

TEST_F(RegistryTest, OrdersOutlastTheBroker) {
  Process& suspended = Start("suspended", "memory=12GiB");
  ASSERT_TRUE(registry_.Suspend("suspended", true, now_, changed_).ok());
  End(suspended);
  Process& set = Start("set", "memory=12GiB,guarantee=80%");
  ASSERT_TRUE(registry_.Set("set", "", "cap=90%", now_, changed_).ok());
  End(set);
  Process& lives = Start("lives", "memory=12GiB,guarantee=80%");
  lives.pages.Ask(12 * kGibibyte);
  Look(Nanos(0));
  const Remains remains = registry_.TakeRemains();
  Registry next(Gpus());
  ASSERT_TRUE(next.Apply(Unlisted(), now_, changed_).ok());
  next.Restore(remains, now_, changed_, [](const std::string& what, const absl::Status& why) {
    ADD_FAILURE() << what << ": " << why;
  });
  EXPECT_STREQ(next.CheckInvariants(), nullptr);
  const Snapshot snapshot = next.TakeSnapshot(now_);
  ASSERT_EQ(snapshot.shares.size(), 3u);
  EXPECT_EQ(snapshot.shares[0].memory_granted, 12 * kGibibyte);
  EXPECT_EQ(snapshot.shares[1].tenant, "set");
  EXPECT_EQ(snapshot.shares[1].cap, 0.9);
  EXPECT_TRUE(snapshot.shares[2].suspended);
  EXPECT_EQ(snapshot.gpus[0].memory_promised, 12 * kGibibyte);
  EXPECT_EQ(next.TakeRemains(), [&] {
    Remains same = remains;
    same.processes[0].session = next.sessions().front().id;
    return same;
  }());
  // The name still belongs to its owner, and the order still applies.
  EXPECT_FALSE(next.Register({.pid = 9, .uid = 7, .began = 1},
                             {.tenant = "suspended", .program = "", .spec = ""})
                   .ok());
  const auto back = next.Register({.pid = 9, .uid = 1000, .began = 1},
                                  {.tenant = "suspended", .program = "", .spec = ""});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE((*back)->tenant->suspended);
}

}  // namespace
}  // namespace gpushare::broker
