// SPDX-License-Identifier: Apache-2.0
#include "harness/folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace gpushare::harness {
namespace {

using ::testing::HasSubstr;

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    if (const char* const is = std::getenv("TMPDIR"); is != nullptr) before_ = is;
  }
  ~FolderTest() override {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
  }
  std::string before_;
};

TEST_F(FolderTest, GoesWithWhatIsInIt) {
  std::string path;
  {
    const auto folder = Folder::Make(::testing::TempDir());
    ASSERT_TRUE(folder.ok()) << folder.status();
    path = **folder / "file";
    EXPECT_THAT(path, HasSubstr((*folder)->name()));
    std::ofstream(path) << "text";
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
  EXPECT_FALSE(Folder::Make("/nowhere").ok());
}

TEST_F(FolderTest, AWrongTmpdirIsTold) {
  unsetenv("TMPDIR");
  EXPECT_EQ(*TemporaryFolder(), "/tmp");
  const auto refused = [](const char* path) {
    setenv("TMPDIR", path, 1);
    const auto folder = TemporaryFolder();
    EXPECT_EQ(folder.status().code(), absl::StatusCode::kInvalidArgument) << path;
    return std::string(folder.status().message());
  };
  EXPECT_EQ(
      refused("/nowhere"),
      "the folder for a run's files, '/nowhere': No such file or directory; TMPDIR names another");
  EXPECT_THAT(refused("/dev/null"), ::testing::AnyOf(HasSubstr("no folder"), HasSubstr("denied")));
  EXPECT_THAT(refused("/tmp/\xff"), HasSubstr("'/tmp/\\xff': its name is not UTF-8"));
}

}  // namespace
}  // namespace gpushare::harness
