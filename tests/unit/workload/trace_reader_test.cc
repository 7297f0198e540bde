// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/env.h"
#include "workload/trace.h"

namespace gpushare::workload {
namespace {

using ::testing::HasSubstr;

constexpr char kHeader[] = "kernel,bound,sms,duration_ns\n";

std::string With(const std::string& lines) { return kHeader + lines; }

TEST(TraceReaderTest, ReadsKernels) {
  const auto trace = ParseTrace(With("Conv,compute,98,100480\nBatchNorm,memory,64,40480\n"), "t");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->kernels().size(), 2u);
  EXPECT_EQ(trace->names()[0], "Conv");
  EXPECT_EQ(trace->kernels()[0].bound, Bound::kCompute);
  EXPECT_EQ(trace->kernels()[0].sms, 98);
  EXPECT_EQ(trace->kernels()[1].duration, Nanos(40480));
}

TEST(TraceReaderTest, NamesMayHoldCommasAndQuotes) {
  const auto trace =
      ParseTrace(With("void f<int, 4>(a, b),unknown,1,5\n\"g<a, b>\",memory,2,6\n"), "t");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->names(), (std::vector<std::string>{"void f<int, 4>(a, b)", "g<a, b>"}));
}

TEST(TraceReaderTest, AcceptsWhatOtherToolsWrite) {
  for (const std::string& text :
       {std::string(
            "\xef\xbb\xbfkernel,bound,sms,duration_ns\r\na,memory,1,2\r\n"),  // mark and CRLF
        With("a,memory,1,2"),                                                 // no last newline
        With("a,memory,1,2\n\r\n"), With("a,memory,1,2\n\n")}) {              // blank last line
    const auto trace = ParseTrace(text, "t");
    ASSERT_TRUE(trace.ok()) << trace.status();
    EXPECT_EQ(trace->kernels().size(), 1u);
  }
}

TEST(TraceReaderTest, LimitsThemselvesAreAllowed) {
  const std::string name(kMaxKernelNameBytes, 'n');
  const auto trace = ParseTrace(With(name + ",memory,1,1\nb,memory,1000000,60000000000\n"), "t");
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->kernels()[1].duration, Seconds(60));
}

struct Bad {
  const char* what;
  std::string text;
  std::vector<std::string> message;  // all of these must be in it
};

class TraceReaderBadTest : public ::testing::TestWithParam<Bad> {};

TEST_P(TraceReaderBadTest, NamesLineFieldAndRange) {
  const auto trace = ParseTrace(GetParam().text, "bad.csv");
  ASSERT_FALSE(trace.ok());
  EXPECT_EQ(trace.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(trace.status().message());
  for (const std::string& part : GetParam().message) EXPECT_THAT(message, HasSubstr(part));
  EXPECT_LT(message.size(), 300u) << "an error quotes only the start of what it found";
}

INSTANTIATE_TEST_SUITE_P(
    All, TraceReaderBadTest,
    ::testing::Values(
        Bad{"Empty", "", {"bad.csv:1", "empty", "kernel,bound,sms,duration_ns"}},
        Bad{"OnlyMark", "\xef\xbb\xbf", {"bad.csv:1", "empty"}},
        Bad{"Header", "name,bound,sms,ns\n", {"bad.csv:1", "'name,bound,sms,ns'"}},
        Bad{"NoKernels", kHeader, {"bad.csv:1", "no kernel"}},
        Bad{"BlankLine", With("a,memory,1,1\n\nb,memory,1,1\n"), {"bad.csv:3", "four fields"}},
        Bad{"FewFields", With("a,memory,1\n"), {"bad.csv:2", "four fields"}},
        Bad{"NoName", With(",memory,1,1\n"), {"bad.csv:2", "kernel", "1 to 1024"}},
        Bad{"QuotedNothing", With("\"\",memory,1,1\n"), {"bad.csv:2", "kernel", "1 to 1024"}},
        Bad{"LongName",
            With(std::string(1025, 'n') + ",memory,1,1\n"),
            {"bad.csv:2", "1025", "1 to 1024"}},
        Bad{"Bound", With("a,Memory,1,1\n"), {"bad.csv:2", "bound", "'Memory'", "compute, memory"}},
        Bad{"SmsZero", With("a,memory,0,1\n"), {"bad.csv:2", "sms", "'0'", "1 to 1000000"}},
        Bad{"SmsNegative", With("a,memory,-4,1\n"), {"bad.csv:2", "sms", "'-4'"}},
        Bad{"SmsLarge", With("a,memory,1000001,1\n"), {"bad.csv:2", "sms", "'1000001'"}},
        Bad{"SmsText", With("a,memory,4x,1\n"), {"bad.csv:2", "sms", "'4x'"}},
        Bad{"SmsEmpty", With("a,memory,,1\n"), {"bad.csv:2", "sms", "''"}},
        Bad{"SmsSpace", With("a,memory, 4,1\n"), {"bad.csv:2", "sms", "' 4'"}},
        Bad{"DurationZero",
            With("a,memory,1,0\n"),
            {"bad.csv:2", "duration_ns", "1 to 60000000000"}},
        Bad{"DurationLong", With("a,memory,1,60000000001\n"), {"bad.csv:2", "duration_ns"}},
        Bad{"DurationOverflow",
            With("a,memory,1,99999999999999999999999\n"),
            {"bad.csv:2", "duration_ns"}},
        Bad{"DurationFraction", With("a,memory,1,1.5\n"), {"bad.csv:2", "duration_ns", "'1.5'"}},
        Bad{"DurationPlus", With("a,memory,1,+5\n"), {"bad.csv:2", "duration_ns", "'+5'"}},
        Bad{"Nul", With(std::string("a\0b,memory,1,1\n", 15)), {"bad.csv:2", "control", "a\\x00b"}},
        Bad{"NulInNumber",
            With(std::string("a,memory,1,1\0\n", 14)),
            {"bad.csv:2", "duration_ns", "\\x00"}},
        Bad{"BareCr", With("a\rb,memory,1,1\n"), {"bad.csv:2", "control", "byte 13"}},
        Bad{"NotUtf8", With("a\xff,memory,1,1\n"), {"bad.csv:2", "UTF-8", "\\xff"}},
        Bad{"Surrogate", With("\xed\xa0\x80,memory,1,1\n"), {"bad.csv:2", "UTF-8"}},
        Bad{"Overlong", With("\xc0\x80,memory,1,1\n"), {"bad.csv:2", "UTF-8"}},
        Bad{"CutSequence", With("\xe2\x82,memory,1,1\n"), {"bad.csv:2", "UTF-8"}},
        Bad{"HugeLine", With(std::string(10 << 20, 'x')), {"bad.csv:2", "10485760 bytes"}},
        Bad{"HugeHeader", std::string(10 << 20, 'k'), {"bad.csv:1", "header"}}),
    [](const auto& row) { return std::string(row.param.what); });

TEST(TraceReaderTest, AMillionKernelsAreAllowedAndOneMoreIsNot) {
  std::string text = kHeader;
  for (int64_t i = 0; i < kMaxTraceKernels; ++i) text += "k,memory,1,1\n";
  ASSERT_TRUE(ParseTrace(text, "t").ok());
  text += "k,memory,1,1\n";
  const auto trace = ParseTrace(text, "t");
  ASSERT_FALSE(trace.ok());
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr("t:1000002"));
}

TEST(TraceReaderTest, TextSurvivesARoundTrip) {
  const std::string text =
      With("\"\"q\"\",memory,1,2\n\",compute,3,4\na,b,unknown,5,6\n\xc3\xa4,memory,7,8\n");
  const auto first = ParseTrace(text, "t");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(FormatTrace(*first), text);
}

class TraceFileTest : public ::testing::Test {
 protected:
  TraceFileTest()
      : path_(::testing::TempDir() + "gpushare_trace_" + std::to_string(::getpid()) + ".v1.csv") {}
  ~TraceFileTest() override { std::filesystem::remove(path_); }
  const std::string path_;
};

TEST_F(TraceFileTest, LabelIsTheNameOfTheFile) {
  std::ofstream(path_) << With("a,memory,1,2\n");
  const auto trace = ReadTraceFile(path_);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->label(), std::filesystem::path(path_).stem().string());
}

TEST_F(TraceFileTest, ErrorsCarryThePath) {
  std::ofstream(path_) << With("a,memory,1,2\nb,memory,1,x\n");
  const auto trace = ReadTraceFile(path_);
  ASSERT_FALSE(trace.ok());
  EXPECT_THAT(std::string(trace.status().message()), HasSubstr(path_ + ":3: duration_ns"));
}

TEST_F(TraceFileTest, WhatIsNoFileIsAnError) {
  EXPECT_EQ(ReadTraceFile(path_ + ".none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadTraceFile(::testing::TempDir()).ok());
  // The writer of a pipe may never come, and /dev/zero never ends.
  const std::string pipe = path_ + ".pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    EXPECT_EQ(ReadTraceFile(path).status().message(), path + ": a trace is read from a file");
  }
  unlink(pipe.c_str());
  EXPECT_FALSE(ReadTraceFile("").ok());
  EXPECT_FALSE(ReadTraceFile(std::string("a\0b", 3)).ok());
}

// Real profiles are not part of the project: they come from the build's GPUSHARE_TRACE_DIR, or from the folder that
// GPUSHARE_TRACES names.
TEST(TraceReaderTest, ReadsRealProfiles) {
  const auto named = base::GetEnv("GPUSHARE_TRACES");
  const std::string folder = named.value_or(GPUSHARE_TRACE_DIR);
  if (!named && !std::filesystem::is_directory(folder)) {
    GTEST_SKIP() << "no kernel traces at " << folder << "; GPUSHARE_TRACES names a folder of them";
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".csv") continue;
    ++files;
    const auto trace = ReadTraceFile(entry.path().string());
    ASSERT_TRUE(trace.ok()) << trace.status();
    const TraceSummary sums = Summarize(*trace);
    std::printf(
        "%-32s %5lld kernels %3lld names %5lld keys %9.3f ms, longest %7.1f us, mean %6.1f SMs\n",
        trace->label().c_str(), static_cast<long long>(sums.kernels),
        static_cast<long long>(sums.distinct_names), static_cast<long long>(sums.distinct_keys),
        static_cast<double>(sums.total.count()) / 1e6,
        static_cast<double>(sums.longest.count()) / 1e3, Summarize(*trace, 132).mean_sms);
    EXPECT_EQ(ParseTrace(FormatTrace(*trace), "again")->kernels().size(), trace->kernels().size());
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace gpushare::workload
