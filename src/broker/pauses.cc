// SPDX-License-Identifier: Apache-2.0
#include "broker/pauses.h"

#include <algorithm>

namespace gpushare::broker {

void Pauses::Add(Nanos pause) {
  last_[next_] = std::clamp(pause, Nanos(0), kCounted);
  next_ = (next_ + 1) % kKept;
  count_ = std::min(count_ + 1, kKept);
  grace_ = Best();
}

// A grace wins, in each longer pause, what remains after the grace and the context switches. The best grace is either kLeast or
// the length of one of the pauses, which then are not given away.
Nanos Pauses::Best() const {
  std::array<Nanos, kKept> sorted = last_;
  const auto end = sorted.begin() + static_cast<ptrdiff_t>(count_);
  std::sort(sorted.begin(), end);
  const auto won = [&](Nanos grace) {
    Nanos sum{0};
    for (auto longer = std::upper_bound(sorted.begin(), end, grace); longer != end; ++longer) {
      sum += *longer - grace - kChanges;
    }
    return sum;
  };
  Nanos best = kLeast, most = won(kLeast);
  for (auto pause = sorted.begin(); pause != end; ++pause) {
    if (*pause <= kLeast || *pause > kMost) continue;
    if (const Nanos sum = won(*pause); sum > most) {
      best = *pause;
      most = sum;
    }
  }
  // A margin, since the next pause may be a little longer than the last ones.
  return best == kLeast ? best : std::min(best + best / 4, kMost);
}

}  // namespace gpushare::broker
