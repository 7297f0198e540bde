// SPDX-License-Identifier: Apache-2.0
// What one GPU has promised: may another virtual device come, or one grow?
//
//   Admission books(/*capacity=*/79ull << 30);
//   GPUSHARE_RETURN_IF_ERROR(books.Check("a", 0, {.memory = 8ull << 30, .guarantee = 0.3}));
//   uint64_t id = books.Add({...});
//
// Guarantees never add up to more than the device, nor quotas to more than its memory less the
// reserve. Memory that is used without a quota, and what tenants left behind, is taken as given out
// as long as it is in use.
//
// Pure books: no locks (the Gpu has one), no clock. No call depends on how many promises there are, but
// for looking one up.
#ifndef GPUSHARE_DEVICE_SHARE_ADMISSION_H_
#define GPUSHARE_DEVICE_SHARE_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"

namespace gpushare::device {

// Ten guarantees of 10 % add up to a little more than 1.
inline constexpr double kRounding = 1e-9;

class Admission {
 public:
  struct Promise {
    std::optional<uint64_t> memory = std::nullopt;  // a quota in bytes
    double guarantee = 0;
  };

  explicit Admission(uint64_t capacity) : capacity_(capacity) {}

  // ResourceExhausted when `promise` does not fit beside the others and `held` bytes that are used
  // without a quota; the message says what would. `id`: the promise that it would replace, 0: none.
  absl::Status Check(const std::string& tenant, uint64_t id, const Promise& promise,
                     uint64_t held) const;
  // Without a check. An id is never 0 and never comes again. Only Add() needs memory.
  uint64_t Add(const Promise& promise);
  void Replace(uint64_t id, const Promise& promise);
  void Remove(uint64_t id);

  uint64_t capacity() const { return capacity_; }
  void SetCapacity(uint64_t capacity) { capacity_ = capacity; }  // what was promised stays
  uint64_t memory() const { return memory_; }                    // sum of the quotas
  double guarantee(uint64_t id) const;
  double guarantees_but(uint64_t id) const;  // of the others
  double guarantees() const { return static_cast<double>(guarantees_) * kGuaranteeUnit; }

 private:
  // Sums of fractions that come and go must not drift: they are counted in units.
  static constexpr double kGuaranteeUnit = 1e-12;
  static int64_t Units(double guarantee);
  void Count(const Promise& promise, int times);

  uint64_t capacity_;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, Promise> promises_;
  uint64_t memory_ = 0;
  int64_t guarantees_ = 0;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_SHARE_ADMISSION_H_
