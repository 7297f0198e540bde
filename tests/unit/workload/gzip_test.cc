// SPDX-License-Identifier: Apache-2.0
#include "workload/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "workload/trace.h"

namespace gpushare::workload {
namespace {

using ::testing::HasSubstr;

class GzipTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(Gzip("").status())) GTEST_SKIP() << "built without zlib";
  }
};

// More text than one step of the compressor has room for.
TEST_F(GzipTest, WhatIsCompressedExpandsToItself) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += std::to_string(i * 7919 % 100'003);
  for (const std::string& one : {std::string(), std::string("a"), text}) {
    const auto small = Gzip(one);
    ASSERT_TRUE(small.ok()) << small.status();
    EXPECT_TRUE(IsGzip(*small));
    EXPECT_EQ(*Gunzip(*small, one.size()), one);
    EXPECT_EQ(*Gzip(one), *small);
  }
  EXPECT_LT(Gzip(text)->size(), text.size() / 2);
}

TEST_F(GzipTest, MembersFollowEachOther) {
  EXPECT_EQ(*Gunzip(*Gzip("one, ") + *Gzip("two"), 100), "one, two");
}

TEST_F(GzipTest, WhatIsTooMuchIsNotTaken) {
  const std::string bomb = *Gzip(std::string(100 << 20, '\0'));
  EXPECT_LT(bomb.size(), size_t{1} << 20);
  EXPECT_THAT(Gunzip(bomb, 1 << 20).status().message(), HasSubstr("too large"));
  EXPECT_TRUE(Gunzip(*Gzip("four"), 4).ok());
  EXPECT_FALSE(Gunzip(*Gzip("four"), 3).ok());
}

TEST_F(GzipTest, WhatIsCutOrDamagedIsAnError) {
  const std::string whole = *Gzip("kernel,bound,sms,duration_ns\na,memory,1,2\n");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(absl::IsInvalidArgument(Gunzip(whole.substr(0, size), 1000).status())) << size;
  }
  for (size_t at = whole.size() - 8; at < whole.size(); ++at) {  // its checksum and its length
    std::string bad = whole;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    EXPECT_FALSE(Gunzip(bad, 1000).ok()) << at;
  }
  EXPECT_FALSE(Gunzip(whole + "more", 1000).ok());
}

TEST_F(GzipTest, ATraceMayBeCompressed) {
  const std::string path = ::testing::TempDir() + "/gzip_test." + std::to_string(getpid());
  std::ofstream(path + ".csv.gz") << *Gzip("kernel,bound,sms,duration_ns\na,memory,1,2\n");
  const auto trace = ReadTraceFile(path + ".csv.gz");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->kernels().size(), 1u);
  EXPECT_EQ(trace->label(), std::filesystem::path(path).filename());
  std::ofstream(path + ".csv.gz") << Gzip("kernel,bound,sms,duration_ns\n")->substr(0, 20);
  EXPECT_THAT(ReadTraceFile(path + ".csv.gz").status().message(), HasSubstr(path + ".csv.gz: "));
  std::filesystem::remove(path + ".csv.gz");
}

}  // namespace
}  // namespace gpushare::workload
