// SPDX-License-Identifier: Apache-2.0
// The convolutions of ResNet-50, from which both the kernels and the memory of a training step are derived.
#ifndef GPUSHARE_WORKLOAD_RESNET50_H_
#define GPUSHARE_WORKLOAD_RESNET50_H_

#include <cstdint>
#include <vector>

namespace gpushare::workload::workload_internal {

struct Convolution {
  int64_t in, out, kernel, stride;
  int64_t in_size;     // height and width of the input
  bool relu;           // the convolution is followed by a ReLU
  bool adds_shortcut;  // its output is added to the block's input before the activation
  int64_t out_size() const { return in_size / stride; }
};

// All 53, in order.
std::vector<Convolution> Convolutions();

}  // namespace gpushare::workload::workload_internal

#endif  // GPUSHARE_WORKLOAD_RESNET50_H_
