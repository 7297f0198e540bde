// SPDX-License-Identifier: Apache-2.0
// BERT-base (Devlin et al., 2018): 12 encoder blocks of width 768.
#include <utility>

#include "base/status_macros.h"
#include "workload/models.h"
#include "workload/transformer.h"

namespace gpushare::workload {
namespace {

constexpr int64_t kLayers = 12, kHidden = 768, kHeads = 12, kFeedForward = 3072,
                  kVocabulary = 30522;
constexpr int64_t kPositions = 512;

}  // namespace

absl::StatusOr<ModelTrace> BertBase(const BertOptions& options, const GpuRates& rates) {
  using workload_internal::CheckRange;
  GPUSHARE_RETURN_IF_ERROR(CheckRange("bert", "batch", options.batch, 1, 4096));
  GPUSHARE_RETURN_IF_ERROR(
      CheckRange("bert", "sequence_length", options.sequence_length, 1, 16384));
  const bool training = options.pass == Pass::kTraining;
  const int64_t length = options.sequence_length;
  const workload_internal::BlockShape block = {options.batch, length, length,
                                               kHidden,       kHeads, kFeedForward};
  const int64_t activations = block.tokens() * kHidden;

  Roofline net(rates, "bert_base_b" + std::to_string(options.batch) + "_s" +
                          std::to_string(length) + (training ? "_training" : "_inference"));
  net.Elementwise("embedding", {.elements = activations, .reads = 3, .writes = 1});
  net.Elementwise("layer_norm", {.elements = activations, .reads = 1, .writes = 1});
  for (int64_t i = 0; i < kLayers; ++i) {
    workload_internal::AddBlockForward(block, /*fused=*/!training, &net);
  }
  net.Gemm("linear_pooler", {.m = options.batch, .n = kHidden, .k = kHidden});
  if (!training) return std::move(net).Finish();

  net.Gemm("linear_dgrad", {.m = options.batch, .n = kHidden, .k = kHidden});
  net.Gemm("linear_wgrad", {.m = kHidden, .n = kHidden, .k = options.batch});
  for (int64_t i = 0; i < kLayers; ++i) workload_internal::AddBlockBackward(block, &net);
  net.Elementwise("layer_norm_backward", {.elements = activations, .reads = 3, .writes = 1});
  net.Elementwise("embedding_backward", {.elements = activations, .reads = 2, .writes = 1});
  for (int64_t i = 0; i < kLayers; ++i) {
    workload_internal::AddAdam(4 * kHidden * kHidden + 4 * kHidden, &net);
    workload_internal::AddAdam(2 * kHidden * kFeedForward + kHidden + kFeedForward, &net);
  }
  workload_internal::AddAdam((kVocabulary + kPositions + 2) * kHidden, &net);
  return std::move(net).Finish();
}

}  // namespace gpushare::workload
