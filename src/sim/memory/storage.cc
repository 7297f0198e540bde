// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace gpushare::sim {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

}  // namespace

Storage::~Storage() {
  if (bytes_ != nullptr) munmap(bytes_, size_);
}

bool Storage::Map(uint64_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kPrivate, -1, 0);
  if (mapped == MAP_FAILED) return false;
  madvise(mapped, bytes, MADV_DONTDUMP);
  bytes_ = static_cast<uint8_t*>(mapped);
  size_ = bytes;
  return true;
}

bool Storage::MapFile(int descriptor, uint64_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) return false;
  bytes_ = static_cast<uint8_t*>(mapped);
  size_ = bytes;
  return true;
}

bool Storage::MoveToFile(int descriptor) {
  constexpr uint64_t kHostPage = 4096;
  static const uint8_t zeros[kHostPage] = {};
  // Pages that were never written stay unbacked.
  for (uint64_t at = 0; at < size_; at += kHostPage) {
    const uint64_t bytes = std::min(kHostPage, size_ - at);
    if (std::memcmp(bytes_ + at, zeros, bytes) == 0) continue;
    if (pwrite(descriptor, bytes_ + at, bytes, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(bytes)) {
      return false;
    }
  }
  return mmap(bytes_, size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) !=
         MAP_FAILED;
}

void Storage::KeepFromFile(int descriptor) {
  if (mmap(bytes_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
           descriptor, 0) == MAP_FAILED) {
    mprotect(bytes_, size_, PROT_NONE);
  }
}

bool Storage::Reserve(uint64_t bytes, uint64_t alignment, uint64_t hint) {
  if (hint != 0 && hint % alignment == 0) {
    void* const wanted = reinterpret_cast<void*>(hint);
    // Not MAP_FIXED_NOREPLACE: TSan clears an address outside its own ranges and leaves the flag, and then a privileged process
    // maps page zero. The kernel honours a bare hint wherever it is free.
    void* const mapped = mmap(wanted, bytes, PROT_NONE, kPrivate, -1, 0);
    if (mapped == wanted) {
      bytes_ = static_cast<uint8_t*>(mapped);
      size_ = bytes;
      return true;
    }
    if (mapped != MAP_FAILED) munmap(mapped, bytes);
  }
  uint64_t padded;
  if (__builtin_add_overflow(bytes, alignment, &padded)) return false;
  void* const mapped = mmap(nullptr, padded, PROT_NONE, kPrivate, -1, 0);
  if (mapped == MAP_FAILED) return false;
  const auto begin = reinterpret_cast<uint64_t>(mapped);
  const uint64_t aligned = (begin + alignment - 1) & ~(alignment - 1);
  if (aligned > begin) munmap(mapped, aligned - begin);
  const uint64_t after = begin + padded - (aligned + bytes);
  if (after > 0) munmap(reinterpret_cast<void*>(aligned + bytes), after);
  bytes_ = reinterpret_cast<uint8_t*>(aligned);
  size_ = bytes;
  return true;
}

}  // namespace gpushare::sim
