// SPDX-License-Identifier: Apache-2.0
// The kernels of a transformer block, shared by the encoder (BERT) and the decoder (GPT).
#ifndef GPUSHARE_WORKLOAD_TRANSFORMER_H_
#define GPUSHARE_WORKLOAD_TRANSFORMER_H_

#include <cstdint>

#include "workload/roofline.h"

namespace gpushare::workload::workload_internal {

struct BlockShape {
  int64_t batch;
  int64_t queries;  // new tokens of a sequence
  int64_t keys;     // tokens that each of them attends to
  int64_t hidden;
  int64_t heads;
  int64_t feed_forward;  // width of the inner layer

  int64_t tokens() const { return batch * queries; }
  int64_t head_size() const { return hidden / heads; }
  int64_t scores() const { return batch * heads * queries * keys; }
};

// `fused`: bias, activation and residual are part of the products, and softmax includes scaling and masking.
void AddBlockForward(const BlockShape& shape, bool fused, Roofline* net);
void AddBlockBackward(const BlockShape& shape, Roofline* net);

// Adam on 32-bit master weights: one kernel that updates `weights` of them.
void AddAdam(int64_t weights, Roofline* net);

}  // namespace gpushare::workload::workload_internal

#endif  // GPUSHARE_WORKLOAD_TRANSFORMER_H_
