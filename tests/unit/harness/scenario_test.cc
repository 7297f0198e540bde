// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(about: words
question: share
length: 2s
warm_up: 500ms
window: 1s
cases:
  - name: two
    gpu: noise=0.03
    tenants:
      - {name: a, share: 75%, work: {kernels: 3us 5us, repeat: 4, sms: 160}}
      - {name: b, share: 25%, work: {model: resnet50, batch: 4, pass: training}, mode: sync}
)";

std::string Refused(const std::string& text) {
  const auto scenario = ParseScenario(text, "s.yaml");
  EXPECT_EQ(scenario.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(scenario.status().message());
}

// kGood with one part replaced.
std::string With(const std::string& part, const std::string& by) {
  std::string text = kGood;
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), by);
}

TEST(Scenario, IsReadWhole) {
  const auto scenario = ParseScenario(kGood, "folder/two-tenants.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  EXPECT_EQ(scenario->name, "two-tenants");
  EXPECT_EQ(scenario->about, "words");
  EXPECT_EQ(scenario->question, &ShareQuestion());
  EXPECT_EQ(scenario->length, Seconds(2));
  EXPECT_EQ(scenario->warm_up, Millis(500));
  ASSERT_EQ(scenario->cases.size(), 1u);
  const Case& one = scenario->cases[0];
  EXPECT_EQ(one.gpu, "noise=0.03");
  ASSERT_EQ(one.tenants.size(), 2u);
  EXPECT_EQ(one.tenants[0].ask.share, 0.75);
  EXPECT_EQ(one.tenants[0].work.kernels().size(), 8u);
  EXPECT_EQ(workload::Summarize(one.tenants[0].work).total, Micros(32));
  EXPECT_EQ(one.tenants[0].work.kernels()[0].sms, 160);
  EXPECT_EQ(one.tenants[1].mode, player::PlayMode::kSyncPerIteration);
  EXPECT_GT(one.tenants[1].work.kernels().size(), 100u);
}

TEST(Scenario, SaysWhereWhatIsWrongStands) {
  EXPECT_THAT(Refused(With("question: share", "question: speed")),
              HasSubstr("s.yaml:2: question: 'speed' given; allowed: share, cap, latency, "));
  EXPECT_EQ(Refused(With("length: 2s", "length: 2h")),
            "s.yaml:3: length: '2h' given; allowed: 10ms to 600s in steps of 10ms");
  EXPECT_EQ(Refused(With("share: 75%", "share: 101%")),
            "s.yaml:10: cases[0].tenants[0].share: '101%' given; allowed: 0.01% to 100%");
  EXPECT_THAT(Refused(With("share: 75%", "shares: 75%")), HasSubstr("there is no key 'shares'"));
  EXPECT_THAT(Refused(With("3us 5us", "3us 5")), HasSubstr("1 to 1000 times of 1us to 1s"));
  EXPECT_THAT(Refused(With("sms: 160", "sms: 5000")),
              HasSubstr("'5000' given; allowed: 1 to 4096"));
  EXPECT_THAT(
      Refused(With("name: b", "name: a")),
      HasSubstr("s.yaml:11: cases[0].tenants[1]: there is a tenant 'a' already, in line 10"));
  EXPECT_THAT(Refused(With("name: two", "name: two/three")), HasSubstr("a-z, 0-9 and '-'"));
  EXPECT_THAT(Refused(With("mode: sync", "load: 20%")),
              HasSubstr("'load' and 'rate' are of the modes 'requests' and 'batches'"));
  EXPECT_THAT(Refused(With("mode: sync", "mode: requests")),
              HasSubstr("the mode 'requests' needs either 'load' or 'rate'"));
  EXPECT_THAT(Refused(With("pass: training", "repeat: 2")), HasSubstr("are of 'kernels'"));
  EXPECT_THAT(Refused(With("model: resnet50", "trace: /nowhere.csv")), HasSubstr("are of 'model'"));
  EXPECT_THAT(Refused(With("{model: resnet50, batch: 4, pass: training}", "{trace: /nowhere.csv}")),
              HasSubstr("/nowhere.csv"));
  EXPECT_THAT(Refused(With("work: {kernels: 3us 5us, repeat: 4, sms: 160}", "work: {}")),
              HasSubstr("one of kernels, trace and model"));
}

TEST(Scenario, WhatIsAskedFitsTheQuestion) {
  EXPECT_EQ(Refused(With("share: 25%", "share: 26%")),
            "s.yaml:7: cases[0]: the shares of its tenants add up to 101%; 100% is wanted");
  EXPECT_THAT(Refused(With("share: 25%", "share: 24%")),
              HasSubstr("add up to 99%; 100% is wanted"));
  EXPECT_THAT(Refused(With("share: 25%, ", "")), HasSubstr("each tenant needs 'share'"));
  EXPECT_THAT(Refused(With("question: share", "question: cap")),
              HasSubstr("each tenant needs 'cap'"));
  EXPECT_THAT(Refused(With("question: share", "question: latency")), HasSubstr("'requests'"));
  EXPECT_THAT(Refused(With("warm_up: 500ms", "warm_up: 1500ms")), HasSubstr("no window after"));
  EXPECT_THAT(Refused(With("question: share\n", "")), HasSubstr("question: it is missing"));
  EXPECT_THAT(Refused("question: share\n"), HasSubstr("at least one is wanted"));
}

TEST(Scenario, IsTakenShort) {
  const std::string text =
      With("cases:\n",
           "short: {length: 300ms, warm_up: 100ms, window: 200ms, cases: [other]}\ncases:\n") +
      "  - {name: other, tenants: [{name: a, share: 100%, work: {kernels: 3us}}]}\n";
  const auto full = ParseScenario(text, "s.yaml");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->length, Seconds(2));
  EXPECT_EQ(full->cases.size(), 2u);
  const auto taken = ParseScenario(text, "s.yaml", nullptr, Length::kShort);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->length, Millis(300));
  EXPECT_EQ(taken->warm_up, Millis(100));
  EXPECT_EQ(taken->window, Millis(200));
  ASSERT_EQ(taken->cases.size(), 1u);
  EXPECT_EQ(taken->cases[0].name, "other");
  // Without such settings nothing changes.
  const auto without = ParseScenario(kGood, "s.yaml", nullptr, Length::kShort);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->length, Seconds(2));

  const auto refused = [](const char* by) {
    return Refused(With("cases:\n", std::string(by) + "\ncases:\n"));
  };
  EXPECT_EQ(
      refused("short: {length: 400ms}"),
      "s.yaml:6: short: it has no window after the warm-up: 400ms of length, 500ms of warm_up "
      "and 1s of window given; allowed: a length of the other two together or more");
  EXPECT_THAT(Refused(With("length: 2s", "length: 600ms")),
              HasSubstr("s.yaml:3: length: it has no window after the warm-up: 600ms of length, "));
  EXPECT_EQ(refused("short: {cases: [three]}"),
            "s.yaml:6: short.cases: 'three' given; allowed: names of cases, each once");
  EXPECT_THAT(refused("short: {cases: [two, two]}"), HasSubstr("each once"));
  EXPECT_THAT(refused("short: {repeat: 2}"), HasSubstr("there is no key 'repeat'"));
}

constexpr char kMemory[] = R"(question: memory
length: 1s
warm_up: 0s
window: 100ms
cases:
  - name: one
    tenants:
      - {name: a, memory: 2GiB, allocate: {sizes: 1GiB 1536MiB, from: malloc async, keep: 3, every: 5ms}}
)";
constexpr char kFaults[] = R"(question: faults
length: 1s
warm_up: 100ms
window: 100ms
cases:
  - name: one
    tenants:
      - {name: a, isolation: context, work: {kernels: 3us}, mode: sync, fault: {kind: endless-kernel, at: 500ms, sms: 66}}
      - {name: b, work: {kernels: 3us}}
)";

std::string Replaced(std::string text, const std::string& part, const std::string& by) {
  const size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return text.replace(at, part.size(), by);
}

TEST(Scenario, MemoryIsAskedForInAPattern) {
  const auto scenario = ParseScenario(kMemory, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const Tenant& a = scenario->cases[0].tenants[0];
  EXPECT_EQ(a.ask.memory, uint64_t{2} << 30);
  EXPECT_EQ(a.allocations, (Allocations{{uint64_t{1} << 30, uint64_t{3} << 29},
                                        {MemoryFamily::kMalloc, MemoryFamily::kAsync},
                                        3,
                                        Millis(5)}));
  EXPECT_TRUE(a.work.empty());
  const auto refused = [](const char* part, const char* by) {
    return Refused(Replaced(kMemory, part, by));
  };
  EXPECT_EQ(refused("1GiB 1536MiB", "1GiB 7"),
            "s.yaml:8: cases[0].tenants[0].allocate.sizes: '7' given; allowed: 1MiB to 1024TiB");
  EXPECT_THAT(refused("malloc async", "malloc sbrk"),
              HasSubstr("'sbrk' given; allowed: malloc, async, managed, virtual"));
  EXPECT_THAT(refused("keep: 3", "keep: 0"), HasSubstr("'0' given; allowed: 1 to 10000"));
  EXPECT_THAT(refused("every: 5ms", "every: 5us"), HasSubstr("allowed: 1ms to 600s"));
  EXPECT_THAT(refused("sizes: 1GiB 1536MiB, ", ""), HasSubstr("'sizes' is missing"));
  EXPECT_THAT(refused("memory: 2GiB, ", ""), HasSubstr("needs 'memory' and 'allocate'"));
  EXPECT_THAT(refused("memory: 2GiB", "memory: 0.5"), HasSubstr("allowed: 1MiB to 1024TiB"));
  EXPECT_THAT(refused("name: a, ", "name: a, fault: {kind: killed, at: 1s}, "),
              HasSubstr("there is no key 'fault'"));
  // The question has no such keys.
  EXPECT_THAT(Refused(With("share: 75%", "memory: 1GiB, share: 75%")),
              HasSubstr("there is no key 'memory'"));
}

TEST(Scenario, OneTenantBreaks) {
  const auto scenario = ParseScenario(kFaults, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const Tenant& a = scenario->cases[0].tenants[0];
  EXPECT_EQ(a.fault, (Fault{Fault::Kind::kEndlessKernel, Millis(500), 66}));
  EXPECT_TRUE(a.ask.own_context);
  const auto refused = [](const char* part, const char* by) {
    return Refused(Replaced(kFaults, part, by));
  };
  EXPECT_EQ(refused("kind: endless-kernel", "kind: flood"),
            "s.yaml:8: cases[0].tenants[0].fault.kind: 'flood' given; allowed: illegal-address, "
            "killed, endless-kernel, all-memory");
  EXPECT_THAT(refused(", sms: 66", ""), HasSubstr("'sms' is of the kind 'endless-kernel'"));
  EXPECT_THAT(refused("endless-kernel", "killed"), HasSubstr("'sms' is of the kind"));
  EXPECT_THAT(refused("at: 500ms, ", ""), HasSubstr("'at' is missing"));
  EXPECT_THAT(refused("kind: endless-kernel, ", ""), HasSubstr("'kind' is missing"));
  EXPECT_THAT(refused("at: 500ms", "at: 150ms"), HasSubstr("a window is wanted between"));
  EXPECT_THAT(refused("at: 500ms", "at: 950ms"), HasSubstr("a window is wanted between"));
  EXPECT_THAT(refused("isolation: context", "isolation: green"),
              HasSubstr("allowed: shared, context"));
  EXPECT_THAT(refused("fault: {kind: endless-kernel, at: 500ms, sms: 66}", "priority: high"),
              HasSubstr("one tenant has 'fault'"));
  EXPECT_THAT(refused("mode: sync", "mode: requests, load: 5%"), HasSubstr("'backlog' or 'sync'"));
}

constexpr char kScale[] = R"(question: scale
length: 1s
warm_up: 100ms
window: 100ms
cases:
  - name: one
    tenants:
      - {name: few, count: 2, share: 50%, mode: sync, work: {kernels: 3us}}
      - {name: one, share: 50%, work: {kernels: 3us}}
  - name: two
    apart: true
    tenants: [{name: process, count: 500, work: {kernels: 3us}}]
)";

TEST(Scenario, AnEntryMayStandForMany) {
  const auto scenario = ParseScenario(kScale, "s.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.status();
  const std::vector<Tenant>& tenants = scenario->cases[0].tenants;
  ASSERT_EQ(tenants.size(), 3u);
  EXPECT_EQ(tenants[0].name, "few-1");
  EXPECT_EQ(tenants[1].name, "few-2");
  EXPECT_EQ(tenants[1].ask.share, 0.25);
  EXPECT_EQ(tenants[1].group, tenants[0].group);
  EXPECT_EQ(tenants[2].name, "one");
  EXPECT_NE(tenants[2].group, tenants[0].group);
  EXPECT_FALSE(IsApart(scenario->cases[0]));
  EXPECT_TRUE(IsApart(scenario->cases[1]));
  EXPECT_EQ(scenario->cases[1].tenants.size(), 500u);
  const auto refused = [](const char* part, const char* by) {
    return Refused(Replaced(kScale, part, by));
  };
  EXPECT_EQ(refused("count: 2", "count: 10001"),
            "s.yaml:8: cases[0].tenants[0].count: '10001' given; allowed: 1 to 10000");
  EXPECT_THAT(refused("name: one, share", "name: one, count: 9999, share"),
              HasSubstr("at most 10000 tenants are allowed"));
  EXPECT_THAT(
      refused("count: 500", "count: 501"),
      HasSubstr("s.yaml:10: cases[1]: at most 500 tenants are allowed where they are apart"));
  EXPECT_THAT(refused("apart: true", "apart: maybe"), HasSubstr("s.yaml:11: cases[1].apart"));
  EXPECT_THAT(refused("apart: true", "apart: false"), HasSubstr("each tenant needs 'share'"));
  EXPECT_THAT(refused("mode: sync", "mode: requests, load: 5%"), HasSubstr("'backlog' or 'sync'"));
  EXPECT_THAT(refused("mode: sync, work: {kernels: 3us}",
                      "mode: batches, load: 5%, batches: {1: {kernels: 3us}}"),
              HasSubstr("'backlog' or 'sync'"));
  EXPECT_THAT(refused("count: 2, share: 50%, mode: sync, work: {kernels: 3us}",
                      "count: 9000, share: 50%, work: {kernels: 3us, repeat: 10000}"),
              HasSubstr("at most 10000000 kernels of all tenants together"));
}

TEST(Scenario, NamesOfManyAreNobodyElses) {
  const auto named = [](const char* name) {
    return Replaced(kScale, "name: one, share", absl::StrCat("name: ", name, ", share").c_str());
  };
  constexpr char kThere[] = "s.yaml:9: cases[0].tenants[1]: there is a tenant '";
  EXPECT_EQ(Refused(named("few-2")), absl::StrCat(kThere, "few-2' already, in line 8"));
  EXPECT_TRUE(ParseScenario(named("few-1, count: 3"), "s.yaml").ok());  // few-1-1 and so on
  EXPECT_EQ(Refused(named("few")), absl::StrCat(kThere, "few' already, in line 8"));
  EXPECT_TRUE(ParseScenario(named("few-3"), "s.yaml").ok());
  const auto before = ParseScenario(Replaced(kScale, "name: few", "name: job-1b"), "s.yaml");
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_EQ(before->cases[0].tenants[1].name, "job-1b-2");
  EXPECT_EQ(before->cases[0].tenants[1].entry, "job-1b");
  EXPECT_EQ(before->cases[0].tenants[2].entry, "one");
}

TEST(Scenario, OverheadIsOfOneTenant) {
  const std::string two =
      Replaced(Replaced(With("question: share", "question: overhead"), "share: 75%, ", ""),
               "share: 25%, ", "");
  EXPECT_THAT(Refused(two), HasSubstr("one tenant is wanted for the question 'overhead'"));
}

TEST(Scenario, SharesOfThirdsAddUp) {
  const std::string text = With("share: 75%", "share: 33.33%");
  std::string thirds = text;
  thirds.replace(thirds.find("share: 25%"), 10, "share: 66.67%");
  EXPECT_TRUE(ParseScenario(thirds, "s.yaml").ok());
}

TEST(Scenario, CapsAreParts) {
  const std::string cap = With("question: share", "question: cap");
  const auto with = [&](const std::string& part) {
    std::string text = cap;
    for (const char* share : {"share: 75%", "share: 25%"}) {
      text.replace(text.find(share), 10, "cap: " + part);
    }
    return text;
  };
  EXPECT_TRUE(ParseScenario(with("100%"), "s.yaml").ok());  // of both: they are no shares
  for (const char* part : {"0%", "-1%", "100.1%", "nan%"}) {
    EXPECT_THAT(Refused(with(part)), HasSubstr("tenants[0].cap: ")) << part;
  }
}

TEST(Scenario, OthersMayDelayWhoHasHighPriority) {
  const auto with = [](const std::string& asks) {
    return With("mode: sync}", "priority: high, " + asks + ", mode: sync}");
  };
  for (const auto& [text, delay] : {std::pair{"0%", 0.0}, {"5%", 0.05}, {"20%", 0.2}}) {
    const auto scenario = ParseScenario(with(std::string("delay: ") + text), "s.yaml");
    ASSERT_TRUE(scenario.ok()) << scenario.status();
    EXPECT_EQ(scenario->cases[0].tenants[0].ask.delay, std::nullopt);
    EXPECT_EQ(scenario->cases[0].tenants[1].ask.delay, delay);
  }
  EXPECT_THAT(Refused(with("delay: 21%")),
              HasSubstr("tenants[1].delay: '21%' given; allowed: 0% to 20%"));
  EXPECT_THAT(Refused(with("delay: -1%")), HasSubstr("tenants[1].delay: "));
  EXPECT_THAT(Refused(With("mode: sync}", "delay: 5%, mode: sync}")),
              HasSubstr("tenants[1]: 'delay' is of 'priority: high'"));
}

TEST(Scenario, TimesAreMultiplesOfASample) {
  EXPECT_EQ(Refused(With("warm_up: 500ms", "warm_up: 505ms")),
            "s.yaml:4: warm_up: '505ms' given; allowed: 0s to 600s in steps of 10ms");
  EXPECT_THAT(Refused(With("window: 1s", "window: 1005ms")), HasSubstr("in steps of 10ms"));
  EXPECT_THAT(Refused(With("length: 2s", "length: 2001ms")), HasSubstr("in steps of 10ms"));
}

TEST(Scenario, CasesHaveDifferentNames) {
  const std::string text = kGood;
  EXPECT_THAT(Refused(text + text.substr(text.find("  - name: two"))),
              HasSubstr("s.yaml:12: cases[1]: there is a case 'two' already, in line 7"));
}

TEST(Scenario, RequestsAreNotCountless) {
  const std::string text = R"(question: latency
length: 600s
cases:
  - name: one
    tenants: [{name: a, mode: requests, load: 100%, work: {kernels: 1us}}]
)";
  EXPECT_EQ(
      Refused(text),
      "s.yaml:4: cases[0]: some 600000000 requests in 600s; at most 1000000 are allowed: less "
      "'load' or 'rate', longer 'work' or a shorter 'length'");
}

TEST(Scenario, SettingsOfTheGpuAreChecked) {
  const CheckGpu check = [](const std::string& settings) {
    return settings == "noise=0.03" ? absl::OkStatus() : absl::InvalidArgumentError("no such key");
  };
  EXPECT_TRUE(ParseScenario(kGood, "s.yaml", check).ok());
  EXPECT_EQ(
      std::string(ParseScenario(With("noise=0.03", "noize=1"), "s.yaml", check).status().message()),
      "s.yaml:8: cases[0].gpu: 'noize=1' given; no such key");
}

TEST(Scenario, TwoOfOneNameAreRefused) {
  const std::string share =
      absl::StrCat(std::getenv("GPUSHARE_SOURCE"), "/bench/scenarios/share.yaml");
  EXPECT_TRUE(LoadScenarios({share}).ok());
  const auto twice = LoadScenarios({share, share});
  EXPECT_THAT(std::string(twice.status().message()),
              HasSubstr("share.yaml: there is a scenario 'share' already: "));
}

TEST(Scenario, ThoseOfTheProjectAreGood) {
  const char* const source = std::getenv("GPUSHARE_SOURCE");
  ASSERT_NE(source, nullptr);
  int count = 0;
  for (const auto& each :
       std::filesystem::directory_iterator(absl::StrCat(source, "/bench/scenarios"))) {
    const auto scenario = LoadScenario(each.path().string());
    EXPECT_TRUE(scenario.ok()) << scenario.status();
    ++count;
  }
  EXPECT_GE(count, 3);
  EXPECT_EQ(LoadScenario("/nowhere.yaml").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace gpushare::harness
