// SPDX-License-Identifier: Apache-2.0
// Inference of a GPT decoder (Radford et al., 2019): reading a prompt, and generating one token.
#include <utility>

#include "base/status_macros.h"
#include "workload/models.h"
#include "workload/transformer.h"

namespace gpushare::workload {
namespace {

constexpr int64_t kMostTokens = 1 << 20;

absl::Status Check(const GptOptions& options) {
  using workload_internal::CheckRange;
  GPUSHARE_RETURN_IF_ERROR(CheckRange("gpt", "layers", options.layers, 1, 256));
  GPUSHARE_RETURN_IF_ERROR(CheckRange("gpt", "hidden", options.hidden, 64, 65536));
  GPUSHARE_RETURN_IF_ERROR(CheckRange("gpt", "heads", options.heads, 1, 1024));
  GPUSHARE_RETURN_IF_ERROR(CheckRange("gpt", "vocabulary", options.vocabulary, 1, 10'000'000));
  GPUSHARE_RETURN_IF_ERROR(CheckRange("gpt", "batch", options.batch, 1, 4096));
  if (options.hidden % options.heads != 0) {
    return absl::InvalidArgumentError("gpt: hidden is " + std::to_string(options.hidden) +
                                      ": allowed are multiples of heads (" +
                                      std::to_string(options.heads) + ")");
  }
  return absl::OkStatus();
}

// `queries` new tokens per sequence, each attending to `keys` tokens; then one row of logits per sequence.
absl::StatusOr<ModelTrace> Step(const GptOptions& options, int64_t queries, int64_t keys,
                                const std::string& label, const GpuRates& rates) {
  const workload_internal::BlockShape block = {options.batch,  queries,       keys,
                                               options.hidden, options.heads, 4 * options.hidden};
  Roofline net(rates, label);
  net.Elementwise("embedding",
                  {.elements = block.tokens() * options.hidden, .reads = 2, .writes = 1});
  net.Elementwise("layer_norm",
                  {.elements = block.tokens() * options.hidden, .reads = 1, .writes = 1});
  for (int64_t i = 0; i < options.layers; ++i) {
    workload_internal::AddBlockForward(block, /*fused=*/true, &net);
  }
  net.Gemm("linear_logits", {.m = options.batch, .n = options.vocabulary, .k = options.hidden});
  net.Elementwise("sample",
                  {.elements = options.batch * options.vocabulary, .reads = 1, .writes = 0});
  return std::move(net).Finish();
}

std::string Label(const GptOptions& options, const char* phase, int64_t tokens) {
  return "gpt_l" + std::to_string(options.layers) + "_h" + std::to_string(options.hidden) + "_b" +
         std::to_string(options.batch) + "_" + phase + std::to_string(tokens);
}

}  // namespace

absl::StatusOr<ModelTrace> GptPrefill(const GptOptions& options, int64_t prompt,
                                      const GpuRates& rates) {
  GPUSHARE_RETURN_IF_ERROR(Check(options));
  GPUSHARE_RETURN_IF_ERROR(workload_internal::CheckRange("gpt", "prompt", prompt, 1, kMostTokens));
  return Step(options, prompt, prompt, Label(options, "prefill", prompt), rates);
}

absl::StatusOr<ModelTrace> GptDecode(const GptOptions& options, int64_t context,
                                     const GpuRates& rates) {
  GPUSHARE_RETURN_IF_ERROR(Check(options));
  GPUSHARE_RETURN_IF_ERROR(
      workload_internal::CheckRange("gpt", "context", context, 1, kMostTokens));
  return Step(options, 1, context + 1, Label(options, "decode", context), rates);
}

}  // namespace gpushare::workload
