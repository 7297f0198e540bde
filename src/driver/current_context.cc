// SPDX-License-Identifier: Apache-2.0
#include "driver/current_context.h"

thread_local constinit gpushare::driver::KeptContext gpushare_driver_kept_context;
constinit std::atomic<uint64_t> gpushare_driver_context_turn{1};

namespace gpushare::driver {

CUresult CurrentContext::Ask(const Table& driver, CUcontext* context) {
  const uint64_t turn = gpushare_driver_context_turn.load(std::memory_order_acquire);
  const CUresult result = driver.CtxGetCurrent(context);
  if (result == CUDA_SUCCESS && (turn & 3) == 0) gpushare_driver_kept_context = {*context, turn};
  return result;
}

void CurrentContext::Begin() {
  // From "not yet on" to the next multiple of 4. Invalidations made before have advanced the number already.
  uint64_t turn = gpushare_driver_context_turn.load(std::memory_order_relaxed);
  while ((turn & 3) == 1 && !gpushare_driver_context_turn.compare_exchange_weak(
                                turn, turn + 3, std::memory_order_acq_rel)) {
  }
}

void CurrentContext::End() { gpushare_driver_context_turn.fetch_or(3, std::memory_order_acq_rel); }

}  // namespace gpushare::driver
