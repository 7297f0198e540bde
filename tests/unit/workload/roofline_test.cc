// SPDX-License-Identifier: Apache-2.0
#include "workload/roofline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpushare::workload {
namespace {

// Round numbers: an SM does 1 Tflop/s, the memory 1 TB/s, and an empty kernel takes 1 us.
GpuRates Plain() {
  return {.name = "plain",
          .sms = 100,
          .matrix_flops = 100e12,
          .bytes_per_s = 1e12,
          .matrix_efficiency = 1,
          .memory_efficiency = 1,
          .floor = Micros(1)};
}

template <typename Fill>
TraceKernel One(Fill fill, const GpuRates& rates = Plain()) {
  Roofline net(rates, "one");
  fill(net);
  auto model = std::move(net).Finish();
  EXPECT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->trace.kernels().size(), 1u);
  return model->trace.kernels().front();
}

TEST(RooflineTest, LargeProductsAreBoundByCompute) {
  // 1280 x 1280 in tiles of 128 x 128: 100 tiles, one wave, 2 * 128 * 128 * 4096 flops on each SM.
  const TraceKernel kernel =
      One([](Roofline& net) { net.Gemm("gemm", {.m = 1280, .n = 1280, .k = 4096}); });
  EXPECT_EQ(kernel.bound, Bound::kCompute);
  EXPECT_EQ(kernel.sms, 100);
  EXPECT_EQ(kernel.duration, Nanos(1'000 + 134'218));
}

TEST(RooflineTest, AnotherTileIsAnotherWave) {
  const auto gemm = [](int64_t m) {
    return One([m](Roofline& net) { net.Gemm("gemm", {.m = m, .n = 1280, .k = 4096}); });
  };
  EXPECT_EQ(gemm(1281).sms, 110);
  EXPECT_NEAR(static_cast<double>((gemm(1281).duration - Micros(1)).count()),
              2 * static_cast<double>((gemm(1280).duration - Micros(1)).count()), 1);  // rounding
  EXPECT_EQ(gemm(2560).duration, gemm(1281).duration);
}

TEST(RooflineTest, ProductsWithAVectorAreBoundByMemory) {
  // The weights are read once: 8192 * 8192 * 2 bytes at 1 TB/s; the vectors add 0.02 %.
  const TraceKernel kernel =
      One([](Roofline& net) { net.Gemm("gemv", {.m = 1, .n = 8192, .k = 8192}); });
  EXPECT_EQ(kernel.bound, Bound::kMemory);
  EXPECT_NEAR(static_cast<double>(kernel.duration.count()), 1'000 + 134'218, 60);
  EXPECT_GE(kernel.sms, 50) << "parts along k fill the device";
}

TEST(RooflineTest, ElementwiseIsBytesOverBandwidth) {
  const TraceKernel kernel = One([](Roofline& net) {
    net.Elementwise("add", {.elements = 10'000'000, .reads = 2, .writes = 1});
  });
  EXPECT_EQ(kernel.bound, Bound::kMemory);
  EXPECT_EQ(kernel.duration, Micros(61));
  EXPECT_EQ(kernel.sms, (10'000'000 + 8191) / 8192);
}

TEST(RooflineTest, FewBlocksDrawTheirPartOfTheBandwidth) {
  const auto reduce = [](int64_t blocks) {
    return One([blocks](Roofline& net) {
             net.Reduce("reduce", {.blocks = blocks, .elements = 5'000'000});
           }).duration -
           Micros(1);
  };
  EXPECT_EQ(reduce(100), Micros(10));
  EXPECT_EQ(reduce(50), Micros(10));
  EXPECT_EQ(reduce(25), Micros(20));
}

TEST(RooflineTest, NothingIsFasterThanAnEmptyKernel) {
  const TraceKernel kernel = One([](Roofline& net) { net.Elementwise("tiny", {.elements = 1}); });
  EXPECT_EQ(kernel.duration, Micros(1));
  EXPECT_EQ(kernel.sms, 1);
}

TEST(RooflineTest, WorkIsCountedByShapeNotByTile) {
  Roofline net(Plain(), "work");
  net.Gemm("gemm", {.m = 100, .n = 10, .k = 7, .batch = 3});
  net.Elementwise("e", {.elements = 10, .reads = 1, .writes = 1, .bytes_per_element = 4});
  const auto model = std::move(net).Finish();
  ASSERT_TRUE(model.ok());
  EXPECT_DOUBLE_EQ(model->matrix_flops, 2.0 * 100 * 10 * 7 * 3);
  EXPECT_DOUBLE_EQ(model->bytes, 2.0 * 3 * (100 * 7 + 7 * 10 + 100 * 10) + 80);
}

TEST(RooflineTest, EndlessKernelsAreAnError) {
  Roofline net(Plain(), "endless");
  net.Elementwise("forever", {.elements = int64_t{1} << 50});
  const auto model = std::move(net).Finish();
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), ::testing::HasSubstr("forever"));
}

TEST(RooflineTest, UnknownGpusAreAnErrorThatListsTheKnown) {
  for (const std::string& name : KnownRates()) EXPECT_TRUE(RatesOf(name).ok()) << name;
  const auto rates = RatesOf("h9000");
  EXPECT_EQ(rates.status().code(), absl::StatusCode::kNotFound);
  for (const std::string& name : KnownRates()) {
    EXPECT_THAT(std::string(rates.status().message()), ::testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace gpushare::workload
