// SPDX-License-Identifier: Apache-2.0
#include "harness/children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

class ChildrenTest : public ::testing::Test {
 protected:
  ChildrenTest() { std::filesystem::remove(log_); }
  ~ChildrenTest() override { std::filesystem::remove(log_); }
  Program Shell(const std::string& script) const {
    return {"the shell", {"/bin/sh", "-c", script}, {{"WORD", "blue"}}, log_};
  }
  // Tests run beside each other.
  const std::string log_ = absl::StrCat(::testing::TempDir(), "/children-log-", getpid());
};

TEST_F(ChildrenTest, GetTheirEnvironment) {
  Children children;
  ASSERT_TRUE(children.Start(Shell("test \"$WORD\" = blue && test -n \"$PATH\"")).ok());
  EXPECT_TRUE(children.Wait(Seconds(60)).ok());
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

TEST_F(ChildrenTest, WhatIsNotThereCannotBeStarted) {
  Children children;
  EXPECT_FALSE(children.Start({"nothing", {"/nowhere/program"}, {}, log_}).ok());
}

}  // namespace
}  // namespace gpushare::harness
