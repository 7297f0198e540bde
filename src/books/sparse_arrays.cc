// SPDX-License-Identifier: Apache-2.0
// Mapping memory into sparse arrays (cuMemMapArrayAsync).
#include "books/sparse_arrays.h"

#include <iterator>
#include <new>
#include <utility>

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

void SparseArrays::Map(List regions) {
  const base::MutexLock lock(&mutex_);
  regions_.splice(regions_.end(), regions);
  count_.store(regions_.size());
}

template <typename Wanted>
SparseArrays::List SparseArrays::Take(const Wanted& wanted) {
  List taken;
  if (count_.load() == 0) return taken;
  const base::MutexLock lock(&mutex_);
  for (auto one = regions_.begin(); one != regions_.end();) {
    const auto next = std::next(one);
    if (wanted(*one)) taken.splice(taken.end(), regions_, one);
    one = next;
  }
  count_.store(regions_.size());
  return taken;
}

SparseArrays::List SparseArrays::Unmap(const Region& region) {
  return Take([&](const Region& one) { return region.Covers(one); });
}
SparseArrays::List SparseArrays::TakeOf(uint64_t array) {
  return Take([&](const Region& one) { return one.array == array; });
}
SparseArrays::List SparseArrays::TakeOf(const ContextTags::Set& contexts) {
  return Take([&](const Region& one) { return contexts[one.place]; });
}

// Memory that was mapped into a region is in use until the stream has reached the unmapping, or the mapping that replaces it.
CUresult Books::MemMapArrayAsync(CUarrayMapInfo* list, unsigned count, CUstream stream) {
  // A larger count may be an invalid argument, so such a list is read only after the driver has accepted it.
  constexpr unsigned kMostRead = 4096;
  CUcontext context = nullptr;
  driver_.CtxGetCurrent(&context);
  SparseArrays::List parts;
  const auto read = [&] {
    for (unsigned i = 0; list != nullptr && i < count; ++i) {
      parts.push_back(SparseArrays::RegionOf(list[i], {}, tags_.Of(context)));
      if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) {
        parts.back().memory = physical_.Use(list[i].memHandle.memHandle);
      }
    }
  };
  const auto forget = [&] {
    for (const SparseArrays::Region& part : parts) {
      Finish(physical_, physical_.Unuse(part.memory));
    }
  };
  const bool before = count <= kMostRead;
  try {
    if (before) read();
  } catch (const std::bad_alloc&) {
    forget();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = driver_.MemMapArrayAsync(list, count, stream);
  if (result != CUDA_SUCCESS) {
    forget();
    return result;
  }
  if (!before) read();
  SparseArrays::List gone;
  while (!parts.empty()) {
    SparseArrays::List part;
    part.splice(part.end(), parts, parts.begin());
    gone.splice(gone.end(), sparse_.Unmap(part.front()));
    if (part.front().memory) sparse_.Map(std::move(part));
  }
  for (const SparseArrays::Region& region : gone) {
    if (late_.Add({.allocation = {}, .memory = region.memory}, stream)) continue;
    Finish(physical_, physical_.Unuse(region.memory));
  }
  return result;
}

}  // namespace gpushare::books
