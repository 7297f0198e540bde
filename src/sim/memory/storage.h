// SPDX-License-Identifier: Apache-2.0
// Pages of the machine that hold the bytes of simulated memory. The kernel backs only pages that were written.
#ifndef GPUSHARE_SIM_MEMORY_STORAGE_H_
#define GPUSHARE_SIM_MEMORY_STORAGE_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gpushare::sim {

class Storage {
 public:
  Storage() = default;
  ~Storage();
  Storage(Storage&& from) noexcept
      : bytes_(std::exchange(from.bytes_, nullptr)), size_(std::exchange(from.size_, 0)) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Maps zeroed pages, readable and writable. False when the machine has no such range.
  bool Map(uint64_t bytes);
  // Maps the bytes of a file, shared with everyone else who maps it.
  bool MapFile(int descriptor, uint64_t bytes);
  // Moves the bytes to a file of that size, shared from then on. The address does not change.
  bool MoveToFile(int descriptor);
  // Makes the pages copy-on-write. Writes by others may or may not be visible from then on; writes made here are not visible to
  // others.
  void KeepFromFile(int descriptor);
  // Reserves addresses that fault when touched. Uses `hint` if it is free, else any address; `alignment` is a power of two.
  bool Reserve(uint64_t bytes, uint64_t alignment, uint64_t hint);

  uint8_t* bytes() const { return bytes_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes_); }
  uint64_t size() const { return size_; }

 private:
  uint8_t* bytes_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_STORAGE_H_
