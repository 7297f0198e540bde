// SPDX-License-Identifier: Apache-2.0
// Amounts as types: Bytes, Share, Bandwidth, DevicePtr. Durations are absl::Duration.
//
//   using namespace gpushare::literals;
//   VirtualDeviceSpec spec;
//   spec.memory = 8_GiB;                       // or GiB(8)
//   spec.guarantee = Percent(30);
//   spec.h2d = BytesPerSecond(2'000'000'000);
//   std::cout << 8_GiB << ' ' << Percent(30);  // 8GiB 30%: as in a spec's text
//
// Plain values without further invariants: the call that takes a value checks whether, say, 130 % is
// allowed. No errors, no threads.
#ifndef GPUSHARE_UNITS_H_
#define GPUSHARE_UNITS_H_

#include <compare>
#include <cstdint>
#include <ostream>

namespace gpushare {

// A size of memory.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(uint64_t count) : count_(count) {}

  constexpr uint64_t count() const { return count_; }

  friend constexpr auto operator<=>(Bytes, Bytes) = default;  // NOLINT(modernize-use-nullptr)
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count_ - b.count_); }
  friend constexpr Bytes operator*(Bytes a, uint64_t n) { return Bytes(a.count_ * n); }
  friend constexpr Bytes operator*(uint64_t n, Bytes a) { return a * n; }
  friend constexpr Bytes operator/(Bytes a, uint64_t n) { return Bytes(a.count_ / n); }
  constexpr Bytes& operator+=(Bytes b) { return *this = *this + b; }
  constexpr Bytes& operator-=(Bytes b) { return *this = *this - b; }
  // Uses the largest unit that divides the size: "8GiB", "1025B".
  friend std::ostream& operator<<(std::ostream& out, Bytes bytes) {
    uint64_t count = bytes.count_;
    int unit = 0;
    for (; unit < 4 && count != 0 && count % 1024 == 0; ++unit) count /= 1024;
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return out << count << kUnits[unit];
  }

 private:
  uint64_t count_ = 0;
};

constexpr Bytes KiB(uint64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(uint64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(uint64_t n) { return Bytes(n << 30); }

// A part of a device; 1 is the whole device.
class Share {
 public:
  constexpr Share() = default;

  static constexpr Share Fraction(double fraction) { return Share(fraction); }
  constexpr double fraction() const { return fraction_; }
  constexpr double percent() const { return fraction_ * 100; }

  friend constexpr auto operator<=>(Share, Share) = default;
  friend constexpr Share operator+(Share a, Share b) { return Share(a.fraction_ + b.fraction_); }
  friend constexpr Share operator-(Share a, Share b) { return Share(a.fraction_ - b.fraction_); }
  friend constexpr Share operator*(Share a, double x) { return Share(a.fraction_ * x); }
  friend constexpr double operator/(Share a, Share b) { return a.fraction_ / b.fraction_; }
  friend std::ostream& operator<<(std::ostream& out, Share share) {
    return out << share.percent() << '%';
  }

 private:
  constexpr explicit Share(double fraction) : fraction_(fraction) {}
  double fraction_ = 0;
};

constexpr Share Percent(double percent) { return Share::Fraction(percent / 100); }

// A rate of copying.
class Bandwidth {
 public:
  constexpr Bandwidth() = default;
  constexpr explicit Bandwidth(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  constexpr uint64_t bytes_per_second() const { return bytes_per_second_; }
  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
  friend std::ostream& operator<<(std::ostream& out, Bandwidth rate) {
    uint64_t count = rate.bytes_per_second_;
    int unit = 0;
    for (; unit < 4 && count != 0 && count % 1000 == 0; ++unit) count /= 1000;
    constexpr const char* kUnits[] = {"B/s", "KB/s", "MB/s", "GB/s", "TB/s"};
    return out << count << kUnits[unit];
  }

 private:
  uint64_t bytes_per_second_ = 0;
};

constexpr Bandwidth BytesPerSecond(uint64_t n) { return Bandwidth(n); }

// An address in device memory. It has the layout of the driver's CUdeviceptr, so that a pointer to it
// can be passed as a kernel parameter.
class DevicePtr {
 public:
  constexpr DevicePtr() = default;
  constexpr explicit DevicePtr(unsigned long long value) : value_(value) {}

  constexpr unsigned long long value() const { return value_; }
  constexpr explicit operator bool() const { return value_ != 0; }
  friend constexpr auto operator<=>(DevicePtr, DevicePtr) = default;
  friend constexpr DevicePtr operator+(DevicePtr p, Bytes n) {
    return DevicePtr(p.value_ + n.count());
  }

 private:
  unsigned long long value_ = 0;
};
static_assert(sizeof(DevicePtr) == sizeof(unsigned long long));

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes(n); }
constexpr Bytes operator""_KiB(unsigned long long n) { return KiB(n); }
constexpr Bytes operator""_MiB(unsigned long long n) { return MiB(n); }
constexpr Bytes operator""_GiB(unsigned long long n) { return GiB(n); }
constexpr Share operator""_percent(unsigned long long n) { return Percent(static_cast<double>(n)); }
}  // namespace literals

}  // namespace gpushare

#endif  // GPUSHARE_UNITS_H_
