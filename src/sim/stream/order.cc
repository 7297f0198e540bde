// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/order.h"

#include <vector>

namespace gpushare::sim {

bool StreamOrder::IsAfter(const Command* command) {
  if (unordered_.count(command) != 0) return false;
  // Follows the order of streams and the edges between them until it meets a command in the stream.
  std::unordered_set<const Command*> seen = {command};
  std::vector<const Command*> reached = {command};
  const auto add = [&](const Command* one) {
    if (one->run != nullptr) one = one->run->command;  // its graph completes last
    if (unordered_.count(one) == 0 && seen.insert(one).second) reached.push_back(one);
  };
  for (size_t i = 0; i < reached.size(); ++i) {
    const Command* const one = reached[i];
    const Stream* const at = one->stream;
    if (at == stream_) return true;
    // The default stream waits for the blocking streams and they for it, from the next command on.
    if (at->context == stream_->context && at->green == stream_->green &&
        (at->legacy || stream_->legacy) && !at->non_blocking && !stream_->non_blocking) {
      return true;
    }
    if (one->next != nullptr) add(one->next);
    for (const Edge* edge = one->dependents; edge != nullptr; edge = edge->next) {
      if (edge->to->generation == edge->generation) add(edge->to);
    }
  }
  unordered_.insert(seen.begin(), seen.end());
  return false;
}

}  // namespace gpushare::sim
