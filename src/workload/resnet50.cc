// SPDX-License-Identifier: Apache-2.0
// ResNet-50 (He et al., 2015) in the variant with the stride in the 3x3 convolution ("v1.5").
#include "workload/resnet50.h"

#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "workload/models.h"

namespace gpushare::workload {
namespace workload_internal {

std::vector<Convolution> Convolutions() {
  std::vector<Convolution> convs = {{3, 64, 7, 2, 224, true, false}};
  struct Stage {
    int64_t blocks, width, stride;
  };
  int64_t channels = 64, size = 56;  // after the 3x3 pooling of stride 2
  for (const Stage& stage :
       {Stage{3, 64, 1}, Stage{4, 128, 2}, Stage{6, 256, 2}, Stage{3, 512, 2}}) {
    for (int64_t block = 0; block < stage.blocks; ++block) {
      const int64_t stride = block == 0 ? stage.stride : 1;
      const int64_t wide = 4 * stage.width;
      convs.push_back({channels, stage.width, 1, 1, size, true, false});
      convs.push_back({stage.width, stage.width, 3, stride, size, true, false});
      if (block == 0) convs.push_back({channels, wide, 1, stride, size, false, false});
      size /= stride;
      convs.push_back({stage.width, wide, 1, 1, size, true, true});
      channels = wide;
    }
  }
  return convs;
}

}  // namespace workload_internal

namespace {

using workload_internal::Convolutions;
using Conv = workload_internal::Convolution;

// The sizes of one convolution as a matrix product over the batch.
struct Sizes {
  explicit Sizes(const Conv& conv, int64_t batch)
      : pixels(batch * conv.out_size() * conv.out_size()),
        input(batch * conv.in_size * conv.in_size * conv.in),
        output(pixels * conv.out),
        depth(conv.in * conv.kernel * conv.kernel) {}
  int64_t pixels, input, output, depth;
};

constexpr int64_t kFeatures = 2048, kClasses = 1000;

void Forward(const std::vector<Conv>& convs, int64_t batch, bool fused, Roofline* net) {
  for (size_t i = 0; i < convs.size(); ++i) {
    const Conv& conv = convs[i];
    const Sizes sizes(conv, batch);
    net->Gemm(conv.kernel == 1   ? "conv1x1_forward"
              : conv.kernel == 3 ? "conv3x3_forward"
                                 : "conv7x7_forward",
              {.m = sizes.pixels, .n = conv.out, .k = sizes.depth, .input_elements = sizes.input});
    if (!fused) {
      // Statistics and normalisation, one block per channel; the activations are read twice.
      net->Reduce("batch_norm_forward",
                  {.blocks = conv.out, .elements = sizes.output, .reads = 2, .writes = 1});
      if (conv.adds_shortcut) {
        net->Elementwise("add", {.elements = sizes.output, .reads = 2, .writes = 1});
      }
      if (conv.relu) net->Elementwise("relu", {.elements = sizes.output, .reads = 1, .writes = 1});
    }
    if (i ==
        0) {  // 3x3 with stride 2: a quarter of the pixels; thanks to the cache each input is read once
      net->Elementwise("max_pool", {.elements = sizes.output, .reads = 1, .writes = 1});
    }
  }
  net->Reduce("average_pool",
              {.blocks = batch * kFeatures / 256, .elements = batch * kFeatures * 49, .reads = 1});
  net->Gemm("fully_connected", {.m = batch, .n = kClasses, .k = kFeatures});
}

void Backward(const std::vector<Conv>& convs, int64_t batch, Roofline* net) {
  net->Elementwise("softmax_cross_entropy",
                   {.elements = batch * kClasses, .reads = 1, .writes = 1});
  net->Gemm("fully_connected_dgrad", {.m = batch, .n = kFeatures, .k = kClasses});
  net->Gemm("fully_connected_wgrad", {.m = kClasses, .n = kFeatures, .k = batch});
  net->Elementwise("average_pool_backward",
                   {.elements = batch * kFeatures * 49, .reads = 0, .writes = 1});
  for (size_t i = convs.size(); i-- > 0;) {
    const Conv& conv = convs[i];
    const Sizes sizes(conv, batch);
    if (i == 0) {
      net->Elementwise("max_pool_backward", {.elements = sizes.output, .reads = 1, .writes = 1});
    }
    if (conv.relu) {
      net->Elementwise("relu_backward", {.elements = sizes.output, .reads = 2, .writes = 1});
    }
    net->Reduce("batch_norm_backward",
                {.blocks = conv.out, .elements = sizes.output, .reads = 4, .writes = 1});
    net->Gemm("conv_wgrad",
              {.m = conv.out, .n = sizes.depth, .k = sizes.pixels, .input_elements = sizes.output});
    if (i > 0) {  // the images need no gradient
      // Each input pixel meets only one in stride^2 of the kernel's taps.
      const int64_t taps = conv.out * conv.kernel * conv.kernel / (conv.stride * conv.stride);
      net->Gemm("conv_dgrad", {.m = batch * conv.in_size * conv.in_size,
                               .n = conv.in,
                               .k = taps,
                               .input_elements = sizes.output});
    }
    if (conv.adds_shortcut) {
      net->Elementwise("add_gradient", {.elements = sizes.output, .reads = 2, .writes = 1});
    }
  }
}

// Stochastic gradient descent with momentum on 32-bit master weights: one kernel for each set of weights, of the convolutions
// and of the last layer.
void Optimise(const std::vector<Conv>& convs, Roofline* net) {
  const ElementwiseShape update = {.reads = 3, .writes = 2, .bytes_per_element = 4};
  for (const Conv& conv : convs) {
    ElementwiseShape shape = update;
    shape.elements = conv.in * conv.out * conv.kernel * conv.kernel + 2 * conv.out;
    net->Elementwise("sgd_momentum", shape);
  }
  ElementwiseShape shape = update;
  shape.elements = kFeatures * kClasses + kClasses;
  net->Elementwise("sgd_momentum", shape);
}

}  // namespace

absl::StatusOr<ModelTrace> Resnet50(const Resnet50Options& options, const GpuRates& rates) {
  GPUSHARE_RETURN_IF_ERROR(
      workload_internal::CheckRange("resnet50", "batch", options.batch, 1, 4096));
  const bool training = options.pass == Pass::kTraining;
  const std::vector<Conv> convs = Convolutions();
  Roofline net(rates, std::string("resnet50_b") + std::to_string(options.batch) +
                          (training ? "_training" : "_inference"));
  Forward(convs, options.batch, /*fused=*/!training, &net);
  if (training) {
    Backward(convs, options.batch, &net);
    Optimise(convs, &net);
  }
  return std::move(net).Finish();
}

}  // namespace gpushare::workload
