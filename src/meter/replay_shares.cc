// SPDX-License-Identifier: Apache-2.0
// Whose the device time is: it is split by the SMs that streams hold in the model, and moved if a marker shows that the model
// was wrong.
#include <algorithm>
#include <utility>

#include "meter/replay.h"

namespace gpushare::meter {
namespace {

// If a batch ended that the model has not seen run, and another stream's batch has been pinned for this many times its
// predicted time, the model has the two in the wrong order.
constexpr double kOverdue = 3;

}  // namespace

// Takes back the time for which the batch ran on past its prediction in the model, since it did not on the device.
void Replay::TakeBackPinned(Stream& stream) {
  stream.used_ns -= std::exchange(stream.pinned_used_ns, 0);
  stream.group_ns -= std::exchange(stream.pinned_group_ns, 0);
}

// Returns whether any memory-bound command ran.
bool Replay::AccumulateMemory(double dt) {
  bool any = false;
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (!AtMemory(s) || !s.started) continue;
    any = true;
    if (s.items.front().abandoned) continue;
    s.used_ns += dt;
    s.group_ns += dt;
    s.resident_ns += dt;
    if (s.pinned) {
      s.pinned_used_ns += dt;
      s.pinned_group_ns += dt;
    }
  }
  return any;
}

// Sum of the costs of the opaque work that is running; 0: there is none.
double Replay::OpaqueWeight() const {
  double weight = 0;
  for (StreamId id : live_) {
    const Stream& s = At(id);
    if (s.started && s.items.front().command.opaque) {
      weight += static_cast<double>(s.items.front().command.cost_ns);
    }
  }
  return weight;
}

// Kernels of a graph that run side by side are resident once.
void Replay::CountResident(Stream& owner, double dt, bool shared) const {
  if (std::exchange(owner.resident_at, now_) == now_) return;
  owner.resident_ns += dt;
  if (shared) owner.shared_ns += dt;
}

void Replay::AccumulateBesideOpaque(double dt, double weight) {
  StreamId opaque = 0;
  for (StreamId id : live_) {
    const Stream& s = At(id);
    if (s.started && s.items.front().command.opaque) opaque = id;
  }
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (s.started && s.items.front().command.opaque) {
      const double part = static_cast<double>(s.items.front().command.cost_ns) / weight;
      s.used_ns += dt * part * free_ / sm_count_;
      s.resident_ns += dt;
      s.shared_ns += dt;
      continue;
    }
    if (!s.items.empty() && !s.items.front().boundary && !s.owner.has_value()) {
      s.beside_opaque = true;
      s.opaque = opaque;
    }
    if (s.held == 0 || s.items.front().abandoned) continue;
    Stream& owner = OwnerOf(s);
    owner.used_ns += dt * s.held / sm_count_;
    owner.group_ns += dt * s.held;
    CountResident(owner, dt, /*shared=*/true);
  }
}

// While a command that was let in is running, up to its marker, every other tenant's stream with work counts as having it
// beside. A late command is assumed to have waited for kernels of a greater priority, but it may have held SMs all the while.
void Replay::AccumulateBeside(double dt) {
  if (besides_ == 0) return;
  for (const StreamId by : live_) {
    const Stream& let_in = At(by);
    if (!let_in.started || !let_in.items.front().command.beside) continue;
    for (const StreamId id : live_) {
      Stream& s = At(id);
      if (s.tenant == let_in.tenant || s.items.empty() || s.items.front().boundary) continue;
      if (s.owner.has_value()) continue;
      s.beside_ns += dt;
    }
    return;
  }
}

void Replay::Accumulate(double dt) {
  if (dt <= 0) return;
  AccumulateBeside(dt);
  const bool memory = AccumulateMemory(dt);
  if (const double weight = OpaqueWeight(); weight > 0) {
    AccumulateBesideOpaque(dt, weight);
    return;
  }
  const int held = sm_count_ - free_;
  if (held <= 0) {
    // Nothing runs in the model, but some pinned batch has not ended: see Complete().
    for (StreamId id : live_) {
      const Stream& s = At(id);
      if (!s.pinned || !s.beside_opaque || !At(s.opaque).live) continue;
      At(s.opaque).owed_ns += dt;
      return;
    }
    if (!memory) unclaimed_ns_ += dt;
    return;
  }
  uint32_t tenant = 0;
  bool any = false, several = false;
  for (StreamId id : live_) {
    const Stream& s = At(id);
    if (s.held == 0) continue;
    several |= any && s.tenant != tenant;
    tenant = s.tenant;
    any = true;
  }
  const Graphs graphs = FindGraphs();
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (s.held == 0) continue;
    if (s.items.front().abandoned) continue;
    const double fill = s.pinned ? s.pinned_fill : 1;
    double used = dt * s.held / held;
    const double groups = dt * s.held * fill;
    used -= ToGraph(s, graphs, used);
    Stream& owner = OwnerOf(s);
    owner.used_ns += used;
    owner.group_ns += groups;
    CountResident(owner, dt, several);
    if (s.pinned) {
      s.pinned_used_ns += used;
      s.pinned_group_ns += groups;
    }
  }
}

Replay::Graphs Replay::FindGraphs() {
  Graphs graphs;
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (s.items.empty() || s.items.front().boundary || s.items.front().command.parts <= 1) continue;
    if (s.owner.has_value() || s.items.front().not_before > now_) continue;
    if (graphs.first == nullptr) graphs.first = &s;
    if (graphs.first->tenant == s.tenant) continue;
    graphs.second = &s;
    break;
  }
  return graphs;
}

// Beside another tenant's graph, a command that is later than costs vary may have waited for kernels of the graph which the
// model has at another time, and which had the SMs that the command seems to hold. So this time is given to the graph, until
// the graph has used what it takes alone, and up to a small part of the stream's time. The time that the command is seen to
// take does not change.
double Replay::ToGraph(Stream& stream, const Graphs& graphs, double used) {
  if (!VeryLate(stream) || stream.items.front().command.guess || stream.patience_ns <= 0) return 0;
  Stream* const graph = graphs.Beside(stream);
  if (graph == nullptr || graph->pinned) return 0;
  const double most = std::min(AloneNs(*graph) - graph->used_ns, stream.patience_ns);
  const double moved = std::clamp(most, 0.0, used);
  graph->used_ns += moved;
  stream.patience_ns -= moved;
  return moved;
}

// Predicted time of the batch in progress when alone.
double Replay::AloneNs(Stream& stream) const {
  if (stream.alone_ns.has_value()) return *stream.alone_ns;
  double alone = 0;
  for (const Command& command : stream.done) alone += command.alone_ns();
  for (const Item& item : stream.items) {
    if (item.boundary) break;
    alone += LeftNs(stream, item);
  }
  stream.alone_ns = alone;
  return alone;
}

// The device may take the heads of two streams in another order than the model. The markers show it: a batch ends
// that the model never let run, because the last command of another stream's batch, which was predicted to be short,
// is assumed to have held the device all the while. The time is given to the batch that ended.
void Replay::TakeOver(Stream& stream) {
  double batch = 0;
  for (const Command& command : stream.done) batch += GroupTime(command);
  double ready = stream.ready;
  const Command* widest = nullptr;
  const auto add = [&](const Command& command) {
    if (command.memory) return;
    if (widest == nullptr || command.footprint > widest->footprint) widest = &command;
    batch += GroupTime(command);
  };
  for (size_t i = 0; i < stream.items.size() && !stream.items[i].boundary; ++i) {
    Item& item = stream.items[i];
    if (i == 0) ready = std::max(ready, item.not_before);
    if (item.branches != nullptr) {
      ForKernels(stream, item.graph, [&](Item& kernel) { add(kernel.command); });
    } else {
      add(item.command);
    }
  }
  if (widest == nullptr || stream.beside_opaque || stream.group_ns > kUnseen * batch) return;
  Stream* pinned = nullptr;
  for (StreamId id : live_) {
    Stream& other = At(id);
    if (&other == &stream || !other.pinned || other.pinned_used_ns <= 0) continue;
    if (AtMemory(other)) continue;  // it held no SMs that this batch could have waited for
    if (pinned == nullptr || other.pinned_used_ns > pinned->pinned_used_ns) pinned = &other;
  }
  if (pinned == nullptr) return;
  double expected = GroupTime(pinned->items.front().command);
  for (const Command& command : pinned->done) expected += GroupTime(command);
  if (pinned->pinned_group_ns < kOverdue * expected) return;
  const double part = std::clamp((now_ - ready) / (now_ - pinned->pinned_since), 0.0, 1.0);
  const double used = part * pinned->pinned_used_ns;
  const double groups = part * pinned->pinned_group_ns;
  pinned->used_ns -= used;
  pinned->pinned_used_ns -= used;
  pinned->group_ns -= groups;
  pinned->pinned_group_ns -= groups;
  stream.used_ns += used;
  const double time = groups / std::max(pinned->held, 1);
  stream.group_ns += time * Width(*widest);
  stream.resident_ns += time;
  stream.group_predicted_ns = batch;
}

// Charges a batch that ended when the model had hardly let it begin, although others did not have the device: the clocks of host
// and device disagree on when it was launched. All that is known is that it took no longer than the time since the last marker,
// and no more than the part of that time that no other stream is charged for.
void Replay::ChargeUnseen(Stream& stream, double at, Batch& batch) {
  const double most = std::max(0.0, at - stream.marked);
  const double free = std::clamp(unclaimed_ns_ - stream.unclaimed, 0.0, most);
  const double more = std::min(std::max(0.0, batch.predicted_ns - batch.used_ns), free);
  batch.used_ns += more;
  unclaimed_ns_ -= more;
  batch.guessed = true;
  batch.ratio = std::min(1.0, most / batch.predicted_ns);
  batch.learnable = batch.ratio > 0 && batch.ratio < 1;
}

}  // namespace gpushare::meter
