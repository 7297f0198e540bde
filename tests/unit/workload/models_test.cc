// SPDX-License-Identifier: Apache-2.0
// Compares the generated networks with published figures. Sources: docs/workloads.md.
#include "workload/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

namespace gpushare::workload {
namespace {

using ::testing::HasSubstr;

GpuRates H200() { return *RatesOf("h200"); }

ModelTrace Must(absl::StatusOr<ModelTrace> model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

int64_t CountOf(const KernelTrace& trace, const std::string& part) {
  int64_t count = 0;
  for (const TraceKernel& kernel : trace.kernels()) {
    if (trace.name_of(kernel).find(part) != std::string::npos) ++count;
  }
  return count;
}

// Torchvision publishes 4.09 billion multiply-adds for each image of its resnet50. The tolerance is its rounding.
TEST(Resnet50Test, ForwardWorkIsThePublishedOne) {
  const ModelTrace one = Must(Resnet50({.batch = 1}, H200()));
  EXPECT_NEAR(one.matrix_flops / 2, 4.09e9, 0.005e9);
  const ModelTrace many = Must(Resnet50({.batch = 32}, H200()));
  EXPECT_DOUBLE_EQ(many.matrix_flops, 32 * one.matrix_flops);
}

TEST(Resnet50Test, HasItsLayers) {
  const KernelTrace trace = Must(Resnet50({.batch = 4}, H200())).trace;
  EXPECT_EQ(CountOf(trace, "conv"), 53);
  EXPECT_EQ(CountOf(trace, "conv3x3"), 16);
  EXPECT_EQ(CountOf(trace, "fully_connected"), 1);
  EXPECT_EQ(CountOf(trace, "batch_norm"), 0) << "inference fuses it";
}

// A training step is three times the forward work, minus the images' gradient (first layer: 118 million multiply-adds
// for each image).
TEST(Resnet50Test, TrainingIsThreeTimesForward) {
  const double forward = Must(Resnet50({.batch = 16}, H200())).matrix_flops;
  const ModelTrace training = Must(Resnet50({.pass = Pass::kTraining, .batch = 16}, H200()));
  EXPECT_NEAR(training.matrix_flops, 3 * forward - 16 * 2 * 118.0e6, 0.001 * forward);
  EXPECT_EQ(CountOf(training.trace, "dgrad"), 53);  // 52 convolutions and the last layer
  EXPECT_EQ(CountOf(training.trace, "wgrad"), 54);
  EXPECT_EQ(CountOf(training.trace, "batch_norm_backward"), 53);
}

// NVIDIA's DeepLearningExamples give 2470 images/s on an A100 and 1200 on a V100 for mixed-precision training with
// batches of 256. The tolerance is 25 %, since a roofline knows neither layouts nor algorithms.
TEST(Resnet50Test, TrainingRunsAsFastAsMeasured) {
  for (const auto& [gpu, measured] : {std::pair{"a100", 2470.0}, std::pair{"v100", 1200.0}}) {
    const ModelTrace model = Must(Resnet50({.pass = Pass::kTraining, .batch = 256}, *RatesOf(gpu)));
    const double seconds = static_cast<double>(Summarize(model.trace).total.count()) / 1e9;
    std::printf("%s: %.0f images/s, measured %.0f\n", gpu, 256 / seconds, measured);
    EXPECT_NEAR(256 / seconds, measured, 0.25 * measured);
  }
}

// 25.6 million parameters; SGD with momentum updates each with 20 bytes of traffic.
TEST(Resnet50Test, OptimiserTouchesEveryParameter) {
  const double inference_weights = 25.56e6;
  const ModelTrace training = Must(Resnet50({.pass = Pass::kTraining, .batch = 1}, H200()));
  Nanos update{0};
  int64_t kernels = 0;
  for (const TraceKernel& kernel : training.trace.kernels()) {
    if (training.trace.name_of(kernel) == "sgd_momentum") {
      update += kernel.duration - H200().floor;
      ++kernels;
    }
  }
  EXPECT_EQ(kernels, 54);
  const double bandwidth = H200().bytes_per_s * H200().memory_efficiency;
  // Small tensors do not use the full bandwidth, so the time exceeds bytes over bandwidth.
  EXPECT_GT(static_cast<double>(update.count()), 0.999 * inference_weights * 20 / bandwidth * 1e9);
  EXPECT_LT(static_cast<double>(update.count()), 1.5 * inference_weights * 20 / bandwidth * 1e9);
}

// MobileBERT's paper gives 22.5 billion operations for BERT-base on 128 tokens. The tolerance is 2 %, since counts
// differ in what they include besides matrix products.
TEST(BertTest, ForwardWorkIsThePublishedOne) {
  const ModelTrace model = Must(BertBase({.batch = 1, .sequence_length = 128}, H200()));
  EXPECT_NEAR(model.matrix_flops, 22.5e9, 0.02 * 22.5e9);
  EXPECT_EQ(CountOf(model.trace, "linear_qkv"), 12);
}

TEST(BertTest, AttentionGrowsWithTheSquareOfTheLength) {
  const auto flops = [](int64_t length) {
    return Must(BertBase({.batch = 1, .sequence_length = length}, H200())).matrix_flops;
  };
  // Layers: 24 s h^2 + 4 s^2 h each; the pooler is a constant.
  const auto expected = [](double s) {
    return 12 * (24 * s * 768 * 768 + 4 * s * s * 768) + 2 * 768 * 768;
  };
  EXPECT_DOUBLE_EQ(flops(128), expected(128));
  EXPECT_DOUBLE_EQ(flops(512), expected(512));
}

TEST(BertTest, TrainingIsThreeTimesForward) {
  const double forward = Must(BertBase({.batch = 8}, H200())).matrix_flops;
  const ModelTrace training = Must(BertBase({.pass = Pass::kTraining, .batch = 8}, H200()));
  EXPECT_DOUBLE_EQ(training.matrix_flops, 3 * forward);
}

// Kaplan et al. (2020): 12 n_layer d_model^2 parameters besides embeddings, twice that many operations for each
// token, and 4 n_layer n_ctx d_model for attention over the whole context.
TEST(GptTest, WorkIsTheFormulaOfTheLiterature) {
  const double layers = 12, d = 768, vocabulary = 50257, parameters = 12 * layers * d * d;
  const ModelTrace prefill = Must(GptPrefill({}, 1024, H200()));
  EXPECT_DOUBLE_EQ(prefill.matrix_flops,
                   1024 * (2 * parameters + 4 * layers * 1024 * d) + 2 * vocabulary * d);
  const ModelTrace decode = Must(GptDecode({}, 1023, H200()));
  EXPECT_DOUBLE_EQ(decode.matrix_flops,
                   2 * parameters + 4 * layers * 1024 * d + 2 * vocabulary * d);
}

// Generating a token reads every weight once: 124 million parameters (GPT-2 small without the 0.8 million of position
// embeddings), 2 bytes each. The cache of 128 tokens adds 2 %, activations below 1 %.
TEST(GptTest, DecodingReadsTheWeights) {
  const ModelTrace decode = Must(GptDecode({}, 128, H200()));
  EXPECT_NEAR(decode.bytes, 2 * 123.5e6, 0.05 * 2 * 123.5e6);
  int64_t memory = 0;
  for (const TraceKernel& kernel : decode.trace.kernels()) memory += kernel.bound == Bound::kMemory;
  EXPECT_GT(memory, static_cast<int64_t>(decode.trace.kernels().size() * 3 / 4));
}

TEST(GptTest, ReadingIsBoundByComputeAndFasterATokenThanWriting) {
  const GptOptions options = {.layers = 32, .hidden = 4096, .heads = 32};
  const Nanos prefill = Summarize(Must(GptPrefill(options, 2048, H200())).trace).total;
  const Nanos decode = Summarize(Must(GptDecode(options, 2048, H200())).trace).total;
  EXPECT_LT(prefill / 2048, decode / 10);
}

// No kernel is faster than its GPU: the work divided by the time stays below the peak rates.
TEST(ModelsTest, NothingBeatsTheRoofline) {
  for (const std::string& gpu : KnownRates()) {
    const GpuRates rates = *RatesOf(gpu);
    for (const ModelTrace& model :
         {Must(Resnet50({.batch = 8}, rates)),
          Must(Resnet50({.pass = Pass::kTraining, .batch = 64}, rates)),
          Must(BertBase({.pass = Pass::kTraining, .batch = 32}, rates)),
          Must(GptPrefill({}, 512, rates)), Must(GptDecode({.batch = 16}, 512, rates))}) {
      const TraceSummary sums = Summarize(model.trace, rates.sms);
      const double seconds = static_cast<double>(sums.total.count()) / 1e9;
      EXPECT_LE(model.matrix_flops / seconds, rates.matrix_flops * rates.matrix_efficiency);
      EXPECT_LE(model.bytes / seconds, rates.bytes_per_s * rates.memory_efficiency);
      EXPECT_GT(model.matrix_flops / seconds / rates.matrix_flops +
                    model.bytes / seconds / rates.bytes_per_s,
                0.03)
          << "absurdly slow";
      std::printf(
          "%-4s %-28s %5lld kernels %9.3f ms  mean %5.1f SMs  %5.1f %% of peak flops, %5.1f %% of "
          "bandwidth\n",
          gpu.c_str(), model.trace.label().c_str(), static_cast<long long>(sums.kernels),
          seconds * 1e3, sums.mean_sms, 100 * model.matrix_flops / seconds / rates.matrix_flops,
          100 * model.bytes / seconds / rates.bytes_per_s);
    }
  }
}

TEST(ModelsTest, Deterministic) {
  EXPECT_EQ(FormatTrace(Must(Resnet50({.batch = 7}, H200())).trace),
            FormatTrace(Must(Resnet50({.batch = 7}, H200())).trace));
}

TEST(ModelsTest, TracesAreValid) {
  const ModelTrace model = Must(BertBase({.pass = Pass::kTraining, .batch = 4}, H200()));
  const auto again = ParseTrace(FormatTrace(model.trace), "again");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->kernels().size(), model.trace.kernels().size());
}

TEST(ModelsTest, OptionsOutOfRangeNameFieldAndRange) {
  const auto error = [](const absl::StatusOr<ModelTrace>& model) {
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(model.status().message());
  };
  EXPECT_THAT(error(Resnet50({.batch = 0}, H200())),
              HasSubstr("batch is 0: allowed are integers from 1 to 4096"));
  EXPECT_THAT(error(BertBase({.sequence_length = -1}, H200())), HasSubstr("sequence_length is -1"));
  EXPECT_THAT(error(GptPrefill({.hidden = 770}, 16, H200())), HasSubstr("multiples of heads"));
  EXPECT_THAT(error(GptPrefill({.heads = 0}, 16, H200())), HasSubstr("heads is 0"));
  EXPECT_THAT(error(GptPrefill({}, 0, H200())), HasSubstr("prompt is 0"));
  EXPECT_THAT(error(GptDecode({}, 1 << 21, H200())), HasSubstr("context is 2097152"));
  EXPECT_THAT(error(GptPrefill({.layers = 256, .hidden = 65536, .heads = 1024, .batch = 4096},
                               1 << 20, H200())),
              HasSubstr("60 s"));
}

}  // namespace
}  // namespace gpushare::workload
