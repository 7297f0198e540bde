// SPDX-License-Identifier: Apache-2.0
// The memory that is mapped into regions of sparse arrays. It is in use until the region is unmapped or the array ends.
#ifndef GPUSHARE_BOOKS_SPARSE_ARRAYS_H_
#define GPUSHARE_BOOKS_SPARSE_ARRAYS_H_

#include <cuda.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <list>

#include "base/sync.h"
#include "books/context_tags.h"
#include "books/shared_memory.h"

namespace gpushare::books {

// Thread-safe.
class SparseArrays {
 public:
  struct Region {
    uint64_t array;
    // In elements, within one layer of one level. The tail of a mipmapped array has only the first extent, in bytes.
    bool tail;
    uint32_t level, layer;
    std::array<uint64_t, 3> offset, extent;
    SharedMemory::Place memory;
    uint8_t place;  // the tag of the array's context

    bool Covers(const Region& other) const;
  };
  static Region RegionOf(const CUarrayMapInfo& info, const SharedMemory::Place& memory,
                         uint8_t place);

  // A list, because moving regions between lists needs no host memory.
  using List = std::list<Region>;
  void Map(List regions);
  // Takes the mappings within the region, which are no longer used. A mapping that is only partly within it stays whole.
  List Unmap(const Region& region);
  List TakeOf(uint64_t array);
  List TakeOf(const ContextTags::Set& contexts);

 private:
  template <typename Wanted>
  List Take(const Wanted& wanted);

  std::atomic<uint64_t> count_{0};
  base::Mutex mutex_;
  List regions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_SPARSE_ARRAYS_H_
