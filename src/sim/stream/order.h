// SPDX-License-Identifier: Apache-2.0
// Whether what a stream takes next comes after something in another stream.
#ifndef GPUSHARE_SIM_STREAM_ORDER_H_
#define GPUSHARE_SIM_STREAM_ORDER_H_

#include <unordered_set>

#include "sim/stream/stream.h"

namespace gpushare::sim {

// What the stream's next command comes after. Good while nothing is submitted or completes.
class StreamOrder {
 public:
  explicit StreamOrder(const Stream* stream) : stream_(stream) {}

  // True when the next command cannot start before `command`, which has not completed: by events, by
  // the default stream's rule, or because it is in the stream itself.
  bool IsAfter(const Command* command);

 private:
  const Stream* const stream_;
  // Known to lead nowhere: many questions about one stream cost one walk through it.
  std::unordered_set<const Command*> unordered_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_ORDER_H_
