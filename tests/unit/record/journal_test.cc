// SPDX-License-Identifier: Apache-2.0
#include "record/journal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "record/folder.h"
#include "record/row.h"

namespace gpushare::record {
namespace {

class Journals : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/gpushare_record_XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<Journal> Begin(const Orders& orders) {
    EXPECT_TRUE(WriteOrders(folder_, orders).ok());
    absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Begin(folder_);
    EXPECT_TRUE(journal.ok()) << journal.status();
    return *std::move(journal);
  }
  std::vector<Recorded> Read() {
    const absl::StatusOr<std::vector<Recorded>> all = ReadFolder(folder_);
    EXPECT_TRUE(all.ok()) << all.status();
    return *all;
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
};

TEST_F(Journals, WhatIsWrittenIsReadWhileItIsWritten) {
  const std::unique_ptr<Journal> journal = Begin({.skip = 5});
  EXPECT_EQ(journal->orders().skip, 5u);
  EXPECT_TRUE(journal->Append("a", 3, Nanos(100)));
  journal->page().late.fetch_add(1);
  journal->page().how = How::kEvents;
  journal->page().bias_ns = 7;
  EXPECT_TRUE(journal->Append("b", 4, Nanos(200)));
  const std::vector<Recorded> all = Read();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].program, "record_test");
  EXPECT_EQ(all[0].pid, getpid());
  EXPECT_EQ(all[0].state, State::kRecording);
  EXPECT_EQ(all[0].how, How::kEvents);
  EXPECT_EQ(all[0].kernels, 2u);
  EXPECT_EQ(all[0].late, 1u);
  EXPECT_EQ(all[0].device_ns, 300);
  EXPECT_EQ(all[0].bias_ns, 7);
  EXPECT_EQ(TextOf(all[0].rows), std::string(kHeader) + "a,unknown,3,100\nb,unknown,4,200\n");
}

TEST_F(Journals, EndsWithTheLastThatWasAskedFor) {
  const std::unique_ptr<Journal> journal = Begin({.kernels = 2});
  EXPECT_TRUE(journal->Append("a", 1, Nanos(1)));
  EXPECT_TRUE(journal->recording());
  EXPECT_TRUE(journal->Append("a", 1, Nanos(1)));
  EXPECT_FALSE(journal->recording());
  EXPECT_FALSE(journal->Append("a", 1, Nanos(1)));
  EXPECT_EQ(Read()[0].state, State::kDone);
  EXPECT_EQ(Read()[0].kernels, 2u);
}

TEST_F(Journals, AProcessThatBecomesAnotherProgramHasAnother) {
  const std::unique_ptr<Journal> one = Begin({}), other = Begin({});
  one->Append("first", 1, Nanos(1));
  other->Append("second", 1, Nanos(1));
  const std::vector<Recorded> all = Read();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_NE(TextOf(all[0].rows).find("first"), std::string::npos);
  EXPECT_NE(TextOf(all[1].rows).find("second"), std::string::npos);
}

TEST_F(Journals, OfAProcessThatIsKilledAllIsThere) {
  ASSERT_TRUE(WriteOrders(folder_, {}).ok());
  const pid_t child = fork();
  if (child == 0) {
    const absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Begin(folder_);
    if (!journal.ok()) _exit(1);
    for (int i = 0; i < 100; ++i) (*journal)->Append("k", 1, Nanos(10));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::vector<Recorded> all = Read();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kernels, 100u);
  const std::string text = TextOf(all[0].rows);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 101);
}

TEST_F(Journals, WhereNothingCanBeWrittenTheFileEndsWithAWholeLine) {
  ASSERT_TRUE(WriteOrders(folder_, {}).ok());
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::StatusOr<std::unique_ptr<Journal>> journal = Journal::Begin(folder_);
    if (!journal.ok()) _exit(1);
    int kept = 0;
    while ((*journal)->Append("kernel", 1, Nanos(10))) ++kept;
    _exit((*journal)->recording() || kept < 100 ? 2 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const std::vector<Recorded> all = Read();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, State::kFailed);
  EXPECT_EQ(all[0].error, EFBIG);
  const std::string text = TextOf(all[0].rows);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')), all[0].kernels + 1);
}

TEST_F(Journals, OrdersThatAreNone) {
  EXPECT_FALSE(Journal::Begin(folder_).ok());
  EXPECT_FALSE(Journal::Begin("/nowhere/at/all").ok());
  for (const size_t size : {size_t{0}, sizeof(Orders) - 1, sizeof(Orders), sizeof(Orders) + 1}) {
    std::ofstream(folder_ + "/orders", std::ios::binary) << std::string(size, 'x');
    const absl::Status status = Journal::Begin(folder_).status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find("/orders"), std::string::npos) << status;
  }
}

TEST_F(Journals, WhatAProgramMayHaveWrittenInsteadIsLeftOutOrShown) {
  const std::unique_ptr<Journal> journal = Begin({});
  journal->Append("a", 1, Nanos(1));
  std::mt19937_64 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(i % 3 == 0 ? sizeof(Page) : random() % (2 * sizeof(Page)), ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 6 == 0) memcpy(bytes.data(), &Page::kMark, sizeof(Page::kMark));
    std::ofstream(folder_ + "/1-1.page", std::ios::binary) << bytes;
    std::ofstream(folder_ + "/1-1.csv", std::ios::binary) << "rows";
    const size_t read = Read().size();
    EXPECT_EQ(read, i % 6 == 0 ? 2u : 1u) << i;
  }
  std::filesystem::remove(folder_ + "/1-1.csv");
  EXPECT_EQ(Read().size(), 1u);
  // A link to another file is not followed either.
  std::filesystem::create_symlink("/etc/passwd", folder_ + "/1-1.csv");
  EXPECT_EQ(Read().size(), 1u);
}

}  // namespace
}  // namespace gpushare::record
