// SPDX-License-Identifier: Apache-2.0
// Whether a broker that is there still does anything: whenever a process has called it, the beat of the limits page goes
// on. A broker that is stopped, or hangs, ends no connection.
//
// Pure: time is passed in, no I/O, no locks.
#ifndef GPUSHARE_CLIENT_SILENCE_H_
#define GPUSHARE_CLIENT_SILENCE_H_

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace gpushare::client {

class Silence {
 public:
  // Unheard so long, it is taken to be gone.
  static constexpr Nanos kLongest = Seconds(2);

  // The broker was called.
  void Called(Time now) { unheard_since_ = std::min(unheard_since_, now); }
  // Whether it is silent; `beat`: of its page. 0: a broker of before, which has none.
  bool Look(uint32_t beat, Time now) {
    if (beat != beat_ || beat == 0) {
      beat_ = beat;
      unheard_since_ = kNever;
    }
    return unheard_since_ != kNever && now >= After(unheard_since_, kLongest);
  }
  // Another page.
  void Begin() { *this = Silence(); }

 private:
  uint32_t beat_ = 0;
  Time unheard_since_ = kNever;  // the first call since the beat went on
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_SILENCE_H_
