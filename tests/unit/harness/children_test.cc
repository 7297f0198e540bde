// SPDX-License-Identifier: Apache-2.0
#include "harness/children.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

class ChildrenTest : public ::testing::Test {
 protected:
  ChildrenTest() { std::filesystem::remove(log_); }
  ~ChildrenTest() override { std::filesystem::remove(log_); }
  Program Shell(const std::string& script) const {
    return {"the shell",
            {"/bin/sh", "-c", script},
            {{"WORD", "blue"}, {"PATH", "/usr/bin:/bin"}},
            log_};
  }
  // Tests run in parallel.
  const std::string log_ = absl::StrCat(::testing::TempDir(), "/children-log-", getpid());
};

TEST_F(ChildrenTest, GetTheirEnvironmentAndNoOther) {
  setenv("GPUSHARE_OF_THE_CALLER", "1", 1);
  Children children;
  ASSERT_TRUE(
      children.Start(Shell("test \"$WORD\" = blue && test -z \"$GPUSHARE_OF_THE_CALLER\"")).ok());
  EXPECT_TRUE(children.Wait(Seconds(60)).ok());
}

TEST_F(ChildrenTest, OfALongLogTheEndIsTold) {
  Children children;
  ASSERT_TRUE(
      children.Start(Shell(absl::StrCat("truncate -s 1G '", log_, "'; echo the end; exit 3")))
          .ok());
  rusage before = {}, after = {};
  getrusage(RUSAGE_SELF, &before);
  const absl::Status failed = children.Wait(Seconds(60));
  getrusage(RUSAGE_SELF, &after);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("ended with status 3"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the end"));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 100 << 10) << "KiB; all of it was read";
}

TEST_F(ChildrenTest, SeveralLinesOfALogAreToldInOne) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("echo one; echo two; exit 3")).ok());
  EXPECT_EQ(children.Wait(Seconds(60)).message(), "the shell ended with status 3: one; two");
}

TEST_F(ChildrenTest, OneThatPutAPipeInThePlaceOfItsLogIsNotWaitedFor) {
  Children children;
  ASSERT_TRUE(
      children.Start(Shell(absl::StrCat("rm '", log_, "'; mkfifo '", log_, "'; exit 3"))).ok());
  EXPECT_EQ(children.Wait(Seconds(60)).message(),
            "the shell ended with status 3: it wrote nothing");
}

TEST_F(ChildrenTest, OneThatStaysIsAskedToEndAndMayTakeAwayWhatIsItsOwn) {
  const std::string its = log_ + "-socket";
  Program server = Shell(absl::StrCat("trap 'rm ", its, "; exit' TERM; touch ", its,
                                      "; while :; do sleep 0.01; done"));
  server.serves = server.stays = true;
  Children children;
  ASSERT_TRUE(children.Start(server).ok());
  const auto is_there = [&] { return access(its.c_str(), F_OK) == 0; };
  ASSERT_TRUE(children.WaitUntil(is_there, Seconds(60)).ok());
  ASSERT_TRUE(children.Start(Shell("true")).ok());
  EXPECT_TRUE(children.Wait(Seconds(60)).ok());
  EXPECT_TRUE(is_there());
  children.Dismiss(Seconds(60));
  EXPECT_FALSE(is_there());
}

TEST_F(ChildrenTest, OneThatShouldHaveStayedHasFailedHoweverItEnded) {
  Program server = Shell("echo no room; exit 0");
  server.name = "the server";
  server.serves = server.stays = true;
  Children children;
  ASSERT_TRUE(children.Start(server).ok());
  ASSERT_TRUE(children.Start(Shell("sleep 600")).ok());
  const absl::Status failed = children.Wait(Seconds(60));
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("the server ended with status 0: no room"));
}

TEST_F(ChildrenTest, OneThatKillsItselfHasNotFailedWhereItMay) {
  for (const bool may : {false, true}) {
    Children children;
    Program kills_itself = Shell("kill -9 $$");
    kills_itself.may_be_killed = may;
    ASSERT_TRUE(children.Start(kills_itself).ok());
    EXPECT_EQ(children.Wait(Seconds(60)).ok(), may);
  }
  // Any other end is a failure as usual.
  Children children;
  Program fails = Shell("exit 9");
  fails.may_be_killed = true;
  ASSERT_TRUE(children.Start(fails).ok());
  EXPECT_FALSE(children.Wait(Seconds(60)).ok());
}

TEST_F(ChildrenTest, OneThatFailsEndsTheOthers) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("while :; do sleep 1000; done")).ok());
  ASSERT_TRUE(children.Start(Shell("echo no luck >&2; exit 3")).ok());
  const absl::Status status = children.Wait(Seconds(60));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the shell ended with status 3: no luck"));
}

TEST_F(ChildrenTest, OneThatCrashesIsTold) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("kill -SEGV $$")).ok());
  EXPECT_THAT(std::string(children.Wait(Seconds(60)).message()),
              HasSubstr("was ended by signal 11: it wrote nothing"));
}

TEST_F(ChildrenTest, OneThatHangsIsEnded) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("while :; do sleep 1000; done")).ok());
  EXPECT_EQ(children.Wait(Millis(50)).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ChildrenTest, AreEndedWhenTheWaitIsInterrupted) {
  std::atomic<int> interrupted{0};
  Children children(&interrupted);
  ASSERT_TRUE(children.Start(Shell("kill -STOP $$")).ok());
  const auto interrupts = [&] {
    interrupted = 2;
    return false;
  };
  EXPECT_TRUE(absl::IsCancelled(children.WaitUntil(interrupts, Seconds(60))));
  EXPECT_TRUE(children.Wait(Seconds(60)).ok());  // none is left
}

TEST_F(ChildrenTest, OneThatEndsBeforeItHasBegunIsNotWaitedFor) {
  for (const char* script : {"echo no socket; exit 1", "echo no socket"}) {
    Children children;
    ASSERT_TRUE(children.Start(Shell(script)).ok());
    const absl::Status status = children.WaitUntil([] { return false; }, Seconds(600));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no socket"));
  }
}

TEST_F(ChildrenTest, OneThatDoesNotBeginIsNamed) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("while :; do sleep 1; done")).ok());
  EXPECT_EQ(children.WaitUntil([] { return false; }, Nanos(0)).message(),
            "the shell had not begun after 0 s");
}

TEST_F(ChildrenTest, WhatTheyStartEndsWithThemThoughTheyEndWell) {
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/children-pipe-", getpid());
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Children children;
  ASSERT_TRUE(children.Start(Shell("exec 9>" + pipe + "; sleep 1000 & exit 0")).ok());
  EXPECT_TRUE(children.Wait(Seconds(60)).ok());
  // The sleeper is not a child of this process; its end of the pipe closes when it is gone.
  pollfd closed = {reader.get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 60'000), 1);
  std::filesystem::remove(pipe);
}

TEST_F(ChildrenTest, WhatIsNotThereCannotBeStarted) {
  Children children;
  EXPECT_FALSE(children.Start({"nothing", {"/nowhere/program"}, {}, log_}).ok());
}

}  // namespace
}  // namespace gpushare::harness
