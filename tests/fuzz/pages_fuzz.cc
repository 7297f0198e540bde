// SPDX-License-Identifier: Apache-2.0
// The broker's books while others write the pages that the books read: a process without a grant gets nothing, and
// honest processes are served.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/pages_game.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1024) return -1;
  const char* const broken = gpushare::broker::PagesGame(data, size).Play();
  if (broken == nullptr) return 0;
  std::fprintf(stderr, "broken: %s\n", broken);
  std::abort();
}
