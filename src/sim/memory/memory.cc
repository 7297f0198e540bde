// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "sim/memory/pool.h"
#include "sim/memory/range_map.h"
#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kPage = 4096;

void Discard(uint8_t* from, uint64_t bytes) {
  const auto begin = (reinterpret_cast<uintptr_t>(from) + kPage - 1) & ~(kPage - 1);
  const auto end = (reinterpret_cast<uintptr_t>(from) + bytes) & ~(kPage - 1);
  if (begin >= end) return;
  auto* const pages = reinterpret_cast<void*>(begin);
  // On pages of a file, MADV_DONTNEED would leave the bytes unchanged. MADV_REMOVE is refused for pages of anything else and,
  // with EACCES, for private pages of a file, which a forked child has.
  if (madvise(pages, end - begin, MADV_REMOVE) == 0) return;
  if (errno == EACCES) {
    std::memset(pages, 0, end - begin);
  } else {
    madvise(pages, end - begin, MADV_DONTNEED);
  }
}

}  // namespace

uint64_t DeviceMemory::left() const {
  return shared_ != nullptr ? shared_->Left(gpu_) : capacity_ - used_;
}

bool DeviceMemory::HoldShared(uint64_t bytes) { return shared_->Hold(gpu_, bytes); }

void DeviceMemory::HoldLess() { shared_->HoldLess(gpu_, used_); }

DeviceMemory::~DeviceMemory() {
  if (shared_ != nullptr) shared_->HoldLess(gpu_, 0);
  if (base_ == 0) return;
  if (visible_ == Visible::kToDevice) munmap(reinterpret_cast<void*>(base_), reserved_);
  munmap(bytes_, reserved_);
}

bool DeviceMemory::Reserve() {
  // Twice the capacity, so that fragmentation of the address space does not reduce the capacity.
  const uint64_t bytes = (capacity_ * 2 + (2 << 20)) & ~(kPage - 1);
  // Other processes can open the memory of a shared device.
  void* storage = shared_ != nullptr ? shared_->NewArena(gpu_, bytes) : MAP_FAILED;
  if (storage == MAP_FAILED) {
    storage = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (storage == MAP_FAILED) return false;
  void* addresses = storage;
  if (visible_ == Visible::kToDevice) {
    addresses = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) {
      munmap(storage, bytes);
      return false;
    }
  }
  madvise(storage, bytes, MADV_DONTDUMP);
  base_ = reinterpret_cast<uint64_t>(addresses);
  bytes_ = static_cast<uint8_t*>(storage);
  reserved_ = bytes;
  bump_ = base_;
  return true;
}

// 0 when no range is long enough.
uint64_t DeviceMemory::CarveAddresses(uint64_t span) {
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second < span) continue;
    const uint64_t address = range->first, left = range->second - span;
    ranges_.erase(range);
    if (left > 0) ranges_.emplace(address + span, left);
    return address;
  }
  if (reserved_ - (bump_ - base_) < span) return 0;
  const uint64_t address = bump_;
  bump_ += span;
  return address;
}

uint64_t DeviceMemory::CarveOrCoalesce(uint64_t span) {
  if (base_ == 0 && !Reserve()) return 0;
  if (const uint64_t address = CarveAddresses(span); address != 0) return address;
  Coalesce();
  return CarveAddresses(span);
}

Block* DeviceMemory::NewBlock(uint64_t address, uint64_t span) {
  auto block = std::make_unique<Block>();
  block->address = address;
  block->span = span;
  Block* const result = block.get();
  blocks_.emplace(address, std::move(block));
  by_address_.emplace(address, result);
  return result;
}

void DeviceMemory::Coalesce() {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    if (at->second->live) {
      ++at;
      continue;
    }
    ranges_.emplace(at->second->address, at->second->span);
    by_address_.erase(at->second->address);
    at = blocks_.erase(at);
  }
  bins_.clear();
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    const auto next = std::next(at);
    if (next != ranges_.end() && at->first + at->second == next->first) {
      at->second += next->second;
      ranges_.erase(next);
    } else {
      at = next;
    }
  }
}

Block* DeviceMemory::Allocate(uint64_t bytes, Context* context) {
  if (SharesPage(bytes)) return AllocateInPage(bytes, context);
  Block* const block = AllocateExactly(TakenBy(bytes), context);
  if (block != nullptr) block->size = bytes;
  return block;
}

Block* DeviceMemory::AllocateExactly(uint64_t bytes, Context* context) {
  if (!Charge(bytes)) return nullptr;
  Block* const block = AllocateAddresses(bytes);
  if (block == nullptr) {
    Return(bytes);
    return nullptr;
  }
  block->context = context;
  block->charged = bytes;
  return block;
}

Block* DeviceMemory::AllocateInPage(uint64_t bytes, Context* context) {
  const uint64_t span = TakenBy(bytes);
  uint64_t address = pages_.Take(span);
  if (address == 0) {
    if (!Charge(page_)) return nullptr;
    const uint64_t page = CarveOrCoalesce(page_);
    if (page == 0) {
      Return(page_);
      return nullptr;
    }
    pages_.Add(page);
    address = pages_.Take(span);
  }
  Block* const block = NewBlock(address, span);
  Begin(block, bytes);
  block->context = context;
  block->in_page = true;
  return block;
}

// The block no longer exists after the call: the next one in the page may begin elsewhere.
void DeviceMemory::FreeInPage(const Block& block) {
  const uint64_t address = block.address;
  if (const uint64_t page = pages_.Give(address, block.span); page != 0) {
    ranges_.emplace(page, page_);
    Return(page_);
  }
  by_address_.erase(address);
  blocks_.erase(address);
}

Block* DeviceMemory::AllocateAddresses(uint64_t bytes) {
  if (bytes > capacity_) return nullptr;
  const uint64_t span = (bytes + alignment_ - 1) & ~(alignment_ - 1);
  Block* block;
  Block*& bin = bins_[span];
  if (bin != nullptr) {
    block = bin;
    bin = block->next_free;
  } else {
    const uint64_t address = CarveOrCoalesce(span);
    if (address == 0) return nullptr;
    block = NewBlock(address, span);
  }
  Begin(block, bytes);
  return block;
}

void DeviceMemory::Begin(Block* block, uint64_t bytes) {
  block->size = bytes;
  block->id = ++ids_;
  block->charged = 0;
  block->context = nullptr;
  block->live = true;
  block->touched = block->sync_memops = block->hidden = block->in_page = false;
  block->pool = nullptr;
  block->graph = nullptr;
  block->backs_pool = block->freeing = false;
  block->next_free = nullptr;
}

bool DeviceMemory::Free(uint64_t address) {
  const auto found = by_address_.find(address);
  if (found == by_address_.end() || !found->second->live) return false;
  Block* const block = found->second;
  if (block->touched) Discard(Bytes(address), block->span);
  if (block->in_page) {
    FreeInPage(*block);
    return true;
  }
  block->live = false;
  Return(block->charged);
  Block*& bin = bins_[block->span];
  block->next_free = bin;
  bin = block;
  return true;
}

void DeviceMemory::Clear(const Block& block) {
  uint8_t* const from = Bytes(block.address);
  Discard(from, block.size);  // only whole pages
  const uint64_t before = std::min(-reinterpret_cast<uintptr_t>(from) & (kPage - 1), block.size);
  const uint64_t behind =
      std::min((reinterpret_cast<uintptr_t>(from) + block.size) & (kPage - 1), block.size - before);
  std::memset(from, 0, before);
  std::memset(from + block.size - behind, 0, behind);
}

void DeviceMemory::FreeAllOf(const Context* context) {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const Block& block = *(at++)->second;  // a block that shares a page is erased
    if (block.live && block.context == context) Free(block.address);
  }
}

Block* DeviceMemory::Split(Block* block, uint64_t span) {
  auto rest = std::make_unique<Block>(*block);
  rest->address = block->address + span;
  rest->span = block->span - span;
  rest->size = rest->charged = block->size - span;
  rest->id = ++ids_;
  block->span = block->size = block->charged = span;
  Block* const result = rest.get();
  by_address_.emplace(rest->address, result);
  blocks_.emplace(rest->address, std::move(rest));
  return result;
}

Block* DeviceMemory::Find(uint64_t address) {
  Block* const block = FindBacking(address);
  return block != nullptr && block->backs_pool ? block->pool->Find(address) : block;
}

Block* DeviceMemory::FindBacking(uint64_t address) {
  if (!InRange(address)) return nullptr;
  const auto at = LastAtOrBefore(blocks_, address);
  if (at == blocks_.end()) return nullptr;
  Block* const block = at->second.get();
  return block->live && address - block->address < block->size ? block : nullptr;
}

// No process has more addresses.
constexpr uint64_t kMostHostMemory = uint64_t{1} << 47;

void* HostMemory::Allocate(uint64_t bytes, unsigned flags, Context* context) {
  if (bytes > kMostHostMemory) return nullptr;
  const uint64_t rounded = (bytes + kPage - 1) & ~(kPage - 1);
  void* const pointer = std::aligned_alloc(kPage, rounded);
  if (pointer == nullptr) return nullptr;
  const auto address = reinterpret_cast<uint64_t>(pointer);
  ranges_[address] = {address, bytes, flags, true, context};
  return pointer;
}

bool HostMemory::Free(void* pointer) {
  const auto found = ranges_.find(reinterpret_cast<uint64_t>(pointer));
  if (found == ranges_.end() || !found->second.owned) return false;
  ranges_.erase(found);
  std::free(pointer);
  return true;
}

bool HostMemory::Register(void* pointer, uint64_t bytes, unsigned flags, Context* context) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (bytes > UINT64_MAX - address) return false;
  const auto after = ranges_.lower_bound(address);
  if (after != ranges_.end() && after->first < address + bytes) return false;
  if (Find(address) != nullptr) return false;
  ranges_[address] = {address, bytes, flags, false, context};
  return true;
}

bool HostMemory::Unregister(void* pointer) {
  const auto found = ranges_.find(reinterpret_cast<uint64_t>(pointer));
  if (found == ranges_.end() || found->second.owned) return false;
  ranges_.erase(found);
  return true;
}

const HostRange* HostMemory::Find(uint64_t address) const {
  const auto at = LastAtOrBefore(ranges_, address);
  if (at == ranges_.end()) return nullptr;
  const HostRange& range = at->second;
  return address - range.address < range.size ? &range : nullptr;
}

void HostMemory::FreeAllOf(const Context* context) {
  for (auto at = ranges_.begin(); at != ranges_.end();) {
    if (at->second.context == context) {
      if (at->second.owned) std::free(reinterpret_cast<void*>(at->first));
      at = ranges_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace gpushare::sim
