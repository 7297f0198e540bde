// SPDX-License-Identifier: Apache-2.0
#include "base/fd_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace gpushare::base {
namespace {

// More text than a pipe holds: neither end can finish in one call.
TEST(FdIo, AllOfATextGoesThroughAPipe) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd hear(ends[0]);
  UniqueFd tell(ends[1]);
  std::string sent(1 << 20, 'a');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>('a' + i % 23);
  std::thread writer([&] {
    EXPECT_EQ(WriteAll(tell.get(), sent), 0);
    tell.Reset();
  });
  std::string got = "before ";
  EXPECT_EQ(ReadAll(hear.get(), SIZE_MAX, &got), 0);
  writer.join();
  EXPECT_EQ(got, "before " + sent);
}

TEST(FdIo, MoreThanTheMostIsSaid) {
  const UniqueFd zeros(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  std::string text;
  EXPECT_EQ(ReadAll(zeros.get(), 100'000, &text), EFBIG);
  EXPECT_LT(text.size(), 200'000u);
}

TEST(FdIo, ErrorsAreThoseOfTheKernel) {
  std::string text;
  EXPECT_EQ(ReadAll(-1, SIZE_MAX, &text), EBADF);
  EXPECT_EQ(ReadFile("/proc/self/mem", SIZE_MAX, &text), EIO);
  EXPECT_EQ(ReadFile("/nowhere/at/all", SIZE_MAX, &text), ENOENT);
  EXPECT_EQ(ReadFile("/dev/null", SIZE_MAX, &text), 0);
  EXPECT_EQ(WriteAll(-1, "a"), EBADF);
  EXPECT_EQ(WriteAll(-1, ""), 0);
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(WriteAll(full.get(), "a"), ENOSPC);
}

TEST(FdIo, APipeThatNobodyReadsIsNotWaitedForForEver) {
  const std::string path = ::testing::TempDir() + "gpushare-fd-io-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  errno = 0;
  EXPECT_FALSE(OpenToWrite(path, 0));
  EXPECT_EQ(errno, ENXIO);
  EXPECT_EQ(WriteError(ENXIO), "nobody reads this pipe");
  EXPECT_EQ(WriteError(ENOSPC), "No space left on device");
  // A late reader is still in time, and gets more than the pipe holds.
  const std::string sent(1 << 20, 'a');
  std::string got;
  std::thread reader([&] { EXPECT_EQ(ReadFile(path, SIZE_MAX, &got), 0); });
  UniqueFd fd = OpenToWrite(path);
  ASSERT_TRUE(fd);
  EXPECT_EQ(WriteAll(fd.get(), sent), 0);
  fd.Reset();
  reader.join();
  EXPECT_EQ(got, sent);
  unlink(path.c_str());
  // Nothing of the file's previous content stays.
  for (const char* const text : {"longer", "text"}) {
    EXPECT_EQ(WriteAll(OpenToWrite(path).get(), text), 0);
    got.clear();
    EXPECT_EQ(ReadFile(path, SIZE_MAX, &got), 0);
    EXPECT_EQ(got, text);
  }
  unlink(path.c_str());
}

}  // namespace
}  // namespace gpushare::base
