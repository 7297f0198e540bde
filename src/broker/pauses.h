// SPDX-License-Identifier: Apache-2.0
// How long to wait in a pause of the high band before giving the device to others.
//
// Giving the device to another process and back costs two context switches, in which nobody uses it. If the pause ends before
// that, the switch has won nothing, and the high band has waited for it. The length of the next pause is unknown, but a
// service's pauses are alike. So the grace is the one that would have won the most time in the last pauses.
//
//   Pauses pauses;
//   pauses.Add(Micros(500));             // a pause of this length is over
//   options.high_grace = pauses.grace();   // an option of the arbiter
//
// Pure: no clock.
#ifndef GPUSHARE_BROKER_PAUSES_H_
#define GPUSHARE_BROKER_PAUSES_H_

#include <array>
#include <cstddef>

#include "base/time.h"

namespace gpushare::broker {

class Pauses {
 public:
  static constexpr Nanos kLeast = Micros(30);     // within one request
  static constexpr Nanos kMost = Millis(1);       // whatever the last pauses were
  static constexpr Nanos kChanges = Micros(200);  // two context switches

  void Add(Nanos pause);
  // kChanges until there are pauses to learn from: waiting for as long as a mistake costs loses at most twice what is
  // unavoidable.
  Nanos grace() const { return grace_; }

 private:
  static constexpr size_t kKept = 32;
  // A longer pause counts as this long: one pause of a second says nothing about the next hundred.
  static constexpr Nanos kCounted = Millis(5);

  Nanos Best() const;

  std::array<Nanos, kKept> last_{};
  size_t next_ = 0, count_ = 0;
  Nanos grace_ = kChanges;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_PAUSES_H_
