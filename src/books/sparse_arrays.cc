// SPDX-License-Identifier: Apache-2.0
// cuMemMapArrayAsync.
#include "books/sparse_arrays.h"

#include <algorithm>
#include <iterator>

#include "books/books.h"

namespace gpushare::books {

bool SparseArrays::Region::Covers(const Region& other) const {
  if (array != other.array || tail != other.tail || level != other.level || layer != other.layer) {
    return false;
  }
  for (size_t i = 0; i < offset.size(); ++i) {
    if (other.offset[i] < offset[i] || other.offset[i] - offset[i] > extent[i] ||
        other.extent[i] > extent[i] - (other.offset[i] - offset[i])) {
      return false;
    }
  }
  return true;
}

SparseArrays::Region SparseArrays::RegionOf(const CUarrayMapInfo& info,
                                            const SharedMemory::Place& memory, uint8_t place) {
  Region region{};
  region.array = info.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
                     ? reinterpret_cast<uint64_t>(info.resource.mipmap)
                     : reinterpret_cast<uint64_t>(info.resource.array);
  region.tail = info.subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL;
  region.memory = memory;
  region.place = place;
  if (region.tail) {
    const auto& tail = info.subresource.miptail;
    region.layer = tail.layer;
    region.offset = {tail.offset, 0, 0};
    region.extent = {tail.size, 0, 0};
  } else {
    const auto& part = info.subresource.sparseLevel;
    region.level = part.level;
    region.layer = part.layer;
    region.offset = {part.offsetX, part.offsetY, part.offsetZ};
    region.extent = {part.extentWidth, part.extentHeight, part.extentDepth};
  }
  return region;
}

void SparseArrays::Map(const Region& region) {
  const base::MutexLock lock(&mutex_);
  regions_.push_back(region);
  count_.store(regions_.size());
}

template <typename Wanted>
std::vector<SparseArrays::Region> SparseArrays::Take(const Wanted& wanted) {
  std::vector<Region> taken;
  if (count_.load() == 0) return taken;
  const base::MutexLock lock(&mutex_);
  const auto end = std::stable_partition(regions_.begin(), regions_.end(),
                                         [&](const Region& one) { return !wanted(one); });
  taken.assign(end, regions_.end());
  regions_.erase(end, regions_.end());
  count_.store(regions_.size());
  return taken;
}

std::vector<SparseArrays::Region> SparseArrays::Unmap(const Region& region) {
  return Take([&](const Region& one) { return region.Covers(one); });
}
std::vector<SparseArrays::Region> SparseArrays::TakeOf(uint64_t array) {
  return Take([&](const Region& one) { return one.array == array; });
}
std::vector<SparseArrays::Region> SparseArrays::TakeOf(const ContextTags::Set& contexts) {
  return Take([&](const Region& one) { return contexts[one.place]; });
}

// What a part held before is in use until the stream has come to its unmapping, or to the mapping in its place.
CUresult Books::MemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  std::vector<SharedMemory::Place> used(list != nullptr ? count : 0);
  for (size_t i = 0; i < used.size(); ++i) {
    if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
      used[i] = physical_.Use(list[i].memHandle.memHandle);
    }
  }
  const CUresult result = driver_.MemMapArrayAsync(list, count, stream);
  if (result != CUDA_SUCCESS) {
    for (const SharedMemory::Place& place : used) Finish(physical_, physical_.Unuse(place));
    return result;
  }
  CUcontext context = nullptr;
  driver_.CtxGetCurrent(&context);
  std::vector<SparseArrays::Region> gone;
  for (size_t i = 0; i < used.size(); ++i) {
    const auto region = SparseArrays::RegionOf(list[i], used[i], tags_.Of(context));
    const std::vector<SparseArrays::Region> before = sparse_.Unmap(region);
    gone.insert(gone.end(), before.begin(), before.end());
    if (used[i]) sparse_.Map(region);
  }
  for (const SparseArrays::Region& region : gone) {
    if (late_.Add({.allocation = {}, .memory = region.memory}, stream)) continue;
    Finish(physical_, physical_.Unuse(region.memory));
  }
  return result;
}

}  // namespace gpushare::books
