// SPDX-License-Identifier: Apache-2.0
#include "harness/orphans.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/unique_fd.h"
#include "harness/children.h"

namespace gpushare::harness {
namespace {

TEST(Orphans, InSessionsOfTheirOwnEndToo) {
  const std::string pipe = ::testing::TempDir() + "/orphans-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  AdoptOrphans();
  {
    Children children;
    // The sleeper says that it is out of the group before its parent is ended.
    const std::string script = "exec 9>" + pipe +
                               "; setsid sh -c 'echo out >&9; sleep 1000 & sleep 1000' & "
                               "sleep 1000";
    ASSERT_TRUE(children
                    .Start({"the shell",
                            {"/bin/sh", "-c", script},
                            {{"PATH", "/usr/bin:/bin"}},
                            ::testing::TempDir() + "/orphans-log"})
                    .ok());
    pollfd said = {reader.get(), POLLIN, 0};
    ASSERT_EQ(poll(&said, 1, 60'000), 1);
    char out[16];
    ASSERT_EQ(read(reader.get(), out, sizeof(out)), 4);
  }
  // All who had the pipe are gone.
  pollfd closed = {reader.get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 60'000), 1);
  EXPECT_TRUE((closed.revents & POLLHUP) != 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace gpushare::harness
