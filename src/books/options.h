// SPDX-License-Identifier: Apache-2.0
// The options of a process's books.
#ifndef GPUSHARE_BOOKS_OPTIONS_H_
#define GPUSHARE_BOOKS_OPTIONS_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"

namespace gpushare::driver {
class Driver;
}  // namespace gpushare::driver

namespace gpushare::books {

// Of an H100 and an H200 with driver 580: 64 allocations of 1 byte take 2 MiB, those of 1 MiB + 1 byte 2 MiB each, and those of
// 3 MiB 4 MiB each.
inline constexpr uint64_t kCardPage = uint64_t{2} << 20;

// The pages in which the driver's devices hand out memory: kCardPage on a card; on the simulated GPU what it is configured to do
// (its key `page`), 0 if it hands out memory to the byte.
uint64_t PageOf(const driver::Driver& driver);

struct Options {
  base::Clock* clock = nullptr;  // null: the real clock
  // The pages in which the device hands out memory (PageOf()), a power of two; no call of the driver tells. Direct, pitched and
  // managed allocations and arrays of more than half a page take whole pages and are charged these. Smaller ones share pages and
  // are charged in multiples of 512 bytes. 0: what was asked is charged.
  uint64_t page = 0;
  // Makes a stream of the program wait for an event (PoolFrees). Null: the driver's call.
  std::function<CUresult(CUstream, CUevent)> follow = nullptr;
  // Puts a host function into a stream of the program, to tell waiting requests when the stream has reached it. Null: the
  // driver's call.
  std::function<CUresult(CUstream, CUhostFn, void*)> tell = nullptr;
  // Asked of a free that the books do not know, before the driver: frees what the process keeps in pools beside them. A null
  // stream is cuMemFree(). Nothing: it is not there.
  std::function<std::optional<CUresult>(CUdeviceptr, const CUstream*)> free_elsewhere = nullptr;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_OPTIONS_H_
