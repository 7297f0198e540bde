// SPDX-License-Identifier: Apache-2.0
// Arguments for the calls of c_abi_fuzz.cc, which bytes choose. Most of them are valid.
#ifndef GPUSHARE_TESTS_FUZZ_C_ABI_ARGUMENTS_H_
#define GPUSHARE_TESTS_FUZZ_C_ABI_ARGUMENTS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gpushare/c/gpushare.h"

namespace gpushare::fuzz {

inline void Require(bool condition, const char* call, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s: %s (%s)\n", call, what, gpushare_last_message());
  std::abort();
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), end_(data + size) {}
  bool more() const { return data_ != end_; }
  unsigned Next() { return more() ? *data_++ : 0; }
  // True once in `n`.
  bool Rarely(unsigned n = 16) { return Next() % n == n - 1; }
  template <typename T, size_t n>
  T Any(const T (&of)[n]) {
    return of[Next() % n];
  }

  // What fits is small: memory that is swapped out is copied byte by byte, and ThreadSanitizer needs four times as much.
  uint64_t Size() {
    constexpr uint64_t kSizes[] = {
        0,       1,        255,       256,        4096,       1 << 20,          1 << 20,
        4 << 20, 16 << 20, 160 << 20, 1ull << 40, 1ull << 63, UINT64_MAX - 255, UINT64_MAX};
    return Rarely(4) ? Next() * 257 : Any(kSizes);
  }
  // The size of each host buffer that a call may get.
  static constexpr uint64_t kHostBytes = 1 << 16;
  int64_t Duration() {
    constexpr int64_t kDurations[] = {
        0,          1,         1'000,         50'000,        1'000'000,
        10'000'000, 1'000'000, 1'000'000'000, 100'000'000,   -1,
        INT64_MIN,  INT64_MAX, INT64_MAX - 1, 61'000'000'000};
    return Any(kDurations);
  }
  double Real() {
    constexpr double kReals[] = {0,    0.1, 0.25, 0.3, 0.5,   1,   1.5,
                                 -0.1, 1e9, 1e-9, -0., 1e300, 0.9, 0.05};
    const unsigned odd = Next();
    if (odd == 255) return std::numeric_limits<double>::quiet_NaN();
    if (odd == 254) return std::numeric_limits<double>::infinity();
    return Any(kReals);
  }
  int32_t Small() {
    return Rarely() ? static_cast<int32_t>(Next() * 0x01010101u) : static_cast<int32_t>(Next() % 4);
  }

 private:
  const uint8_t* data_;
  const uint8_t* const end_;
};

// A struct of this or another version, in exactly as much memory as it claims to have (at least its struct_size).
template <typename T>
class Struct {
 public:
  Struct(Bytes* bytes, const T& value) {
    size_t size = sizeof(T);
    bool garbage = false;
    switch (bytes->Next()) {
      case 250:
        size = bytes->Next() % sizeof(T);
        break;
      case 251:
        size = sizeof(T) + 8;
        break;
      case 252:
        size = sizeof(T) + 8;
        garbage = true;
        break;
      case 253:
        size = 70'000;
        break;
      case 254:
        size = 0;
        break;
      case 255:
        is_null_ = true;
        break;
      default:
        break;
    }
    room_ = std::max<size_t>(size, sizeof(uint32_t));
    memory_ = std::make_unique<unsigned char[]>(room_);
    std::memcpy(memory_.get(), &value, std::min(room_, sizeof(T)));
    const auto told = static_cast<uint32_t>(size);
    std::memcpy(memory_.get(), &told, sizeof told);
    if (garbage) memory_[room_ - 1] = 1;
    before_.assign(memory_.get(), memory_.get() + room_);
  }
  T* get() const { return is_null_ ? nullptr : reinterpret_cast<T*>(memory_.get()); }
  bool Unchanged() const { return std::equal(before_.begin(), before_.end(), memory_.get()); }

 private:
  bool is_null_ = false;
  size_t room_ = 0;
  std::unique_ptr<unsigned char[]> memory_;
  std::vector<unsigned char> before_;
};

// An out parameter, which is sometimes null.
template <typename T>
class Out {
 public:
  explicit Out(Bytes* bytes) : is_null_(bytes->Next() == 255) {
    std::memset(&value_, 0x5a, sizeof value_);
    std::memcpy(before_, &value_, sizeof value_);
  }
  T* get() { return is_null_ ? nullptr : &value_; }
  const T& value() const { return value_; }
  bool is_null() const { return is_null_; }
  bool Unchanged() const { return std::memcmp(before_, &value_, sizeof value_) == 0; }

 private:
  const bool is_null_;
  T value_;
  unsigned char before_[sizeof(T)];
};

// The handles of one kind, including destroyed ones.
template <typename H>
struct Pool {
  std::vector<H> live, over;

  void Add(H handle) { live.push_back(handle); }
  void End(H handle) {
    const auto at = std::find(live.begin(), live.end(), handle);
    if (at == live.end()) return;
    live.erase(at);
    over.push_back(handle);
  }
  bool Has(H handle) const { return std::find(live.begin(), live.end(), handle) != live.end(); }
};

// The text of a spec, which is mostly valid.
inline std::string SpecText(Bytes* bytes) {
  constexpr const char* kParts[] = {"memory=32MiB",
                                    "memory=200MiB",
                                    "memory=25%",
                                    "compute=10%",
                                    "compute=50%",
                                    "weight=3",
                                    "guarantee=20%",
                                    "cap=30%",
                                    "cap=100%",
                                    "burst=5ms",
                                    "priority=high",
                                    "priority=low",
                                    "h2d=1GB/s",
                                    "d2h=100MB/s",
                                    "memory_cap=400MiB",
                                    "delay=5%",
                                    "isolation=context",
                                    "isolation=green,compute=20%",
                                    "isolation=process",
                                    "policy=best-effort",
                                    "policy=fixed-share,compute=20%",
                                    "memory=",
                                    "=",
                                    ",",
                                    "memory=1EiB",
                                    "cap=0%",
                                    "weight=1e400",
                                    "h2d=0",
                                    "memory=1GiB,memory=2GiB",
                                    "oversubscription=swap",
                                    "h2d=1B/s"};
  std::string text;
  for (unsigned parts = bytes->Next() % 4; parts > 0; --parts) {
    if (!text.empty()) text += ',';
    // The first ones are compatible with each other.
    text += bytes->Rarely(4) ? bytes->Any(kParts) : kParts[bytes->Next() % 14];
  }
  return text;
}

inline gpushare_spec AnySpec(Bytes* bytes) {
  gpushare_spec spec = {};
  spec.struct_size = sizeof spec;
  const std::string text = SpecText(bytes);
  if (gpushare_spec_parse(text.data(), text.size(), &spec) != GPUSHARE_OK) spec.set = 0;
  if (!bytes->Rarely(8)) return spec;
  spec.set = bytes->Next() << 8 | bytes->Next();
  if (bytes->Rarely()) spec.set |= 0x80000000u;
  spec.memory = bytes->Size();
  for (double* real : {&spec.memory_share, &spec.compute, &spec.weight, &spec.guarantee, &spec.cap,
                       &spec.memory_cap_share, &spec.delay}) {
    *real = bytes->Real();
  }
  spec.burst_ns = bytes->Duration();
  spec.priority = bytes->Small();
  spec.isolation = bytes->Small();
  spec.h2d = bytes->Size();
  spec.d2h = bytes->Size();
  spec.oversubscription = bytes->Small();
  spec.memory_cap = bytes->Size();
  // Sometimes without a terminating zero.
  std::memset(spec.policy, bytes->Rarely() ? 'x' : 0, sizeof spec.policy);
  return spec;
}

}  // namespace gpushare::fuzz

#endif  // GPUSHARE_TESTS_FUZZ_C_ABI_ARGUMENTS_H_
