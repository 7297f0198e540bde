// SPDX-License-Identifier: Apache-2.0
// The driver's state of the calling thread.
#ifndef GPUSHARE_SIM_CLOCK_THREAD_H_
#define GPUSHARE_SIM_CLOCK_THREAD_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "sim/clock/clock.h"
#include "sim/graph/graph.h"

namespace gpushare::sim {

struct ThreadContext {
  Thread* clock = nullptr;
  bool has_turn = false;  // on the virtual clock, from thread_enter to thread_leave
  bool in_host_function = false;
  CaptureMode capture_mode = CaptureMode::kGlobal;
  std::vector<uint64_t> contexts;  // the stack of current contexts; 0: none current
  std::unordered_map<uint64_t, uint64_t> per_thread_streams;  // context -> stream
};

// Initial-exec: every call reads this, and one pointer fits into the loader's spare TLS.
extern constinit thread_local ThreadContext* t_thread __attribute__((tls_model("initial-exec")));

// Creates the object that t_thread points to. A thread that ends while it is registered leaves the clock.
ThreadContext* NewThreadContext();
inline ThreadContext* CurrentThread() {
  return t_thread != nullptr ? t_thread : NewThreadContext();
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CLOCK_THREAD_H_
