// SPDX-License-Identifier: Apache-2.0
#include "harness/orphans.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "harness/children.h"

namespace gpushare::harness {
namespace {

TEST(Orphans, InSessionsOfTheirOwnEndToo) {
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/orphans-pipe-", getpid());
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::UniqueFd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  AdoptOrphans();
  {
    Children children;
    // The sleeper reports that it has left the group before its parent is ended.
    const std::string script = "exec 9>" + pipe +
                               "; setsid sh -c 'echo out >&9; sleep 1000 & sleep 1000' & "
                               "sleep 1000";
    ASSERT_TRUE(children
                    .Start({"the shell",
                            {"/bin/sh", "-c", script},
                            {{"PATH", "/usr/bin:/bin"}},
                            pipe + "-log"})
                    .ok());
    pollfd said = {reader.get(), POLLIN, 0};
    ASSERT_EQ(poll(&said, 1, 60'000), 1);
    char out[16];
    ASSERT_EQ(read(reader.get(), out, sizeof(out)), 4);
  }
  // All processes that had the pipe are gone.
  pollfd closed = {reader.get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, 60'000), 1);
  EXPECT_TRUE((closed.revents & POLLHUP) != 0);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  std::filesystem::remove(pipe);
  std::filesystem::remove(pipe + "-log");
}

TEST(Orphans, OfOthersAreLeftAlone) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const base::UniqueFd out(ends[0]);
  base::UniqueFd in(ends[1]);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, out.get(), 0);
  char cat[] = "/bin/cat";
  char* const arguments[] = {cat, nullptr};
  char* const variables[] = {nullptr};
  pid_t other = -1;
  ASSERT_EQ(posix_spawn(&other, cat, &files, nullptr, arguments, variables), 0);
  posix_spawn_file_actions_destroy(&files);
  AdoptOrphans();
  EndOrphans();
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0);
  in.Reset();  // it has read everything
  int status = -1;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpushare::harness
