// SPDX-License-Identifier: Apache-2.0
// Pages of the machine that hold the bytes of simulated memory. The kernel backs only what was written.
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

  // Readable and writable, all zero. False when the machine has no such range.
  bool Map(uint64_t bytes);
  // The bytes of a file, shared with whoever else has it.
  bool MapFile(int descriptor, uint64_t bytes);
  // Its bytes go to a file of that size, and are shared with whoever has it from then on; where they lie stays.
  bool MoveToFile(int descriptor);
  // They are copied as they are written: what others write from then on may be seen or not, and they see nothing.
  void KeepFromFile(int descriptor);
  // Addresses that fault when touched. `hint` is taken if it is free, else any place is; `alignment` is a
  // power of two.
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
