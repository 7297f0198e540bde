// SPDX-License-Identifier: Apache-2.0
// What is in flight on each stream, and what a marker tells about it. replay_device.cc runs it through the model of the device,
// and replay_shares.cc decides whose the time is.
#include "meter/replay.h"

#include <algorithm>
#include <utility>

namespace gpushare::meter {
namespace {

// A batch counts as alone when others were resident for at most this part of its time.
constexpr double kAlone = 0.15;
// If the model has seen less than this part of a batch's predicted work, its ratio says nothing.
constexpr double kLearnable = 0.3;
// An upper bound of a batch's time is learnt only if the prediction exceeds it by more than the bound itself may be wrong. Nothing
// corrects upwards what is learnt from bounds, so otherwise predictions would creep down.
constexpr double kClearlyBelow = 0.9;
// This part of a stream's time may be given to graphs of others that it has waited for. Up to kMostPatienceNs of it is saved.
constexpr double kPatience = 0.1, kMostPatienceNs = 1e6;

}  // namespace

Replay::Replay(int sm_count) : sm_count_(sm_count), free_(sm_count) {
  // One that holds no SMs, since it is bound by the memory; the others hold one or more.
  running_.reserve(static_cast<size_t>(sm_count) + 1);
}

Replay::StreamId Replay::AddStream(uint32_t tenant, int priority) {
  Note({.kind = Call::Kind::kAddStream, .tenant = tenant, .priority = priority});
  StreamId id = 0;
  if (free_streams_.empty()) {
    id = static_cast<StreamId>(streams_.size());
    streams_.emplace_back();
    // So that Append() can throw only before it changes anything, and RemoveStream() never.
    live_.reserve(streams_.size() + branches_.size());
    free_streams_.reserve(streams_.size());
  } else {
    id = free_streams_.back();
    streams_[id] = Stream{};
    free_streams_.pop_back();
  }
  Stream& stream = At(id);
  stream.live = true;
  stream.tenant = tenant;
  stream.priority = priority;
  stream.ready = stream.marked = now_;
  stream.unclaimed = unclaimed_ns_;
  return id;
}

void Replay::Finish(Stream& stream, StreamId id) {
  free_ += stream.held;
  stream.held = 0;
  std::erase_if(running_, [id](const Running& r) { return r.stream == id; });
  stream.started = stream.pinned = stream.kept = false;
  stream.waiting = stream.running = stream.gave = 0;
}

void Replay::RemoveStream(StreamId id) {
  Note({.kind = Call::Kind::kRemoveStream, .stream = id});
  Stream& stream = At(id);
  for (const Item& item : stream.items) besides_ -= item.command.beside ? 1 : 0;
  Finish(stream, id);
  for (const StreamId branch : stream.branches) {
    Finish(At(branch), branch);
    std::erase(live_, branch);
    Empty(At(branch));
    free_branches_.push_back(branch);
  }
  std::erase(live_, id);
  if (stream.live) free_streams_.push_back(id);
  Empty(stream);
}

// A new Stream in its place would need memory of the host. Who uses the number again makes it.
void Replay::Empty(Stream& stream) {
  stream.live = false;
  stream.items.clear();
  stream.done = {};
  stream.last = {};
  stream.branches = {};
  stream.boundaries = stream.stamped = 0;
  stream.used_ns = 0;
}

void Replay::Append(StreamId id, const Command& command, Nanos not_before) {
  MakeRoomFor(At(id), 1);
  Note({.kind = Call::Kind::kAppend, .stream = id, .command = command, .at = not_before});
  AppendItem(id, {.command = command, .not_before = static_cast<double>(not_before.count())});
}

// Nothing that is called later needs memory of the host.
void Replay::MakeRoomFor(Stream& stream, size_t commands) {
  size_t most = stream.done.size() + stream.items.size() + commands;
  for (const StreamId branch : stream.branches) most += At(branch).items.size();
  for (std::vector<Command>* list : {&stream.done, &stream.last}) {
    if (list->capacity() < most) list->reserve(2 * most);
  }
}

void Replay::AppendItem(StreamId id, Item item) {
  Stream& stream = At(id);
  const Command command = item.command;
  stream.alone_ns.reset();
  const bool first = stream.items.empty();
  stream.items.push_back(std::move(item));
  besides_ += command.beside ? 1 : 0;
  const int priority = stream.priority - command.level;
  several_priorities_ |= first_priority_.value_or(priority) != priority;
  first_priority_ = first_priority_.value_or(priority);
  if (!first) return;
  live_.push_back(id);
  stream.ready = std::max(stream.ready, now_);
}

void Replay::Refuse(StreamId id, uint32_t entry) {
  Note({.kind = Call::Kind::kRefuse, .stream = id, .entry = entry});
  Stream& stream = At(id);
  stream.alone_ns.reset();
  uint32_t parts = 0;  // parts of the command that are still to be found
  const auto refuse = [&](Command& command) {
    if (command.entry != entry) return;
    if (parts == 0) parts = command.parts;
    command.cost_ns = 0;
    --parts;
  };
  for (auto item = stream.items.rbegin(); item != stream.items.rend(); ++item) {
    if (item->boundary) continue;
    if (item->branches != nullptr && item->command.entry == entry && parts == 0) {
      item->command.cost_ns = 0;
      parts = item->branches->kernels();  // some may have ended
      ForKernels(stream, item->graph, [&](Item& kernel) {
        kernel.command.cost_ns = 0;
        --parts;
      });
      if (parts == 0) return;
      continue;
    }
    refuse(item->command);
    if (parts == 0 && item->command.entry == entry) return;
  }
  for (auto command = stream.done.rbegin(); command != stream.done.rend(); ++command) {
    refuse(*command);
    if (parts == 0 && command->entry == entry) return;
  }
}

void Replay::Boundary(StreamId id, bool holds) {
  Note({.kind = Call::Kind::kBoundary, .stream = id, .holds = holds});
  Stream& stream = At(id);
  stream.alone_ns.reset();
  const bool first = stream.items.empty();
  stream.items.push_back({.boundary = true, .holds = holds});
  if (first) live_.push_back(id);
  ++stream.boundaries;
}

void Replay::Holds(StreamId id) {
  Stream& stream = At(id);
  if (stream.holds) return;
  Note({.kind = Call::Kind::kHolds, .stream = id});
  stream.holds = true;
  const auto oldest = std::find_if(stream.items.begin(), stream.items.end(),
                                   [](const Item& item) { return item.boundary; });
  if (oldest == stream.items.end() || std::exchange(oldest->holds, true)) return;
  if (oldest == stream.items.begin()) RunOn(stream);
}

void Replay::Abandon(StreamId id) {
  Note({.kind = Call::Kind::kAbandon, .stream = id});
  Stream& stream = At(id);
  for (auto item = stream.items.rbegin(); item != stream.items.rend() && !item->boundary; ++item) {
    AbandonItem(stream, *item);
  }
}

void Replay::DropBoundary(StreamId id) {
  Note({.kind = Call::Kind::kDropBoundary, .stream = id});
  Stream& stream = At(id);
  stream.alone_ns.reset();
  for (size_t i = stream.items.size(); i-- > 0;) {
    if (!stream.items[i].boundary) continue;
    stream.items.erase(stream.items.begin() + static_cast<std::ptrdiff_t>(i));
    if (--stream.boundaries == 0) stream.holds = false;
    while (i-- > 0 && !stream.items[i].boundary) AbandonItem(stream, stream.items[i]);
    return;
  }
}

void Replay::Stamped(StreamId id, bool found_idle) {
  Note({.kind = Call::Kind::kStamped, .stream = id, .found_idle = found_idle});
  Stream& stream = At(id);
  const int place = stream.stamped++;
  int before = 0;
  for (size_t i = 0; i < stream.items.size(); ++i) {
    Item& item = stream.items[i];
    if (!item.boundary || before++ < place) continue;
    item.found_idle = found_idle;
    if (!found_idle && !std::exchange(item.holds, true) && i == 0) RunOn(stream);
    break;
  }
  if (!found_idle) return;
  // The model has let the batch run on past its prediction, which turns out to be wrong.
  if (place > 0 || !stream.pinned) return;
  TakeBackPinned(stream);
  Finish(stream, id);
  PopCommand(stream);
  stream.ready = now_;
}

// Whether the head command is the last before a boundary whose marker tells its end. A marker that found its stream idle does
// not tell it.
bool Replay::LastOfBatch(const Stream& stream) {
  return stream.items.size() > 1 && stream.items[1].boundary && stream.items[1].holds &&
         !stream.items[1].found_idle;
}

// Whether the head command is bound by the memory.
bool Replay::AtMemory(const Stream& stream) {
  return !stream.items.empty() && !stream.items.front().boundary &&
         stream.items.front().command.memory;
}

void Replay::PopCommand(Stream& stream) {
  if (stream.done.empty()) {
    stream.launched = std::max(stream.ready, stream.items.front().not_before);
  }
  besides_ -= stream.items.front().command.beside ? 1 : 0;
  if (!stream.items.front().abandoned) stream.done.push_back(stream.items.front().command);
  stream.items.pop_front();
  stream.started = false;
}

Replay::OpaqueWork Replay::FindOpaque(uint32_t tenant) const {
  OpaqueWork found;
  for (StreamId id : live_) {
    const Stream& s = At(id);
    const bool any = std::any_of(s.items.begin(), s.items.end(),
                                 [](const Item& item) { return item.command.opaque; });
    if (any) (s.tenant == tenant ? found.own : found.others) = true;
  }
  return found;
}

double Replay::UsedSoFar(StreamId stream, Nanos now) {
  Note({.kind = Call::Kind::kUsedSoFar, .stream = stream, .at = now});
  Advance(static_cast<double>(now.count()));
  return At(stream).used_ns;
}

Nanos Replay::Overrun(StreamId id) const {
  const Stream& stream = At(id);
  if (stream.pinned) return Nanos(static_cast<int64_t>(now_ - stream.pinned_since));
  if (stream.items.empty() || !stream.started || !stream.items.front().command.opaque) {
    return Nanos(0);
  }
  const double predicted = static_cast<double>(stream.items.front().command.cost_ns);
  return Nanos(static_cast<int64_t>(std::max(0.0, stream.used_ns - predicted)));
}

// By how much the batch in progress, which has just ended, is later than in the model. What is left of it in the model is
// assumed to run without waiting.
double Replay::LateNs(StreamId id) const {
  const Stream& stream = At(id);
  if (stream.pinned) return now_ - stream.pinned_since;
  double left = 0;
  for (const Running& running : running_) {
    if (running.stream == id || At(running.stream).owner == id) {
      left = std::max(left, running.end - now_);
    }
  }
  if (stream.started && stream.waiting > 0) left += stream.unit_ns;
  for (size_t i = 0; i < stream.items.size() && !stream.items[i].boundary; ++i) {
    left += i == 0 && stream.started ? WaitingNs(stream) : LeftNs(stream, stream.items[i]);
  }
  return -left;
}

Replay::Batch Replay::Complete(StreamId id, Nanos at, Nanos after, End end) {
  Note({.kind = Call::Kind::kComplete, .stream = id, .at = at, .after = after, .end = end});
  Stream& stream = At(id);
  for (const Item& item : stream.items) {
    if (!item.boundary) continue;
    if (item.found_idle && end == End::kStamped) end = End::kBefore;
    break;
  }
  const bool late = end != End::kStamped;
  Advance(static_cast<double>(at.count()));
  if (!late) TakeOver(stream);
  // Even a marker that came late bounds the batch from above: if the model has not finished the batch by then, its
  // prediction was too long.
  const double late_ns = LateNs(id);
  const bool outlasted = !stream.items.empty() && !stream.items.front().boundary && !stream.pinned;
  Finish(stream, id);
  while (!stream.items.empty() && !stream.items.front().boundary) {
    stream.items.front().branches != nullptr ? PopGraph(stream) : PopCommand(stream);
  }
  if (!stream.items.empty()) {
    stream.items.pop_front();
    --stream.boundaries;
    stream.stamped = std::max(stream.stamped - 1, 0);
    stream.holds = false;
  }
  stream.ready = end == End::kUnknown ? now_ : std::max(now_, static_cast<double>(after.count()));
  // The model lets known work run at once and opaque work wait. On the device it was partly the other way round. So
  // the time from the known work's predicted end to its marker belongs to the opaque work, which may have ended
  // meanwhile.
  if (stream.beside_opaque && At(stream.opaque).live) {
    At(stream.opaque).owed_ns += stream.pinned_used_ns;
    stream.used_ns -= std::exchange(stream.pinned_used_ns, 0);
  }
  if (late) TakeBackPinned(stream);
  if (stream.items.empty()) std::erase(live_, id);

  Batch batch;
  batch.tenant = stream.tenant;
  batch.late_ns = late_ns;
  batch.used_ns = stream.used_ns + std::exchange(stream.owed_ns, 0);
  double group_predicted = 0;
  for (const Command& c : stream.done) {
    batch.predicted_ns += c.alone_ns();
    group_predicted += GroupTime(c);
  }
  batch.ratio = group_predicted > 0 ? stream.group_ns / group_predicted : 1;
  // Opaque work holds no SMs in the model, so what is seen of them says nothing of it.
  const bool opaque = std::any_of(stream.done.begin(), stream.done.end(),
                                  [](const Command& c) { return c.opaque; });
  const bool seen = stream.group_predicted_ns > kLearnable * group_predicted;
  batch.learnable = !stream.beside_opaque && !opaque && seen &&
                    (!late || (outlasted && batch.ratio < kClearlyBelow));
  // The model does not know when exactly the launches of a batch were made. So if it has let them begin too late for the marker,
  // that does not mean that they took less time.
  const bool one_launch =
      !stream.done.empty() && stream.done.size() == std::max(stream.done[0].parts, 1u);
  const bool unseen =
      now_ - stream.launched < kUnseen * batch.predicted_ns || (outlasted && !one_launch);
  if (end == End::kBefore && group_predicted > 0 && !stream.beside_opaque && !opaque && unseen) {
    ChargeUnseen(stream, static_cast<double>(at.count()), batch);
  }
  batch.in_time = end == End::kBefore && (seen || batch.guessed) && !stream.beside_opaque &&
                  !opaque && !batch.learnable;
  if (end != End::kUnknown) {
    stream.marked = static_cast<double>(after.count());
    stream.unclaimed = unclaimed_ns_;
  }
  batch.shared = stream.shared_ns > kAlone * stream.resident_ns;
  batch.alone = !batch.guessed && !batch.shared;
  batch.beside_ns = std::exchange(stream.beside_ns, 0);
  stream.last.clear();
  stream.last.swap(stream.done);
  batch.commands = stream.last;
  stream.patience_ns = std::min(stream.patience_ns + kPatience * batch.used_ns, kMostPatienceNs);
  stream.alone_ns.reset();
  stream.used_ns = stream.shared_ns = stream.resident_ns = 0;
  stream.group_ns = stream.group_predicted_ns = 0;
  stream.pinned_used_ns = stream.pinned_group_ns = 0;
  stream.beside_opaque = false;
  return batch;
}

}  // namespace gpushare::meter
