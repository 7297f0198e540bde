// SPDX-License-Identifier: Apache-2.0
// How the books of a process are set up.
#ifndef GPUSHARE_BOOKS_OPTIONS_H_
#define GPUSHARE_BOOKS_OPTIONS_H_

#include <cuda.h>

#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace gpushare::books {

struct Options {
  base::Clock* clock = nullptr;  // null: the machine's
  // What the card hands out at least, and in multiples of which: direct, pitched and managed allocations and
  // arrays are charged so. A power of two. The driver does not tell it.
  uint64_t unit = 1;
  // How a stream of the program's is made to wait for an event (PoolFrees); null: by the driver's call.
  std::function<CUresult(CUstream, CUevent)> follow = nullptr;
  // How a function comes into a stream of the program's, that tells who waits for room how far it has come; null: by
  // the driver's call.
  std::function<CUresult(CUstream, CUhostFn, void*)> tell = nullptr;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_OPTIONS_H_
