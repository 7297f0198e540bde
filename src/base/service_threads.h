// SPDX-License-Identifier: Apache-2.0
// Counts the threads that gpushare runs in the process for its own purposes: those of Clock::StartService().
//
// A process whose main thread has called pthread_exit() must end with the last thread of the program itself. To detect that,
// gpushare has to know how many threads are its own (shim/last_threads.h).
#ifndef GPUSHARE_BASE_SERVICE_THREADS_H_
#define GPUSHARE_BASE_SERVICE_THREADS_H_

#include <atomic>
#include <functional>
#include <utility>

namespace gpushare::base {

// Never larger than the real number: a thread counts itself once it runs, until its body returns.
inline std::atomic<int> service_threads{0};

// Wraps the body of a service thread so that it is counted.
inline std::function<void()> Service(std::function<void()> body) {
  return [body = std::move(body)] {
    service_threads.fetch_add(1);
    body();
    service_threads.fetch_sub(1);
  };
}

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_SERVICE_THREADS_H_
