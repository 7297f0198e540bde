// SPDX-License-Identifier: Apache-2.0
#include "client/inherited.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/unique_fd.h"
#include "tests/unit/ipc/child.h"

namespace gpushare::client {
namespace {

base::UniqueFd Socket() {
  return base::UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

bool ChildHas(const base::UniqueFd& fd) {
  return ipc::Child([&] { return fcntl(fd.get(), F_GETFD) >= 0; }).Wait();
}

// Puts something at the number, as a program does that takes it for its own.
void Replace(const base::UniqueFd& fd, const base::UniqueFd& with) {
  ASSERT_EQ(dup2(with.get(), fd.get()), fd.get());
}

TEST(Inherited, AChildClosesTheSocket) {
  const base::UniqueFd closed = Socket(), another = Socket();
  CloseInChildren(closed.get());
  EXPECT_FALSE(ChildHas(closed));
  EXPECT_TRUE(ChildHas(another));
  KeepInChildren(closed.get());
  EXPECT_TRUE(ChildHas(closed));
}

TEST(Inherited, WhatTheProgramHasPutAtTheNumberSinceIsNotClosed) {
  const base::UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC)), other = Socket();
  for (const base::UniqueFd* const with : {&file, &other}) {
    const base::UniqueFd ours = Socket();
    CloseInChildren(ours.get());
    Replace(ours, *with);
    EXPECT_TRUE(ChildHas(ours));
    KeepInChildren(ours.get());
  }
}

TEST(Inherited, AFileThatIsAtTheNumberFromTheFirstIsNotClosed) {
  const base::UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  CloseInChildren(file.get());
  EXPECT_TRUE(ChildHas(file));
  KeepInChildren(file.get());
}

}  // namespace
}  // namespace gpushare::client
