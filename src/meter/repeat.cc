// SPDX-License-Identifier: Apache-2.0
// Recording the calls of a replay, and repeating them on a copy.
#include <algorithm>

#include "meter/replay.h"

namespace gpushare::meter {

void Replay::Keep(const Call& call) {
  const bool studied = call.kind == Call::Kind::kAppend && call.command.studied;
  if (studied && parts_to_keep_ > 0) {
    --parts_to_keep_;
    calls_->back().command.cost_ns += call.command.cost_ns;
    return;
  }
  parts_to_keep_ = 0;
  if (calls_->size() == calls_->capacity()) return;
  calls_->push_back(call);
  if (studied) parts_to_keep_ = std::max(call.command.parts, 1u) - 1;
}

Replay Replay::Copy() const {
  Replay copy = *this;
  copy.calls_ = nullptr;
  return copy;
}

std::optional<Replay::Batch> Replay::Repeat(const Call& call) {
  switch (call.kind) {
    case Call::Kind::kAddStream:
      AddStream(call.tenant, call.priority);
      break;
    case Call::Kind::kRemoveStream:
      RemoveStream(call.stream);
      break;
    case Call::Kind::kAppend:
      Append(call.stream, call.command, call.at);
      break;
    case Call::Kind::kAppendGraph:
      AppendGraph(call.stream, call.command, call.shape, call.at);
      break;
    case Call::Kind::kRefuse:
      Refuse(call.stream, call.entry);
      break;
    case Call::Kind::kBoundary:
      Boundary(call.stream, call.holds);
      break;
    case Call::Kind::kHolds:
      Holds(call.stream);
      break;
    case Call::Kind::kAbandon:
      Abandon(call.stream);
      break;
    case Call::Kind::kDropBoundary:
      DropBoundary(call.stream);
      break;
    case Call::Kind::kStamped:
      Stamped(call.stream, call.found_idle);
      break;
    case Call::Kind::kUsedSoFar:
      UsedSoFar(call.stream, call.at);
      break;
    case Call::Kind::kComplete:
      return Complete(call.stream, call.at, call.after, call.end);
  }
  return std::nullopt;
}

}  // namespace gpushare::meter
