// SPDX-License-Identifier: Apache-2.0
#include "broker/time_audit.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace gpushare::broker {
namespace {

const OnGpu kTimed{"GPU-1", 100};

// A process, and a driver that samples it every 200 ms. Looks are as frequent, and audits every 10 s.
class TimeAuditTest : public ::testing::Test {
 protected:
  // For `seconds` the process runs `busy` percent of the time, and reports `said` of that.
  AuditResult Pass(int seconds, uint32_t busy, double said, uint64_t launches = 1) {
    for (int i = 0; i < seconds * 5; ++i) {
      now_ += Millis(200);
      claim_.time_used_ns += static_cast<int64_t>(2e8 * said);
      claim_.launches += launches;
      Ran ran;
      if (known_) {
        ran["GPU-1"];
        if (busy > 0) ran["GPU-1"] = {{pid_, Stamp(), busy}};
      }
      audit_.Add(gone_ ? Claims() : Claims{{kTimed, claim_}}, ran, now_);
    }
    return Judge();
  }
  AuditResult Judge() {
    const Findings findings = audit_.Judge(now_);
    const auto at = findings.find(kTimed);
    return at == findings.end() ? AuditResult::kNone : at->second.what;
  }
  uint64_t Stamp() const {
    return static_cast<uint64_t>(now_.time_since_epoch().count()) / 1000 + 7'000'000;
  }

  TimeAudit audit_;
  Claim claim_;
  Time now_ = Time(Seconds(5));
  bool known_ = true, gone_ = false;
  int32_t pid_ = kTimed.pid;
};

TEST_F(TimeAuditTest, WhoSaysWhatItRunsIsNeverFound) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Pass(10, 100, 1.0), AuditResult::kNone) << i;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Pass(1, 100, 1.0), AuditResult::kNone) << i;
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(Pass(10, i * 5, i * 0.05), AuditResult::kNone) << i;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Pass(10, 0, 0), AuditResult::kNone) << i;
}

TEST_F(TimeAuditTest, WhoSaysFarLessIsFoundAtTheThirdAudit) {
  EXPECT_EQ(Pass(10, 100, 0.2), AuditResult::kNone);
  EXPECT_EQ(Pass(10, 100, 0.2), AuditResult::kNone);
  EXPECT_EQ(Pass(10, 100, 0.2), AuditResult::kUnderstatesTime);
  const Finding found = audit_.Judge(now_).at(kTimed);
  EXPECT_EQ(found.says_ran_ns, 2'000'000'000);
  EXPECT_EQ(found.counted, UINT64_MAX);
  EXPECT_NEAR(static_cast<double>(found.ran_ns), 50 * 166'666'666.0, 100);
  EXPECT_EQ(Pass(10, 100, 1.0), AuditResult::kNone);  // its reports are correct again
}

TEST_F(TimeAuditTest, HalfOfItIsFoundAndTwoThirdsAreNot) {
  for (int i = 0; i < 3; ++i) Pass(10, 100, 0.5);
  EXPECT_EQ(Judge(), AuditResult::kUnderstatesTime);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Pass(10, 100, 0.67), AuditResult::kNone);
}

TEST_F(TimeAuditTest, ThreeHaveToFollowOneAnother) {
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(Pass(10, 100, i % 3 == 2 ? 1.0 : 0.0), AuditResult::kNone) << i;
  }
}

TEST_F(TimeAuditTest, WhoHardlyRunsIsNotFoundWhateverItSays) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Pass(10, 12, 0), AuditResult::kNone);
  for (int i = 0; i < 3; ++i) Pass(10, 13, 0);
  EXPECT_EQ(Judge(), AuditResult::kUnderstatesTime);
}

TEST_F(TimeAuditTest, WhoRunsAndHasLaunchedNothingRunsPastGpushare) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 50, 0, 0), AuditResult::kNone);
  EXPECT_EQ(Pass(10, 50, 0, 0), AuditResult::kRunsPastGpushare);
  // Reporting time while nothing was launched does not help.
  EXPECT_EQ(Pass(10, 50, 1.0, 0), AuditResult::kRunsPastGpushare);
}

TEST_F(TimeAuditTest, WhoGoesOnPastGpushareAfterItHasLaunchedIsFoundAsSuch) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Pass(10, 100, 1.0), AuditResult::kNone);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 100, 0, 0), AuditResult::kNone);
  EXPECT_EQ(Pass(10, 100, 0, 0), AuditResult::kRunsPastGpushare);
  EXPECT_EQ(Pass(10, 100, 0, 1), AuditResult::kUnderstatesTime);
}

TEST_F(TimeAuditTest, AKernelOfManyAuditsIsSaidWhenItIsDone) {
  claim_.in_flight = true;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone) << i;
  claim_.time_used_ns += Seconds(50).count();
  claim_.in_flight = false;
  EXPECT_EQ(Judge(), AuditResult::kNone);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone) << i;
  // Permanently having something in flight clears nobody.
  claim_.in_flight = true;
  AuditResult result = AuditResult::kNone;
  for (int i = 0; i < 13; ++i) result = Pass(10, 100, 0);
  EXPECT_EQ(result, AuditResult::kUnderstatesTime);
}

TEST_F(TimeAuditTest, FiguresThatGoBackAreOfAnotherAndBeginAnew) {
  for (int i = 0; i < 6; ++i) {
    claim_ = {.time_used_ns = 1, .launches = 1};
    EXPECT_EQ(Pass(10, 100, i % 2 == 0 ? 0.3 : 0.2), AuditResult::kNone) << i;
    EXPECT_EQ(Pass(10, 100, 0.2), AuditResult::kNone) << i;
  }
}

TEST_F(TimeAuditTest, OneThatWasGoneBetweenBeginsAnew) {
  for (int i = 0; i < 2; ++i) Pass(10, 100, 0);
  gone_ = true;
  Pass(1, 0, 0);
  gone_ = false;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone) << i;
  EXPECT_EQ(Pass(10, 100, 0), AuditResult::kUnderstatesTime);
  gone_ = true;
  EXPECT_EQ(Pass(1, 0, 0), AuditResult::kNone);
}

TEST_F(TimeAuditTest, WhereTheDriverCannotTellNothingIsFound) {
  for (int i = 0; i < 3; ++i) Pass(10, 100, 0);
  ASSERT_EQ(Judge(), AuditResult::kUnderstatesTime);
  known_ = false;
  EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone);
  known_ = true;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone);
  audit_.Forget();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone);
}

TEST_F(TimeAuditTest, SamplesOfAnotherProcessAreNobodysHere) {
  pid_ = 200;
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Pass(10, 100, 0), AuditResult::kNone);
  EXPECT_EQ(audit_.Since({"GPU-1", "GPU-2"}),
            (std::map<std::string, uint64_t>{{"GPU-1", Stamp()}, {"GPU-2", 0}}));
}

// A sample counts once, and only for the time since the previous one.
TEST_F(TimeAuditTest, SamplesThatComeTwiceOrCloseTogetherAddUpToNoMoreThanTheTime) {
  for (int audit = 0; audit < 6; ++audit) {
    for (int i = 0; i < 1000; ++i) {
      now_ += Millis(10);
      claim_.time_used_ns += Millis(10).count();
      ++claim_.launches;
      const RanSample sample{kTimed.pid, Stamp(), 100};
      audit_.Add({{kTimed, claim_}}, {{"GPU-1", {sample, sample}}}, now_);
      audit_.Add({{kTimed, claim_}}, {{"GPU-1", {sample}}}, now_);
    }
    EXPECT_EQ(Judge(), AuditResult::kNone);
  }
}

}  // namespace
}  // namespace gpushare::broker
