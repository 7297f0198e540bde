// SPDX-License-Identifier: Apache-2.0
#include "ipc/doorbell.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace gpushare::ipc {
namespace {

TEST(Doorbell, RingsAreAnsweredOnceTogether) {
  const auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok()) << bell.status();
  const auto button = Doorbell::Of(base::UniqueFd(fcntl(bell->fd(), F_DUPFD_CLOEXEC, 0)));
  ASSERT_TRUE(button.ok()) << button.status();
  EXPECT_FALSE(bell->Answer());
  button->Ring();
  button->Ring();
  EXPECT_TRUE(bell->Answer());
  EXPECT_FALSE(bell->Answer());
}

TEST(Doorbell, AFullOneBlocksNobody) {
  const auto bell = Doorbell::Create();
  ASSERT_TRUE(bell.ok());
  const uint64_t full = UINT64_MAX - 1;
  ASSERT_EQ(write(bell->fd(), &full, sizeof(full)), static_cast<ssize_t>(sizeof(full)));
  bell->Ring();
  EXPECT_TRUE(bell->Answer());
}

TEST(Doorbell, NothingElseIsOne) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
  EXPECT_FALSE(Doorbell::Of(base::UniqueFd(ends[0])).ok());
  EXPECT_FALSE(Doorbell::Of(base::UniqueFd(ends[1])).ok());
  EXPECT_FALSE(
      Doorbell::Of(base::UniqueFd(eventfd(0, EFD_CLOEXEC))).ok());  // this descriptor blocks
  EXPECT_FALSE(Doorbell::Of(base::UniqueFd()).ok());
}

}  // namespace
}  // namespace gpushare::ipc
