// SPDX-License-Identifier: Apache-2.0
// Detects fork(): neither CUDA nor gpushare's threads and locks survive in the child.
#ifndef GPUSHARE_PYTHON_FORK_H_
#define GPUSHARE_PYTHON_FORK_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace gpushare::python {

// The number of forks between the process that loaded the extension and this one.
inline std::atomic<uint32_t> fork_generation{0};

inline uint32_t ForkGeneration() { return fork_generation.load(std::memory_order_relaxed); }

inline void WatchForks() {
  pthread_atfork(nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
}

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_FORK_H_
