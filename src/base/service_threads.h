// SPDX-License-Identifier: Apache-2.0
// How many threads of the process serve its others and do nothing for themselves: those of Clock::StartService().
//
// A process whose main thread has left by pthread_exit() ends with the last thread of its program, and who waits for that
// has to know which are not of the program (shim/last_threads.h).
#ifndef GPUSHARE_BASE_SERVICE_THREADS_H_
#define GPUSHARE_BASE_SERVICE_THREADS_H_

#include <atomic>
#include <functional>
#include <utility>

namespace gpushare::base {

// Never more than there are: one counts itself when it runs, and no longer when its body is done.
inline std::atomic<int> service_threads{0};

// What a service's thread runs.
inline std::function<void()> Service(std::function<void()> body) {
  return [body = std::move(body)] {
    service_threads.fetch_add(1);
    body();
    service_threads.fetch_sub(1);
  };
}

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_SERVICE_THREADS_H_
