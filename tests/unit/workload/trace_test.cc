// SPDX-License-Identifier: Apache-2.0
#include "workload/trace.h"

#include <gtest/gtest.h>

namespace gpushare::workload {
namespace {

KernelTrace Sample() {
  KernelTrace trace("sample");
  trace.Add("gemm", Bound::kCompute, 96, Micros(100));
  trace.Add("relu", Bound::kMemory, 32, Micros(20));
  trace.Add("gemm", Bound::kCompute, 48, Micros(50));
  trace.Add("gemm", Bound::kUnknown, 96, Micros(30));
  return trace;
}

TEST(TraceTest, NamesAreInternedInOrderOfFirstUse) {
  const KernelTrace trace = Sample();
  EXPECT_EQ(trace.names(), (std::vector<std::string>{"gemm", "relu"}));
  ASSERT_EQ(trace.kernels().size(), 4u);
  EXPECT_EQ(trace.kernels()[0].name, trace.kernels()[2].name);
  EXPECT_EQ(trace.name_of(trace.kernels()[1]), "relu");
}

TEST(TraceTest, SummaryAddsUp) {
  const TraceSummary sums = Summarize(Sample());
  EXPECT_EQ(sums.kernels, 4);
  EXPECT_EQ(sums.distinct_names, 2);
  EXPECT_EQ(sums.distinct_keys, 3);
  EXPECT_EQ(sums.total, Micros(200));
  EXPECT_EQ(sums.longest, Micros(100));
  EXPECT_EQ(sums.widest_sms, 96);
  EXPECT_DOUBLE_EQ(sums.mean_sms, (100 * 96 + 20 * 32 + 50 * 48 + 30 * 96) / 200.0);
}

TEST(TraceTest, MeanFootprintIsCutAtTheDevice) {
  EXPECT_DOUBLE_EQ(Summarize(Sample(), 40).mean_sms, (180 * 40 + 20 * 32) / 200.0);
}

TEST(TraceTest, SummaryOfNothingIsZero) {
  const TraceSummary sums = Summarize(KernelTrace());
  EXPECT_EQ(sums.kernels, 0);
  EXPECT_EQ(sums.total, Nanos(0));
  EXPECT_EQ(sums.mean_sms, 0);
}

TEST(TraceTest, FormatIsTheDocumentedText) {
  EXPECT_EQ(FormatTrace(Sample()),
            "kernel,bound,sms,duration_ns\n"
            "gemm,compute,96,100000\n"
            "relu,memory,32,20000\n"
            "gemm,compute,48,50000\n"
            "gemm,unknown,96,30000\n");
}

}  // namespace
}  // namespace gpushare::workload
