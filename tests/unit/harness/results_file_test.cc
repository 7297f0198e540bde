// SPDX-License-Identifier: Apache-2.0
#include "harness/results_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Acts like a disk with limited room, until it is destroyed.
class Room {
 public:
  explicit Room(rlim_t bytes) : ignored_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now = {bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~Room() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, ignored_);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

 private:
  rlimit before_{};
  void (*const ignored_)(int);
};

class ResultsFileTest : public ::testing::Test {
 protected:
  ~ResultsFileTest() override { std::filesystem::remove(path_); }
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/results-", getpid(), ".jsonl");
};

TEST_F(ResultsFileTest, ALineForWhichThereIsNoRoomIsNotThereAtAll) {
  auto file = ResultsFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->Put("the first\n").ok());
  {
    const Room room(15);
    const absl::Status put = file->Put("the second\n");
    EXPECT_EQ(put.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(put.message(), absl::StrCat("cannot write ", path_, ": File too large"));
  }
  EXPECT_EQ(TextOf(path_), "the first\n");
}

TEST_F(ResultsFileTest, IsWrittenAnew) {
  for (const char* const line : {"a longer line\n", "line\n"}) {
    auto file = ResultsFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->Put(line).ok());
    EXPECT_EQ(TextOf(path_), line);
  }
}

TEST_F(ResultsFileTest, IsOfOneRunAtATime) {
  {
    auto file = ResultsFile::Open(path_);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Put("the first\n").ok());
    const absl::Status other = ResultsFile::Open(path_).status();
    EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(other.message(),
              absl::StrCat("cannot write ", path_,
                           ": another run is writing it; give each a file of its own"));
    EXPECT_TRUE(file->Put("the second\n").ok());
    EXPECT_EQ(TextOf(path_), "the first\nthe second\n");
  }
  EXPECT_TRUE(ResultsFile::Open(path_).ok());
}

TEST_F(ResultsFileTest, StandardOutputKeepsWhatIsThereAlready) {
  // Runs in a child process, so that the test's own limits stay unchanged.
  for (const int flags : {0, O_APPEND}) {
    std::ofstream(path_, std::ios::binary) << (flags == 0 ? "" : "before\n");
    const auto run = [&] {
      const int fd = open(path_.c_str(), O_WRONLY | flags);
      if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(2);
      ResultsFile file = ResultsFile::OfStdout();
      if (!file.Put("the first\n").ok()) _exit(3);
      const Room room(flags == 0 ? 12 : 19);
      _exit(file.Put("the second\n").ok() ? 4 : 0);
    };
    EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
    EXPECT_EQ(TextOf(path_), flags == 0 ? "the first\n" : "before\nthe first\n");
  }
}

TEST_F(ResultsFileTest, WhereNothingCanBeWritten) {
  EXPECT_THAT(std::string(ResultsFile::Open("/nowhere/results").status().message()),
              HasSubstr("cannot write /nowhere/results: No such file or directory"));
  auto full = ResultsFile::Open("/dev/full");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ(full->Put("line\n").message(), "cannot write /dev/full: No space left on device");
  EXPECT_TRUE(ResultsFile().Put("line\n").ok());
}

}  // namespace
}  // namespace gpushare::harness
