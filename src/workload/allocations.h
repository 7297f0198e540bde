// SPDX-License-Identifier: Apache-2.0
// The allocations and frees of a training loop, in order: the pattern that a caching allocator must serve.
//
//   GPUSHARE_ASSIGN_OR_RETURN(AllocationPattern pattern,
//                             TransformerTraining({.layers = 12, .batch = 8}));
//   for (const AllocationPattern::Step& step : pattern.steps) ...
//
// The pattern follows the shapes of the layers, as an eager framework with automatic differentiation does. Weights and
// optimizer state are allocated once. The forward pass allocates each layer's output and what its backward pass needs, with
// workspaces that live for one kernel. The backward pass goes in reverse; gradients of activations live for one layer,
// gradients of weights until the optimizer's step. The logits for the loss are the largest buffer. The next batch is fetched at
// the same time. Some iterations differ, as in real loops: a short last batch, and now and then an evaluation, which keeps
// nothing for a backward pass.
//
// Sizes are in bytes; activations have 16 bits, the optimizer state 32. Deterministic.
#ifndef GPUSHARE_WORKLOAD_ALLOCATIONS_H_
#define GPUSHARE_WORKLOAD_ALLOCATIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::workload {

struct AllocationPattern {
  struct Step {
    uint32_t buffer = 0;  // numbered in the order of allocation
    uint64_t bytes = 0;   // 0: the buffer is freed
  };
  std::string label;
  std::vector<Step> steps;
  uint32_t buffers = 0;
  uint64_t peak = 0;  // the most bytes that are live at once

  // The end of the warm-up: the index of the first step after the first iteration.
  size_t steady = 0;
};

struct TrainingLoop {
  int64_t iterations = 20;     // 1 to 10000
  int64_t evaluate_every = 8;  // iterations; 0: never
  int64_t short_batch_every =
      10;  // iterations; 0: never; such a batch has two thirds of the samples
};

struct TransformerTrainingOptions {
  int64_t layers = 12;         // 1 to 256
  int64_t hidden = 768;        // 64 to 65536
  int64_t heads = 12;          // 1 to 1024
  int64_t sequence = 512;      // 1 to 65536 tokens
  int64_t vocabulary = 50257;  // 1 to 10000000
  int64_t batch = 8;           // 1 to 4096 sequences
  TrainingLoop loop = {};
};
// InvalidArgument names the option and its allowed range, here and below.
absl::StatusOr<AllocationPattern> TransformerTraining(const TransformerTrainingOptions& options);

struct ConvolutionTrainingOptions {
  int64_t batch = 32;  // 1 to 4096 images of 224 x 224
  TrainingLoop loop = {};
};
// ResNet-50.
absl::StatusOr<AllocationPattern> ConvolutionTraining(const ConvolutionTrainingOptions& options);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ALLOCATIONS_H_
