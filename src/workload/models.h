// SPDX-License-Identifier: Apache-2.0
// Kernel sequences of well-known networks, computed from the shapes of their layers by the roofline model.
//
//   GPUSHARE_ASSIGN_OR_RETURN(GpuRates rates, RatesOf("h200"));
//   GPUSHARE_ASSIGN_OR_RETURN(ModelTrace model, Resnet50({.batch = 8}, rates));
//
// Each function returns the kernels of one iteration (training) or one batch (inference), in order, with 16-bit activations.
// Inference fuses normalisation, bias and activation into the preceding product, as inference engines do; training runs them as
// separate kernels, as eager frameworks do. InvalidArgument names the option and its allowed range. docs/workloads.md has
// shapes and sources.
#ifndef GPUSHARE_WORKLOAD_MODELS_H_
#define GPUSHARE_WORKLOAD_MODELS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "workload/roofline.h"

namespace gpushare::workload {

enum class Pass : uint8_t { kInference, kTraining };

struct Resnet50Options {
  Pass pass = Pass::kInference;
  int64_t batch = 1;  // 1 to 4096 images of 224 x 224
};
absl::StatusOr<ModelTrace> Resnet50(const Resnet50Options& options, const GpuRates& rates);

struct BertOptions {
  Pass pass = Pass::kInference;
  int64_t batch = 1;              // 1 to 4096 sequences
  int64_t sequence_length = 128;  // 1 to 16384 tokens
};
absl::StatusOr<ModelTrace> BertBase(const BertOptions& options, const GpuRates& rates);

// A GPT decoder. The defaults are GPT-2 small (124 million parameters).
struct GptOptions {
  int64_t layers = 12;         // 1 to 256
  int64_t hidden = 768;        // 64 to 65536, a multiple of heads
  int64_t heads = 12;          // 1 to 1024
  int64_t vocabulary = 50257;  // 1 to 10000000
  int64_t batch = 1;           // 1 to 4096 sequences
};
// Reads a prompt of `prompt` tokens (1 to 1048576) and produces the first token.
absl::StatusOr<ModelTrace> GptPrefill(const GptOptions& options, int64_t prompt,
                                      const GpuRates& rates);
// Produces one token per sequence after `context` tokens (1 to 1048576) with cached keys and values.
absl::StatusOr<ModelTrace> GptDecode(const GptOptions& options, int64_t context,
                                     const GpuRates& rates);

namespace workload_internal {
// InvalidArgument "<model>: <field> is <value>: allowed are integers from <least> to <most>", or OK.
absl::Status CheckRange(const char* model, const char* field, int64_t value, int64_t least,
                        int64_t most);
}  // namespace workload_internal

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_MODELS_H_
