// SPDX-License-Identifier: Apache-2.0
// The pages of the device that small allocations share, and which parts of them are vacant.
#ifndef GPUSHARE_SIM_MEMORY_SHARED_PAGES_H_
#define GPUSHARE_SIM_MEMORY_SHARED_PAGES_H_

#include <cstdint>
#include <map>

namespace gpushare::sim {

class SharedPages {
 public:
  explicit SharedPages(uint64_t page) : page_(page) {}

  // The address of `bytes` in the first page that has room, else 0.
  uint64_t Take(uint64_t bytes);
  // Adds a page that is all vacant.
  void Add(uint64_t address);
  // Gives back what Take() gave. If that was the last in its page, the page is no longer here, and its address is returned;
  // else 0.
  uint64_t Give(uint64_t address, uint64_t bytes);
  // The vacant bytes of all pages.
  uint64_t unused() const { return unused_; }

 private:
  using Ranges = std::map<uint64_t, uint64_t>;  // address -> bytes

  const uint64_t page_;
  uint64_t unused_ = 0;
  std::map<uint64_t, Ranges> vacant_;  // of each page, by its address
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_SHARED_PAGES_H_
