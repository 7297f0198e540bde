// SPDX-License-Identifier: Apache-2.0
// Maps of address ranges by the address that they begin at.
#ifndef GPUSHARE_SIM_MEMORY_RANGE_MAP_H_
#define GPUSHARE_SIM_MEMORY_RANGE_MAP_H_

#include <cstdint>
#include <iterator>

namespace gpushare::sim {

// The entry that begins at `address` or last before it, or end() when there is none. Whether it reaches
// as far as `address` only the entry knows.
template <typename Map>
auto LastAtOrBefore(Map& map, uint64_t address) {
  const auto after = map.upper_bound(address);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_RANGE_MAP_H_
