// SPDX-License-Identifier: Apache-2.0
// Records an AllocationPattern.
#ifndef GPUSHARE_WORKLOAD_TAPE_H_
#define GPUSHARE_WORKLOAD_TAPE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "workload/allocations.h"

namespace gpushare::workload::workload_internal {

class Tape {
 public:
  using Buffer = uint32_t;

  explicit Tape(std::string label) { pattern_.label = std::move(label); }

  Buffer Take(int64_t bytes);
  void Drop(Buffer buffer);
  // A buffer that lives for one kernel.
  void Use(int64_t bytes) { Drop(Take(bytes)); }

  void EndOfWarmUp() { pattern_.steady = pattern_.steps.size(); }
  AllocationPattern Finish() && { return std::move(pattern_); }

 private:
  AllocationPattern pattern_;
  std::vector<uint64_t> sizes_;  // 0: the buffer is freed
  uint64_t live_ = 0;
};

// Calls `iteration(samples, training)` like a training loop: mostly with full batches, sometimes a short one or an evaluation.
template <typename Iteration>
void RunLoop(const TrainingLoop& loop, int64_t batch, Tape* tape, const Iteration& iteration) {
  const auto every = [](int64_t i, int64_t period) {
    return period != 0 && i % period == period - 1;
  };
  for (int64_t i = 0; i < loop.iterations; ++i) {
    const bool is_short = every(i, loop.short_batch_every);
    iteration(is_short ? batch * 2 / 3 + (batch == 1 ? 1 : 0) : batch, /*training=*/true);
    if (i == 0) tape->EndOfWarmUp();
    if (every(i, loop.evaluate_every)) iteration(2 * batch, /*training=*/false);
  }
}

absl::Status CheckLoop(const char* model, const TrainingLoop& loop);

}  // namespace gpushare::workload::workload_internal

#endif  // GPUSHARE_WORKLOAD_TAPE_H_
