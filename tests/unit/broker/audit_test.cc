// SPDX-License-Identifier: Apache-2.0
#include "broker/audit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>

#include "broker/auditor.h"

namespace gpushare::broker {
namespace {

constexpr uint64_t kAuditMiB = 1 << 20, kAllowance = 512 * kAuditMiB;
const OnGpu kOne{"GPU-1", 100}, kTwo{"GPU-1", 200}, kElsewhere{"GPU-2", 100};

// Both figures are in MiB.
Claims Says(uint64_t says, uint64_t granted = 8192) {
  return {{kOne, {says * kAuditMiB, granted * kAuditMiB}}};
}
AuditResult ResultOf(const Audit& audit, const OnGpu& process = kOne) {
  const Findings findings = audit.Result();
  const auto at = findings.find(process);
  return at == findings.end() ? AuditResult::kNone : at->second.what;
}
AuditResult ResultOf(const Claims& claims, uint64_t counted) {
  Audit audit(kAllowance);
  audit.Add(claims, {{kOne, counted * kAuditMiB}}, claims);
  return ResultOf(audit);
}

TEST(Audit, HoldsWhatIsSaidAgainstWhatIsCounted) {
  EXPECT_EQ(ResultOf(Says(1000), 1512), AuditResult::kNone);
  EXPECT_EQ(ResultOf(Says(1000), 1513), AuditResult::kUnderstates);
  EXPECT_EQ(ResultOf(Says(1000), 0), AuditResult::kNone);
  // Whatever the process says, its grant is known.
  EXPECT_EQ(ResultOf(Says(9000, 4096), 4096 + 513), AuditResult::kOverGrant);
  EXPECT_EQ(ResultOf(Says(9000, 4096), 4096 + 512), AuditResult::kNone);
  EXPECT_EQ(ResultOf({}, 1), AuditResult::kStranger);
  // Sums of nonsense values do not wrap.
  EXPECT_EQ(ResultOf({{kOne, {UINT64_MAX, UINT64_MAX}}}, 9000), AuditResult::kNone);
}

uint64_t OverheadOf(const Audit& audit, const OnGpu& process = kOne) {
  return audit.Result().at(process).overhead;
}

// The memory of contexts, modules and libraries: the driver's count minus the process's own figure.
TEST(Audit, EstimatesWhatIsNotCharged) {
  Audit audit(kAllowance);
  audit.Add(Says(1000), {{kOne, 1300 * kAuditMiB}, {kTwo, 300 * kAuditMiB}}, Says(1000));
  EXPECT_EQ(OverheadOf(audit), 300 * kAuditMiB);
  EXPECT_EQ(OverheadOf(audit, kTwo), UINT64_MAX) << "a stranger's is all its own";
  // If the process allocated or freed between its two figures, the driver may have counted either.
  audit.Add(Says(1000), {{kOne, 1500 * kAuditMiB}}, Says(1200));
  EXPECT_EQ(OverheadOf(audit), 300 * kAuditMiB);
  audit.Add(Says(0), {{kOne, 300 * kAuditMiB}}, Says(1000));
  EXPECT_EQ(OverheadOf(audit), 300 * kAuditMiB);
  audit.Add(Says(1000), {{kOne, 900 * kAuditMiB}}, Says(600));
  EXPECT_EQ(OverheadOf(audit), 300 * kAuditMiB);
  // Of several figures the lowest counts. It is never below zero.
  audit.Add(Says(1000), {{kOne, 1250 * kAuditMiB}}, Says(1000));
  EXPECT_EQ(OverheadOf(audit), 250 * kAuditMiB);
  audit.Add(Says(1000), {{kOne, 900 * kAuditMiB}}, Says(1000));
  EXPECT_EQ(OverheadOf(audit), 0u);
  // A process that understates has no estimate, and neither has one without a figure of the driver.
  Audit liar(kAllowance);
  liar.Add(Says(1000), {{kOne, 1513 * kAuditMiB}}, Says(1000));
  EXPECT_EQ(OverheadOf(liar), UINT64_MAX);
  Audit without(kAllowance);
  without.Add(Says(1000), {{kOne, std::nullopt}}, Says(1000));
  EXPECT_EQ(OverheadOf(without), UINT64_MAX);
}

// A process may change the figures on its page at any time, to anything.
TEST(Audit, WhoSaysNowThisAndNowThatHidesNoMoreThanItsGrant) {
  for (const uint64_t counted : {uint64_t{4096 + 513}, uint64_t{4096 + 512}, uint64_t{4000}}) {
    Audit audit(kAllowance);
    for (int i = 0; i < 24; ++i) {
      const Claims nothing = Says(0, 4096), everything = {{kOne, {UINT64_MAX, 4096 * kAuditMiB}}};
      audit.Add(i % 2 == 0 ? nothing : everything, {{kOne, counted * kAuditMiB}},
                i % 3 == 0 ? nothing : everything);
    }
    const auto found = audit.Result().at(kOne);
    EXPECT_EQ(found.what, counted > 4096 + 512 ? AuditResult::kOverGrant : AuditResult::kNone)
        << counted;
    // The estimated overhead is at most the driver's count.
    EXPECT_TRUE(found.overhead == UINT64_MAX || found.overhead <= counted * kAuditMiB) << counted;
  }
}

TEST(Audit, IsOfAProcessOnAGpu) {
  Audit audit(kAllowance);
  audit.Add(Says(0), {{kOne, 1}, {kTwo, 1}, {kElsewhere, 1}}, Says(0));
  EXPECT_EQ(ResultOf(audit), AuditResult::kNone);
  EXPECT_EQ(ResultOf(audit, kTwo), AuditResult::kStranger);
  EXPECT_EQ(ResultOf(audit, kElsewhere), AuditResult::kStranger);
}

TEST(Audit, MoreLooksClearWhoeverWasOnlySeenAtTheWrongMoment) {
  Audit audit(kAllowance);
  audit.Add(Says(0), {{kOne, 2000 * kAuditMiB}}, Says(0));
  EXPECT_TRUE(audit.Suspects());
  audit.Add(Says(0), {{kOne, 2000 * kAuditMiB}}, Says(2000));
  EXPECT_FALSE(audit.Suspects());
  EXPECT_EQ(ResultOf(audit), AuditResult::kNone);
  // A process that ends or starts in between gives no finding.
  Audit gone(kAllowance);
  gone.Add(Says(0), {{kOne, 2000 * kAuditMiB}}, Says(0));
  gone.Add(Says(0), {}, {});
  EXPECT_FALSE(gone.Suspects());
  EXPECT_EQ(ResultOf(gone), AuditResult::kNone);
}

TEST(Audit, WithoutAFigureWhatItHoldsIsNotKnown) {
  Audit never(kAllowance);
  never.Add(Says(0), {{kOne, std::nullopt}, {kTwo, std::nullopt}}, Says(0));
  EXPECT_FALSE(never.Suspects());
  ASSERT_EQ(never.Result().count(kOne), 1u);  // the process is listed
  EXPECT_EQ(never.Result().at(kOne).counted, UINT64_MAX);
  EXPECT_EQ(ResultOf(never), AuditResult::kNone);
  EXPECT_EQ(ResultOf(never, kTwo), AuditResult::kNone);
  // A single missing figure does not clear the process.
  Audit once(kAllowance);
  once.Add(Says(0), {{kOne, 2000 * kAuditMiB}}, Says(0));
  once.Add(Says(0), {{kOne, std::nullopt}}, Says(0));
  EXPECT_EQ(ResultOf(once), AuditResult::kUnderstates);
  EXPECT_EQ(once.Result().at(kOne).counted, 2000 * kAuditMiB);
}

// A process's use changes all the time, and its page is up to 160 ms late. Looks are 10 ms apart.
TEST(Audit, NeverFindsOneThatAllocatesBusilyAndSaysSo) {
  std::mt19937_64 random(7);
  const auto below = [&](uint64_t n) { return random() % n; };
  for (int round = 0; round < 2000; ++round) {
    // A history of one second by milliseconds: what the process holds, and for how long.
    uint64_t held[1000], said[1000];
    const uint64_t longest = uint64_t{1} << below(9), most = 4096 + below(4096);
    for (size_t at = 0; at < 1000;) {
      const uint64_t now = below(3) == 0 ? 0 : below(most);
      for (uint64_t end = at + 1 + below(longest); at < std::min<uint64_t>(end, 1000); ++at) {
        held[at] = now;
      }
    }
    uint64_t says = held[0];
    for (size_t at = 0, publish = 0; at < 1000; ++at) {
      if (at >= publish) {
        says = held[at];
        publish = at + 20 + below(141);
      }
      said[at] = says;
    }
    Audit audit(kAllowance);
    size_t at = below(500);
    for (int look = 0; look < 24 && (look == 0 || audit.Suspects()); ++look, at += 10) {
      audit.Add(Says(said[at]), {{kOne, (held[at + 1] + 300) * kAuditMiB}}, Says(said[at + 2]));
    }
    ASSERT_EQ(ResultOf(audit), AuditResult::kNone) << "round " << round;
  }
}

Findings Found(AuditResult what, const OnGpu& process = kOne) {
  return {{process, {.what = what, .counted = 5, .claim = {}, .program = {}}}};
}

TEST(AuditLog, ReportsWhatHoldsTwice) {
  AuditLog log;
  EXPECT_TRUE(log.Take(Found(AuditResult::kUnderstates)).news.empty());
  EXPECT_EQ(log.report().processes.at(kOne).what, AuditResult::kNone);
  ASSERT_EQ(log.Take(Found(AuditResult::kUnderstates)).news.size(), 1u);
  EXPECT_EQ(log.report().processes.at(kOne).what, AuditResult::kUnderstates);
  EXPECT_TRUE(log.Take(Found(AuditResult::kUnderstates)).news.empty());  // already reported
  const AuditReport& over = log.Take(Found(AuditResult::kNone));
  ASSERT_EQ(over.news.size(), 1u);
  EXPECT_EQ(over.news.at(kOne).what, AuditResult::kNone);
  EXPECT_EQ(over.audits, 4u);
}

// Findings about time have occurred three times before they get here. They come with or without the driver's figures
// of memory.
TEST(AuditLog, ReportsWhatIsFoundOfTimeAsItComes) {
  Findings of_time = Found(AuditResult::kUnderstatesTime);
  Findings nothing = Found(AuditResult::kNone);
  of_time.at(kOne).counted = nothing.at(kOne).counted = UINT64_MAX;
  AuditLog log;
  EXPECT_TRUE(log.Take(nothing).news.empty());
  EXPECT_EQ(log.Take(of_time).news.at(kOne).what, AuditResult::kUnderstatesTime);
  EXPECT_TRUE(log.Take(of_time).news.empty());
  EXPECT_EQ(log.report().processes.at(kOne).what, AuditResult::kUnderstatesTime);
  EXPECT_EQ(log.Take(nothing).news.at(kOne).what, AuditResult::kNone);
  EXPECT_EQ(log.Take(of_time).news.size(), 1u);
  EXPECT_TRUE(log.Take(Found(AuditResult::kOverGrant)).news.empty());  // it is still being found
  EXPECT_EQ(log.report().processes.at(kOne).what, AuditResult::kOverGrant);
}

TEST(AuditLog, WhatWasFoundIsNotOverWhileThereIsNoFigure) {
  const Findings unknown = {
      {kOne, {.what = AuditResult::kNone, .counted = UINT64_MAX, .claim = {}, .program = {}}}};
  AuditLog log;
  EXPECT_TRUE(log.Take(unknown).news.empty());
  EXPECT_EQ(log.report().processes.at(kOne).counted, UINT64_MAX);
  log.Take(Found(AuditResult::kOverGrant));
  EXPECT_TRUE(log.Take(unknown).news.empty());
  EXPECT_EQ(log.Take(Found(AuditResult::kOverGrant)).news.size(), 1u);
  EXPECT_TRUE(log.Take(unknown).news.empty());
  EXPECT_EQ(log.report().processes.at(kOne).what, AuditResult::kOverGrant);
  EXPECT_EQ(log.Take(Found(AuditResult::kNone)).news.size(), 1u);
  EXPECT_TRUE(log.Take(unknown).news.empty());
}

// A process that alternates between kinds of findings is found all the same, and reported once.
TEST(AuditLog, ReportsWhatHoldsTwiceWhateverItIsCalled) {
  AuditLog log;
  size_t told = 0;
  const AuditResult kinds[] = {AuditResult::kUnderstates, AuditResult::kOverGrant,
                               AuditResult::kStranger};
  for (size_t i = 0; i < 20; ++i) {
    told += log.Take(Found(kinds[i % 3])).news.size();
    EXPECT_EQ(log.report().processes.at(kOne).what, i == 0 ? AuditResult::kNone : kinds[i % 3]);
  }
  EXPECT_EQ(told, 1u);
  EXPECT_EQ(log.Take(Found(AuditResult::kNone)).news.size(), 1u);
  EXPECT_TRUE(log.Take(Found(AuditResult::kOverGrant)).news.empty());
}

TEST(AuditLog, WhatWasFoundIsForgottenWhereNothingIsAuditedAnyMore) {
  AuditLog log;
  for (int i = 0; i < 2; ++i) log.Take(Found(AuditResult::kStranger));
  log.Forget();
  Snapshot snapshot;
  snapshot.gpus = {{.uuid = "GPU-1"}};
  log.report().AddTo(&snapshot);
  EXPECT_TRUE(snapshot.gpus[0].strangers.empty());
  EXPECT_FALSE(snapshot.audited);
  EXPECT_EQ(snapshot.audits, 2u);
  EXPECT_TRUE(log.Take(Found(AuditResult::kStranger)).news.empty());
  EXPECT_EQ(log.Take(Found(AuditResult::kStranger)).news.size(), 1u);
}

// The state of a process's first thread says nothing about its other threads.
TEST(Auditor, AProcessIsStoppedWhenAllOfItsThreadsAre) {
  const std::filesystem::path process =
      std::filesystem::temp_directory_path() / ("gpushare-stopped-" + std::to_string(getpid()));
  const auto with = [&](const std::string& states) {
    for (size_t i = 0; i < states.size(); ++i) {
      const std::filesystem::path task = process / "task" / std::to_string(100 + i);
      std::filesystem::create_directories(task);
      std::ofstream(task / "stat") << 100 + i << " (a) R (b) " << states[i] << " 1 2 3\n";
    }
    std::ofstream(process / "stat") << "100 (a) R (b) " << states[0] << " 1 2 3\n";
    const bool stopped = IsStopped(process.string());
    std::filesystem::remove_all(process);
    return stopped;
  };
  EXPECT_TRUE(with("T"));
  EXPECT_TRUE(with("TtT"));
  EXPECT_TRUE(with("ZtT"));  // the first has ended
  EXPECT_FALSE(with("tR"));
  EXPECT_FALSE(with("TTS"));
  EXPECT_FALSE(with("Z"));
  EXPECT_FALSE(IsStopped(process.string()));
}

TEST(AuditLog, WhoIsGoneIsNews) {
  AuditLog log;
  log.Take(Found(AuditResult::kStranger));
  EXPECT_EQ(log.Take(Found(AuditResult::kStranger)).news.at(kOne).what, AuditResult::kStranger);
  EXPECT_EQ(log.Take({}).news.at(kOne).what, AuditResult::kNone);
  EXPECT_TRUE(log.Take({}).news.empty());
}

TEST(AuditLog, GoesIntoTheFiguresOfTheProcessesItIsOf) {
  Snapshot snapshot;
  snapshot.gpus = {{.uuid = "GPU-1"}, {.uuid = "GPU-2"}};
  snapshot.shares.resize(2);
  for (size_t i = 0; i < 2; ++i) {
    snapshot.shares[i].gpu = snapshot.gpus[i].uuid;
    snapshot.shares[i].processes.resize(2);
    snapshot.shares[i].processes[0].pid = 100;
    snapshot.shares[i].processes[1].pid = 300;
  }
  AuditLog log;
  for (int i = 0; i < 2; ++i) {
    Findings found = Found(AuditResult::kOverGrant);
    found[kTwo] = {.what = AuditResult::kStranger, .counted = 7, .claim = {}, .program = "game"};
    log.Take(std::move(found));
  }
  log.report().AddTo(&snapshot);
  EXPECT_EQ(snapshot.audits, 2u);
  const auto& processes = snapshot.shares[0].processes;
  EXPECT_EQ(processes[0].audit, AuditResult::kOverGrant);
  EXPECT_EQ(processes[0].memory_by_driver, 5u);
  EXPECT_EQ(processes[1].memory_by_driver, UINT64_MAX);
  EXPECT_EQ(snapshot.shares[1].processes[0].audit, AuditResult::kNone);
  ASSERT_EQ(snapshot.gpus[0].strangers.size(), 1u);
  EXPECT_EQ(snapshot.gpus[0].strangers[0].pid, 200);
  EXPECT_EQ(snapshot.gpus[0].strangers[0].program, "game");
  EXPECT_TRUE(snapshot.gpus[1].strangers.empty());
}

}  // namespace
}  // namespace gpushare::broker
