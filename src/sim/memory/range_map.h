// SPDX-License-Identifier: Apache-2.0
// Maps from the start of an address range to the range.
#ifndef GPUSHARE_SIM_MEMORY_RANGE_MAP_H_
#define GPUSHARE_SIM_MEMORY_RANGE_MAP_H_

#include <cstdint>
#include <iterator>

namespace gpushare::sim {

// The entry that begins at `address`, or the last one before it; end() if there is none. Only the entry knows whether its range
// includes `address`.
template <typename Map>
auto LastAtOrBefore(Map& map, uint64_t address) {
  const auto after = map.upper_bound(address);
  return after == map.begin() ? map.end() : std::prev(after);
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_RANGE_MAP_H_
