// SPDX-License-Identifier: Apache-2.0
// Random runs of tests/fuzz/pages_game.h, also under the sanitizers: fields that a process may write at any time must
// be read only once. GPUSHARE_PROPERTY_CASES=N sets the number of runs.
#include "tests/fuzz/pages_game.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace gpushare::broker {
namespace {

TEST(HostilePages, GetNothingThatWasNotGranted) {
  const char* const many = std::getenv("GPUSHARE_PROPERTY_CASES");
  const uint32_t games =
      many == nullptr ? 100 : static_cast<uint32_t>(std::strtoul(many, nullptr, 10));
  for (uint32_t seed = 1; seed <= games; ++seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> bytes(1000);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    ASSERT_STREQ(PagesGame(bytes.data(), bytes.size()).Play(), nullptr) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gpushare::broker
