// SPDX-License-Identifier: Apache-2.0
#include "workload/transformer.h"

namespace gpushare::workload::workload_internal {
namespace {

// A product of activations and weights: [tokens x in] by [in x out].
void Linear(const char* name, int64_t tokens, int64_t in, int64_t out, Roofline* net) {
  net->Gemm(name, {.m = tokens, .n = out, .k = in});
}

// Its two gradients: with respect to the input and to the weights.
void LinearBackward(int64_t tokens, int64_t in, int64_t out, Roofline* net) {
  net->Gemm("linear_dgrad", {.m = tokens, .n = in, .k = out});
  net->Gemm("linear_wgrad", {.m = out, .n = in, .k = tokens});
}

}  // namespace

void AddBlockForward(const BlockShape& shape, bool fused, Roofline* net) {
  const int64_t tokens = shape.tokens(), hidden = shape.hidden, batch = shape.batch * shape.heads;
  const int64_t wide = tokens * shape.feed_forward;

  Linear("linear_qkv", tokens, hidden, 3 * hidden, net);
  if (!fused) net->Elementwise("bias", {.elements = tokens * 3 * hidden, .reads = 1, .writes = 1});
  net->Gemm("attention_scores",
            {.m = shape.queries, .n = shape.keys, .k = shape.head_size(), .batch = batch});
  net->Elementwise("softmax", {.elements = shape.scores(), .reads = 1, .writes = 1});
  if (!fused) net->Elementwise("dropout", {.elements = shape.scores(), .reads = 1, .writes = 2});
  net->Gemm("attention_values",
            {.m = shape.queries, .n = shape.head_size(), .k = shape.keys, .batch = batch});
  Linear("linear_attention", tokens, hidden, hidden, net);
  if (!fused) net->Elementwise("dropout", {.elements = tokens * hidden, .reads = 1, .writes = 2});
  net->Elementwise("add_layer_norm", {.elements = tokens * hidden, .reads = 2, .writes = 1});

  Linear("linear_up", tokens, hidden, shape.feed_forward, net);
  if (!fused) net->Elementwise("bias_gelu", {.elements = wide, .reads = 1, .writes = 1});
  Linear("linear_down", tokens, shape.feed_forward, hidden, net);
  if (!fused) net->Elementwise("dropout", {.elements = tokens * hidden, .reads = 1, .writes = 2});
  net->Elementwise("add_layer_norm", {.elements = tokens * hidden, .reads = 2, .writes = 1});
}

void AddBlockBackward(const BlockShape& shape, Roofline* net) {
  const int64_t tokens = shape.tokens(), hidden = shape.hidden, batch = shape.batch * shape.heads;
  const int64_t head = shape.head_size(), q = shape.queries, k = shape.keys;

  net->Elementwise("layer_norm_backward", {.elements = tokens * hidden, .reads = 3, .writes = 1});
  net->Elementwise("dropout_backward", {.elements = tokens * hidden, .reads = 2, .writes = 1});
  LinearBackward(tokens, shape.feed_forward, hidden, net);
  net->Elementwise("gelu_backward",
                   {.elements = tokens * shape.feed_forward, .reads = 2, .writes = 1});
  LinearBackward(tokens, hidden, shape.feed_forward, net);

  net->Elementwise("layer_norm_backward", {.elements = tokens * hidden, .reads = 3, .writes = 1});
  net->Elementwise("dropout_backward", {.elements = tokens * hidden, .reads = 2, .writes = 1});
  LinearBackward(tokens, hidden, hidden, net);
  net->Gemm("attention_dvalues", {.m = k, .n = head, .k = q, .batch = batch});
  net->Gemm("attention_dscores", {.m = q, .n = k, .k = head, .batch = batch});
  net->Elementwise("dropout_backward", {.elements = shape.scores(), .reads = 2, .writes = 1});
  net->Elementwise("softmax_backward", {.elements = shape.scores(), .reads = 2, .writes = 1});
  net->Gemm("attention_dqueries", {.m = q, .n = head, .k = k, .batch = batch});
  net->Gemm("attention_dkeys", {.m = k, .n = head, .k = q, .batch = batch});
  LinearBackward(tokens, hidden, 3 * hidden, net);
}

void AddAdam(int64_t weights, Roofline* net) {
  net->Elementwise("adam", {.elements = weights, .reads = 4, .writes = 3, .bytes_per_element = 4});
}

}  // namespace gpushare::workload::workload_internal
