// SPDX-License-Identifier: Apache-2.0
// Time as the engine counts it: nanoseconds on a monotonic clock that is passed in, never read.
#ifndef GPUSHARE_BASE_TIME_H_
#define GPUSHARE_BASE_TIME_H_

#include <chrono>
#include <cstdint>

namespace gpushare {

using Nanos = std::chrono::nanoseconds;

// The tag of the engine's clock. It has no now(): a base::Clock says what time it is.
struct EngineClock {
  using rep = int64_t;
  using period = std::nano;
  using duration = Nanos;
  using time_point = std::chrono::time_point<EngineClock, Nanos>;
  static constexpr bool is_steady = true;
};
using Time = EngineClock::time_point;

inline constexpr Time kNever = Time::max();

constexpr Nanos Micros(int64_t n) { return Nanos(n * 1'000); }
constexpr Nanos Millis(int64_t n) { return Nanos(n * 1'000'000); }
constexpr Nanos Seconds(int64_t n) { return Nanos(n * 1'000'000'000); }

// `begin + time`, or kNever if that is past the end of the clock.
constexpr Time After(Time begin, Nanos time) {
  return time < kNever - begin ? begin + time : kNever;
}

}  // namespace gpushare

#endif  // GPUSHARE_BASE_TIME_H_
