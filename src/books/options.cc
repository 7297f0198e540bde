// SPDX-License-Identifier: Apache-2.0
#include "books/options.h"

#include "driver/driver.h"
#include "gpushare/testing/sim.h"

namespace gpushare::books {

uint64_t PageOf(const driver::Driver& driver) {
  if (!driver.simulated()) return kCardPage;
  auto* const pages =
      reinterpret_cast<decltype(&gpushare_sim_pages)>(driver.Symbol("gpushare_sim_pages"));
  uint64_t page = 0;
  // All of its devices are alike.
  return pages != nullptr && pages(0, &page, nullptr) == 0 ? page : 0;
}

}  // namespace gpushare::books
