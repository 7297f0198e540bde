// SPDX-License-Identifier: Apache-2.0
// Tells whether a connected broker still works. After each call of a process the broker has to advance the beat on the
// limits page. A broker that is stopped or hangs ends no connection, so the connection alone does not tell.
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
  // A broker that has not answered a call for this long counts as gone.
  static constexpr Nanos kLongest = Seconds(2);

  // The broker was called.
  void Called(Time now) { unheard_since_ = std::min(unheard_since_, now); }
  // Whether the broker is silent. `beat` is read from its page; 0: an older broker without a beat.
  bool Look(uint32_t beat, Time now) {
    if (beat != beat_ || beat == 0) {
      beat_ = beat;
      unheard_since_ = kNever;
    }
    return unheard_since_ != kNever && now >= After(unheard_since_, kLongest);
  }
  // Starts over with another page.
  void Begin() { *this = Silence(); }

 private:
  uint32_t beat_ = 0;
  Time unheard_since_ = kNever;  // the first call since the beat last advanced
};

}  // namespace gpushare::client

#endif  // GPUSHARE_CLIENT_SILENCE_H_
