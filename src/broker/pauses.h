// SPDX-License-Identifier: Apache-2.0
// From when on in a pause of the high band the device is worth giving to others.
//
// To give it to another process and back costs two changes of contexts, in which nobody has it. A pause that is over before
// has been given for nothing, and who began again has waited for it. How long the next one will be nobody knows; how long the
// last ones were is known, and a service's are alike. So the grace is the one that would have won the most of the last pauses.
//
//   Pauses pauses;
//   pauses.Add(Micros(500));             // one is over, and was so long
//   options.high_grace = pauses.grace();   // of the arbiter
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
  static constexpr Nanos kMost = Millis(1);       // whatever was before
  static constexpr Nanos kChanges = Micros(200);  // two changes of contexts

  void Add(Nanos pause);
  // kChanges until some have been seen: who waits for as long as a mistake costs loses no more than twice what had to be.
  Nanos grace() const { return grace_; }

 private:
  static constexpr size_t kKept = 32;
  // A pause is of no more weight than that: one of a second says nothing of the next hundred.
  static constexpr Nanos kCounted = Millis(5);

  Nanos Best() const;

  std::array<Nanos, kKept> last_{};
  size_t next_ = 0, count_ = 0;
  Nanos grace_ = kChanges;
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_PAUSES_H_
