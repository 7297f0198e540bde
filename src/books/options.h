// SPDX-License-Identifier: Apache-2.0
// The options of a process's books.
#ifndef GPUSHARE_BOOKS_OPTIONS_H_
#define GPUSHARE_BOOKS_OPTIONS_H_

#include <cuda.h>

#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace gpushare::books {

struct Options {
  base::Clock* clock = nullptr;  // null: the real clock
  // The unit in which the card allocates memory. Direct, pitched and managed allocations and arrays are charged in multiples
  // of it. A power of two. The driver does not report it.
  uint64_t unit = 1;
  // Makes a stream of the program wait for an event (PoolFrees). Null: the driver's call.
  std::function<CUresult(CUstream, CUevent)> follow = nullptr;
  // Puts a host function into a stream of the program, to tell waiting requests when the stream has reached it. Null: the
  // driver's call.
  std::function<CUresult(CUstream, CUhostFn, void*)> tell = nullptr;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_OPTIONS_H_
