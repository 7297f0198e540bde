// SPDX-License-Identifier: Apache-2.0
#include "device/abi/handles.h"

#include <pthread.h>

#include <utility>

namespace gpushare::device {

HandleTable::~HandleTable() {
  for (std::atomic<Slot*>& chunk : chunks_) delete[] chunk.load();
}

uint64_t HandleTable::Add(HandleKind kind, std::shared_ptr<void> object) {
  base::MutexLock lock(&mutex_);
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if (used_ > kSlotMask) return 0;
    index = used_;
    std::atomic<Slot*>& chunk = chunks_[index >> kChunkBits];
    if (chunk.load(std::memory_order_relaxed) == nullptr) {
      chunk.store(new Slot[size_t{1} << kChunkBits], std::memory_order_release);
    }
    ++used_;
  }
  Slot& slot = chunks_[index >> kChunkBits].load(std::memory_order_relaxed)[index & kChunkMask];
  slot.object = object.get();
  slot.owner = std::move(object);
  const uint64_t handle =
      static_cast<uint64_t>(kind) << kKindShift | uint64_t{++slot.generation} << kSlotBits | index;
  slot.handle.store(handle, std::memory_order_release);
  ++alive_;
  return handle;
}

std::shared_ptr<void> HandleTable::Take(HandleKind kind, uint64_t handle) {
  std::shared_ptr<void> object;  // released by the caller, never under the lock
  base::MutexLock lock(&mutex_);
  if (Borrow(kind, handle) == nullptr) return nullptr;
  const uint64_t index = handle & kSlotMask;
  Slot& slot = chunks_[index >> kChunkBits].load(std::memory_order_relaxed)[index & kChunkMask];
  slot.handle.store(0, std::memory_order_release);
  object = std::move(slot.owner);
  // If the push fails because there is no memory, only the slot is lost.
  try {
    free_.push_back(static_cast<uint32_t>(index));
  } catch (...) {
  }
  --alive_;
  return object;
}

std::shared_ptr<void> HandleTable::Share(HandleKind kind, uint64_t handle) const {
  base::MutexLock lock(&mutex_);
  if (Borrow(kind, handle) == nullptr) return nullptr;
  const uint64_t index = handle & kSlotMask;
  return chunks_[index >> kChunkBits].load(std::memory_order_relaxed)[index & kChunkMask].owner;
}

size_t HandleTable::size() const {
  base::MutexLock lock(&mutex_);
  return alive_;
}

// ---- fork() ----

void HandleTable::BeforeFork() { mutex_.Lock(); }

void HandleTable::AfterForkInParent() { mutex_.Unlock(); }

void HandleTable::AfterForkInChild() {
  if (used_ > 0) forked_.store(true, std::memory_order_relaxed);
  // The objects are never destroyed: their destructors would call the driver and wait for threads that do not exist in the
  // child. Their slots are not reused either.
  for (uint32_t index = 0; index < used_; ++index) {
    chunks_[index >> kChunkBits].load(std::memory_order_relaxed)[index & kChunkMask].handle.store(
        0, std::memory_order_relaxed);
  }
  free_.clear();
  alive_ = 0;
  mutex_.Unlock();
}

namespace {

void BeforeFork() ABSL_NO_THREAD_SAFETY_ANALYSIS { Handles::Table().BeforeFork(); }
void AfterForkInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { Handles::Table().AfterForkInParent(); }
void AfterForkInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS { Handles::Table().AfterForkInChild(); }

}  // namespace

HandleTable& Handles::MakeTable() {
  auto& table = *new HandleTable;
  // If this fails because there is no memory, calls in a child are undefined instead of refused.
  static_cast<void>(pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild));
  return table;
}

}  // namespace gpushare::device
