// SPDX-License-Identifier: Apache-2.0
// Whatever a kernel's name is, the trace reader accepts the line and returns the same name.
#include "record/row.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "workload/trace.h"

namespace gpushare::record {
namespace {

workload::KernelTrace Read(const std::string& rows) {
  const absl::StatusOr<workload::KernelTrace> trace =
      workload::ParseTrace(absl::StrCat(kHeader, rows), "rows");
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *trace : workload::KernelTrace();
}

std::string NameRead(std::string_view name) {
  const workload::KernelTrace trace = Read(RowOf(name, 1, Nanos(1)));
  return trace.empty() ? "" : trace.name_of(trace.kernels()[0]);
}

TEST(Row, IsReadAsItWasWritten) {
  const workload::KernelTrace trace =
      Read(RowOf("gemm<float, 4>", 80, Nanos(1234)) + RowOf("gemm<float, 4>", 81, Nanos(1235)));
  ASSERT_EQ(trace.kernels().size(), 2u);
  EXPECT_EQ(trace.names().size(), 1u);
  const workload::TraceKernel& kernel = trace.kernels()[0];
  EXPECT_EQ(trace.name_of(kernel), "gemm<float, 4>");
  EXPECT_EQ(kernel.bound, workload::Bound::kUnknown);
  EXPECT_EQ(kernel.sms, 80);
  EXPECT_EQ(kernel.duration, Nanos(1234));
}

TEST(Row, BringsValuesIntoTheirRanges) {
  const workload::KernelTrace trace =
      Read(RowOf("a", 0, Nanos(-5)) + RowOf("a", UINT64_MAX, Seconds(1000)));
  ASSERT_EQ(trace.kernels().size(), 2u);
  EXPECT_EQ(trace.kernels()[0].sms, 1);
  EXPECT_EQ(trace.kernels()[0].duration, Nanos(1));
  EXPECT_EQ(trace.kernels()[1].sms, workload::kMaxKernelSms);
  EXPECT_EQ(trace.kernels()[1].duration, workload::kMaxKernelDuration);
}

TEST(Row, NamesThatTheFormatDoesNotTake) {
  EXPECT_EQ(NameRead(""), "unnamed");
  EXPECT_EQ(NameRead("a\nb\tc"), "a?b?c");
  EXPECT_EQ(NameRead("a\xff\xc3"), "a??");
  EXPECT_EQ(NameRead("\"a\""), "\"a\"");
  EXPECT_EQ(NameRead("a,b,memory,1,2"), "a,b,memory,1,2");
  EXPECT_EQ(NameRead("größe"), "größe");
}

TEST(Row, LongNamesStayApart) {
  const std::string begin(3000, 'x');
  const std::string one = NameRead(begin + "1"), other = NameRead(begin + "2");
  EXPECT_EQ(one.size(), workload::kMaxKernelNameBytes);
  EXPECT_NE(one, other);
  EXPECT_EQ(one, NameRead(begin + "1"));
  EXPECT_EQ(NameRead(std::string(1024, 'y')), std::string(1024, 'y'));
  // The name is not cut within a character, and its quotes do not make it too long.
  std::string umlauts;
  while (umlauts.size() < 2000) umlauts += "ü";
  EXPECT_LE(NameRead(umlauts).size(), workload::kMaxKernelNameBytes);
  EXPECT_LE(NameRead("x" + umlauts).size(), workload::kMaxKernelNameBytes);
  EXPECT_FALSE(NameRead("\"" + std::string(1022, 'z') + "\"").empty());
}

TEST(Row, AnyBytes) {
  std::mt19937_64 random(1);
  const std::string some = ",\"\n\r\xc3\xbc\xff\x80 ax0\\~\x7f\xe2\x82\xac";
  for (int i = 0; i < 20'000; ++i) {
    std::string name(random() % 40, ' ');
    for (char& c : name)
      c = random() % 3 == 0 ? static_cast<char>(random()) : some[random() % some.size()];
    if (i % 50 == 0) name += std::string(1000 + random() % 60, 'n');
    ASSERT_EQ(
        Read(RowOf(name, random(), Nanos(static_cast<int64_t>(random() >> 1)))).kernels().size(),
        1u)
        << testing::PrintToString(name);
  }
}

}  // namespace
}  // namespace gpushare::record
