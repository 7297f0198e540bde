// SPDX-License-Identifier: Apache-2.0
// Whether a stream's next command will run after a command in another stream.
#ifndef GPUSHARE_SIM_STREAM_ORDER_H_
#define GPUSHARE_SIM_STREAM_ORDER_H_

#include <unordered_set>

#include "sim/stream/stream.h"

namespace gpushare::sim {

// What the stream's next command is ordered after. Valid until something is submitted or completes.
class StreamOrder {
 public:
  explicit StreamOrder(const Stream* stream) : stream_(stream) {}

  // True when the next command cannot start before `command`, which has not completed: because of events, of the default
  // stream's rule, or because `command` is in the same stream.
  bool IsAfter(const Command* command);

 private:
  const Stream* const stream_;
  // Commands already searched without success, so that many queries about one stream cost one walk through it.
  std::unordered_set<const Command*> unordered_;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_ORDER_H_
