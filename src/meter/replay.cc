// SPDX-License-Identifier: Apache-2.0
#include "meter/replay.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace gpushare::meter {
namespace {

constexpr double kNeverNs = std::numeric_limits<double>::infinity();
// A batch counts as alone when others were resident for at most this part of its time.
constexpr double kAlone = 0.15;
// Below this part of a batch's predicted work seen in the model its ratio says nothing.
constexpr double kLearnable = 0.3;
// Of a batch of which the model has run at most this part, and could have run no more, it has seen nothing.
constexpr double kUnseen = 0.25;
// If meanwhile another stream's batch has been pinned for this many times what it was predicted to take, the model has
// the two in the wrong order.
constexpr double kOverdue = 3;
// So much of a stream's time may be taken to have been others' graphs', which it has waited for; it is saved up to the second.
constexpr double kPatience = 0.1, kMostPatienceNs = 1e6;

}  // namespace

Replay::Replay(int sm_count) : sm_count_(sm_count), free_(sm_count) {}

Replay::StreamId Replay::AddStream(uint32_t tenant, int priority) {
  Note({.kind = Call::Kind::kAddStream, .tenant = tenant, .priority = priority});
  StreamId id = 0;
  if (free_streams_.empty()) {
    id = static_cast<StreamId>(streams_.size());
    streams_.emplace_back();
    live_.reserve(streams_.size());  // what is appended later throws before it changes anything
  } else {
    id = free_streams_.back();
    free_streams_.pop_back();
  }
  Stream& stream = streams_[id];
  stream = Stream{};
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
  for (const Item& item : streams_[id].items) besides_ -= item.command.beside ? 1 : 0;
  Finish(streams_[id], id);
  if (streams_[id].live) free_streams_.push_back(id);
  streams_[id] = Stream{};
  std::erase(live_, id);
}

void Replay::Append(StreamId id, const Command& command, Nanos not_before) {
  Note({.kind = Call::Kind::kAppend, .stream = id, .command = command, .at = not_before});
  Stream& stream = streams_[id];
  stream.alone_ns.reset();
  const bool first = stream.items.empty();
  stream.items.push_back({command, static_cast<double>(not_before.count()), false, false, false});
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
  Stream& stream = streams_[id];
  stream.alone_ns.reset();
  uint32_t parts = 0;  // of it that are still to be found
  const auto refuse = [&](Command& command) {
    if (command.entry != entry) return;
    if (parts == 0) parts = command.parts;
    command.cost_ns = 0;
    --parts;
  };
  for (auto item = stream.items.rbegin(); item != stream.items.rend(); ++item) {
    if (item->boundary) continue;
    refuse(item->command);
    if (parts == 0 && item->command.entry == entry) return;
  }
  for (auto command = stream.done.rbegin(); command != stream.done.rend(); ++command) {
    refuse(*command);
    if (parts == 0 && command->entry == entry) return;
  }
}

void Replay::Boundary(StreamId id) {
  Note({.kind = Call::Kind::kBoundary, .stream = id});
  Stream& stream = streams_[id];
  stream.alone_ns.reset();
  const bool first = stream.items.empty();
  stream.items.push_back({{}, 0, true, false, false});
  if (first) live_.push_back(id);
  ++stream.boundaries;
}

void Replay::Abandon(StreamId id) {
  Note({.kind = Call::Kind::kAbandon, .stream = id});
  Stream& stream = streams_[id];
  for (auto item = stream.items.rbegin(); item != stream.items.rend() && !item->boundary; ++item) {
    item->abandoned = true;
  }
}

void Replay::DropBoundary(StreamId id) {
  Note({.kind = Call::Kind::kDropBoundary, .stream = id});
  Stream& stream = streams_[id];
  stream.alone_ns.reset();
  for (size_t i = stream.items.size(); i-- > 0;) {
    if (!stream.items[i].boundary) continue;
    stream.items.erase(stream.items.begin() + static_cast<std::ptrdiff_t>(i));
    --stream.boundaries;
    while (i-- > 0 && !stream.items[i].boundary) stream.items[i].abandoned = true;
    return;
  }
}

void Replay::Stamped(StreamId id, bool found_idle) {
  Note({.kind = Call::Kind::kStamped, .stream = id, .found_idle = found_idle});
  Stream& stream = streams_[id];
  const int place = stream.stamped++;
  if (!found_idle) return;
  int before = 0;
  for (Item& item : stream.items) {
    if (!item.boundary || before++ < place) continue;
    item.found_idle = true;
    break;
  }
  // It was kept running past its prediction for what it turns out not to have done.
  if (place > 0 || !stream.pinned) return;
  TakeBackPinned(stream);
  Finish(stream, id);
  PopCommand(stream);
  stream.ready = now_;
}

// What ran on past its prediction in the model did not on the device.
void Replay::TakeBackPinned(Stream& stream) {
  stream.used_ns -= std::exchange(stream.pinned_used_ns, 0);
  stream.group_ns -= std::exchange(stream.pinned_group_ns, 0);
}

// True when the head command is the last before a boundary: its end is known from the marker alone, unless that tells
// nothing of it.
bool Replay::LastOfBatch(const Stream& stream) {
  return stream.items.size() > 1 && stream.items[1].boundary && !stream.items[1].found_idle;
}

// True when its head command is bound by the memory.
bool Replay::AtMemory(const Stream& stream) {
  return !stream.items.empty() && !stream.items.front().boundary &&
         stream.items.front().command.memory;
}

void Replay::PlaceMemory() {
  Stream* best = nullptr;
  StreamId best_id = 0;
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (!AtMemory(s)) continue;
    if (s.started) return;
    s.ready = std::max(s.ready, s.items.front().not_before);
    if (s.ready <= now_ && (best == nullptr || s.ready < best->ready)) {
      best = &s;
      best_id = id;
    }
  }
  if (best == nullptr) return;
  const Item& item = best->items.front();
  best->started = true;
  best->waiting = best->running = 0;
  best->unit_ns = static_cast<double>(item.command.cost_ns);
  if (!item.abandoned) best->group_predicted_ns += best->unit_ns;
  running_.push_back({now_ + best->unit_ns, best_id, 0});
}

// Whether any ran.
bool Replay::AccumulateMemory(double dt) {
  bool any = false;
  for (StreamId id : live_) {
    Stream& s = streams_[id];
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

int Replay::PriorityOf(const Stream& stream) {
  return stream.priority - stream.items.front().command.level;
}

// Behind kernels of a greater priority one that is later than costs vary has most likely waited for these, rather than
// run on: it goes on waiting for them, from the next time on that something begins or ends. Without that whoever has the
// greater priority is charged up to 1.4 pp too little, and as much too much where nobody is taken to run on.
bool Replay::Waits(const Stream& stream, int priority) const {
  return stream.pinned && PriorityOf(stream) > priority && now_ > VeryLateFrom(stream);
}

bool Replay::MakesWay(int priority) const {
  return several_priorities_ && std::any_of(live_.begin(), live_.end(), [&](StreamId id) {
           return streams_[id].held > 0 && Waits(streams_[id], priority);
         });
}

void Replay::MakeWay(int priority, int wanted) {
  if (!several_priorities_) return;
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (!Waits(s, priority)) continue;
    const int n = std::min(wanted, s.held);
    s.held -= n;
    s.waiting += n;
    free_ += n;
    wanted -= n;
  }
}

void Replay::Place() {
  PlaceMemory();
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (s.items.empty() || s.items.front().boundary || !s.items.front().command.opaque) continue;
    s.started |= std::max(s.ready, s.items.front().not_before) <= now_;
  }
  while (free_ > 0 || several_priorities_) {
    Stream* best = nullptr;
    StreamId best_id = 0;
    int best_priority = 0;
    for (StreamId id : live_) {
      Stream& s = streams_[id];
      if (s.items.empty() || s.items.front().boundary) continue;
      if (s.started && s.waiting == 0) continue;
      if (s.items.front().command.opaque || s.items.front().command.memory) continue;
      if (!s.started) {
        s.ready = std::max(s.ready, s.items.front().not_before);  // its age counts from there
        if (s.ready > now_) continue;
      }
      const int priority = PriorityOf(s);
      if (best == nullptr || priority < best_priority ||
          (priority == best_priority && s.ready < best->ready)) {
        best = &s;
        best_id = id;
        best_priority = priority;
      }
    }
    if (best == nullptr || (free_ == 0 && !MakesWay(best_priority))) return;
    if (!best->started) {
      const Command& command = best->items.front().command;
      const double sms = SmsOf(command);
      // Beyond a few waves their number does not matter for who holds what; coarser groups keep the
      // replay of a kernel of a million blocks cheap.
      const double waves = std::ceil(sms / sm_count_);
      best->started = true;
      best->waiting = static_cast<int>(std::min(sms, kMostWaves * sm_count_));
      best->running = 0;
      const double kept_waves = std::ceil(static_cast<double>(best->waiting) / sm_count_);
      best->unit_ns = static_cast<double>(command.cost_ns) / std::min(waves, kept_waves);
      if (!best->items.front().abandoned) {
        best->group_predicted_ns += best->unit_ns * best->waiting;
      }
    }
    if (free_ < best->waiting) MakeWay(best_priority, best->waiting - free_);
    const int n = std::min(free_, best->waiting);
    best->waiting -= n;
    best->held += n;
    free_ -= n;
    if (best->pinned) continue;
    best->running += n;
    running_.push_back({now_ + best->unit_ns, best_id, n});
  }
}

// Costs of the opaque work that is running; 0: there is none.
double Replay::OpaqueWeight() const {
  double weight = 0;
  for (StreamId id : live_) {
    const Stream& s = streams_[id];
    if (s.started && s.items.front().command.opaque) {
      weight += static_cast<double>(s.items.front().command.cost_ns);
    }
  }
  return weight;
}

// Beside opaque work a command that is late is not taken to run on: what is between it and its marker may
// be theirs as well.
void Replay::ReleasePinned() {
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (!s.pinned) continue;
    free_ += std::exchange(s.held, 0);
    s.waiting = s.gave = 0;
  }
}

void Replay::AccumulateBesideOpaque(double dt, double weight) {
  StreamId opaque = 0;
  for (StreamId id : live_) {
    const Stream& s = streams_[id];
    if (s.started && s.items.front().command.opaque) opaque = id;
  }
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (s.started && s.items.front().command.opaque) {
      const double part = static_cast<double>(s.items.front().command.cost_ns) / weight;
      s.used_ns += dt * part * free_ / sm_count_;
      s.resident_ns += dt;
      s.shared_ns += dt;
      continue;
    }
    if (!s.items.empty() && !s.items.front().boundary) {
      s.beside_opaque = true;
      s.opaque = opaque;
    }
    if (s.held == 0 || s.items.front().abandoned) continue;
    s.used_ns += dt * s.held / sm_count_;
    s.group_ns += dt * s.held;
    s.resident_ns += dt;
    s.shared_ns += dt;
  }
}

// Whoever has something to run has that beside it, from its begin to its marker: what is late is taken to have waited for those
// of a greater priority, but may have held SMs all the while.
void Replay::AccumulateBeside(double dt) {
  if (besides_ == 0) return;
  for (const StreamId by : live_) {
    const Stream& let_in = streams_[by];
    if (!let_in.started || !let_in.items.front().command.beside) continue;
    for (const StreamId id : live_) {
      Stream& s = streams_[id];
      if (s.tenant == let_in.tenant || s.items.empty() || s.items.front().boundary) continue;
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
    // Nothing runs in the model, and something has not ended: see Complete().
    for (StreamId id : live_) {
      const Stream& s = streams_[id];
      if (!s.pinned || !s.beside_opaque || !streams_[s.opaque].live) continue;
      streams_[s.opaque].owed_ns += dt;
      return;
    }
    if (!memory) unclaimed_ns_ += dt;
    return;
  }
  uint32_t tenant = 0;
  bool any = false, several = false;
  for (StreamId id : live_) {
    const Stream& s = streams_[id];
    if (s.held == 0) continue;
    several |= any && s.tenant != tenant;
    tenant = s.tenant;
    any = true;
  }
  const Graphs graphs = FindGraphs();
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (s.held == 0) continue;
    if (s.items.front().abandoned) continue;
    const double fill = s.pinned ? s.pinned_fill : 1;
    double used = dt * s.held / held;
    const double groups = dt * s.held * fill;
    used -= ToGraph(s, graphs, used);
    s.used_ns += used;
    s.group_ns += groups;
    s.resident_ns += dt;
    if (s.pinned) {
      s.pinned_used_ns += used;
      s.pinned_group_ns += groups;
    }
    if (several) s.shared_ns += dt;
  }
}

Replay::Graphs Replay::FindGraphs() {
  Graphs graphs;
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (s.items.empty() || s.items.front().boundary || s.items.front().command.parts <= 1) continue;
    if (s.items.front().not_before > now_) continue;
    if (graphs.first == nullptr) graphs.first = &s;
    if (graphs.first->tenant == s.tenant) continue;
    graphs.second = &s;
    break;
  }
  return graphs;
}

// From when on one that is pinned is later than costs vary.
double Replay::VeryLateFrom(const Stream& stream) {
  return stream.pinned_since + kVaries * static_cast<double>(stream.items.front().command.cost_ns);
}

bool Replay::VeryLate(const Stream& stream) const {
  return stream.pinned && now_ >= VeryLateFrom(stream);
}

// What has kept to its last wave beside a graph for longer than costs vary has most likely run on itself. Of a graph that has
// used all that it takes alone, and is late too, nothing is known but that it has not ended: what is late gets its SMs.
// Returns when the next of these will have.
double Replay::Widen() {
  int wanted = 0;
  bool any = false;
  for (StreamId id : live_) {
    Stream& s = streams_[id];
    if (!s.pinned) continue;
    if (s.kept && VeryLate(s)) {
      s.kept = false;
      s.waiting = std::max(Width(s.items.front().command) - s.held, 0);
    }
    if (!VeryLate(s) || s.items.front().command.parts > 1) continue;
    any = true;
    wanted += s.waiting;
  }
  for (size_t i = 0; i < live_.size() && !any; ++i) {
    Stream& s = streams_[live_[i]];
    s.waiting += std::exchange(s.gave, 0);  // nobody else can be what has not ended
  }
  wanted -= free_;
  double next = kNeverNs;
  for (size_t i = 0; i < live_.size() && wanted > 0; ++i) {
    Stream& s = streams_[live_[i]];
    if (!s.pinned || s.held == 0 || s.items.front().command.parts <= 1) continue;
    if (const double left = AloneNs(s) - s.used_ns; left > 0) {
      next = std::min(next, now_ + std::max(1.0, left * (sm_count_ - free_) / s.held));
      continue;
    }
    const int n = std::min(wanted, s.held);
    s.held -= n;
    s.gave += n;
    free_ += n;
    wanted -= n;
  }
  return next;
}

// Beside another tenant's graph one that is later than costs vary may have waited for kernels of that which the model has at
// another time, and which had the SMs that it seems to hold: the time is the graph's, as long as that has not used more than it
// takes alone, and no more than a small part of the stream's time. What the command is seen to take is not changed by it.
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

// What the batch in progress takes alone, by prediction.
double Replay::AloneNs(Stream& stream) {
  if (stream.alone_ns.has_value()) return *stream.alone_ns;
  double alone = 0;
  for (const Command& command : stream.done) alone += static_cast<double>(command.cost_ns);
  for (const Item& item : stream.items) {
    if (item.boundary) break;
    alone += static_cast<double>(item.command.cost_ns);
  }
  stream.alone_ns = alone;
  return alone;
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

void Replay::EndGroups(size_t index) {
  const Running ended = running_[index];
  Stream& stream = streams_[ended.stream];
  const bool last = stream.waiting == 0 && stream.running == ended.groups;
  if (last && LastOfBatch(stream)) {
    stream.pinned = true;
    stream.pinned_since = now_;
    // It takes longer than predicted, so what ended was not its last wave: it goes on at its full width,
    // and being the oldest it gets the SMs that others leave. At the width of that last wave a command of
    // several waves would be learnt too short, and those that wait for it too long.
    // Not so beside another's graph: more likely the kernels of that had their turn at another time than in the model, which
    // goes by their mean. It keeps what it holds, and they have the rest, until it is later than costs vary: see Widen().
    const Command& command = stream.items.front().command;
    stream.kept = !command.memory && FindGraphs().Beside(stream) != nullptr;
    stream.waiting = command.memory || stream.kept ? 0 : std::max(Width(command) - stream.held, 0);
    const double full = static_cast<double>(command.cost_ns) * Width(command);
    stream.pinned_fill = full > 0 ? GroupTime(command) / full : 1;  // 0: it was refused
    running_[index].end = kNeverNs;
    return;
  }
  running_[index] = running_.back();
  running_.pop_back();
  stream.running -= ended.groups;
  stream.held -= ended.groups;
  free_ += ended.groups;
  if (last) {
    PopCommand(stream);
    stream.ready = now_;
  }
}

void Replay::Advance(double to) {
  while (now_ < to) {
    double next = std::min(to, Widen());
    Place();
    if (OpaqueWeight() > 0) {
      ReleasePinned();
      Place();
    }
    size_t index = running_.size();
    for (size_t i = 0; i < running_.size(); ++i) {
      if (running_[i].end < next) {
        next = running_[i].end;
        index = i;
      }
    }
    for (StreamId id : live_) {  // somebody may become eligible before
      const Stream& s = streams_[id];
      if (s.kept && VeryLateFrom(s) > now_ && VeryLateFrom(s) < next) {
        next = VeryLateFrom(s);  // see Widen()
        index = running_.size();
      }
      if (s.items.empty() || s.started || s.items.front().boundary) continue;
      const Command& head = s.items.front().command;
      if (free_ == 0 && !head.opaque && !head.memory && !MakesWay(PriorityOf(s))) continue;
      const double at = std::max(s.items.front().not_before, s.ready);
      if (at > now_ && at < next) {
        next = at;
        index = running_.size();
      }
    }
    Accumulate(next - now_);
    now_ = next;
    if (index < running_.size()) EndGroups(index);
  }
  std::erase_if(live_, [this](StreamId id) { return streams_[id].items.empty(); });
}

// Of all its waves together.
double Replay::SmsOf(const Command& command) const {
  return std::max(1.0, std::round(static_cast<double>(command.footprint) * sm_count_));
}

// SMs that a command holds while it is not in its last wave.
int Replay::Width(const Command& command) const {
  return static_cast<int>(std::min(SmsOf(command), 1.0 * sm_count_));
}

// SM time of a command by its prediction.
double Replay::GroupTime(const Command& command) const {
  if (command.memory) return static_cast<double>(command.cost_ns);
  const double sms = SmsOf(command);
  return static_cast<double>(command.cost_ns) / std::ceil(sms / sm_count_) * sms;
}

// The device may take the heads of two streams in another order than the model. Seen from the markers: a
// batch ends that the model never let run, because the last command of another stream's batch, which was
// predicted to be short, is taken to have held the device all the while. The time is the former's.
void Replay::TakeOver(Stream& stream) {
  double batch = 0;
  for (const Command& command : stream.done) batch += GroupTime(command);
  double ready = stream.ready;
  const Command* widest = nullptr;
  for (size_t i = 0; i < stream.items.size() && !stream.items[i].boundary; ++i) {
    const Command& command = stream.items[i].command;
    if (i == 0) ready = std::max(ready, stream.items[i].not_before);
    if (command.memory) continue;
    if (widest == nullptr || command.footprint > widest->footprint) widest = &command;
    batch += GroupTime(command);
  }
  if (widest == nullptr || stream.beside_opaque || stream.group_ns > kUnseen * batch) return;
  Stream* pinned = nullptr;
  for (StreamId id : live_) {
    Stream& other = streams_[id];
    if (&other == &stream || !other.pinned || other.pinned_used_ns <= 0) continue;
    if (AtMemory(other)) continue;  // it held nothing that this one could have waited for
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

Replay::OpaqueWork Replay::FindOpaque(uint32_t tenant) const {
  OpaqueWork found;
  for (StreamId id : live_) {
    const Stream& s = streams_[id];
    const bool any = std::any_of(s.items.begin(), s.items.end(),
                                 [](const Item& item) { return item.command.opaque; });
    if (any) (s.tenant == tenant ? found.own : found.others) = true;
  }
  return found;
}

double Replay::UsedSoFar(StreamId stream, Nanos now) {
  Note({.kind = Call::Kind::kUsedSoFar, .stream = stream, .at = now});
  Advance(static_cast<double>(now.count()));
  return streams_[stream].used_ns;
}

Nanos Replay::Overrun(StreamId id) const {
  const Stream& stream = streams_[id];
  if (stream.pinned) return Nanos(static_cast<int64_t>(now_ - stream.pinned_since));
  if (stream.items.empty() || !stream.started || !stream.items.front().command.opaque) {
    return Nanos(0);
  }
  const double predicted = static_cast<double>(stream.items.front().command.cost_ns);
  return Nanos(static_cast<int64_t>(std::max(0.0, stream.used_ns - predicted)));
}

// It ended when the model had hardly let it begin, and not because others had the device: host and device do not agree
// on when it was launched. It took no longer than since the last marker, of time that nobody else is charged for, and
// nothing is known beyond that.
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

// How much later than in the model the batch in progress has ended now. What the model has left of it is taken to run at once.
double Replay::LateNs(StreamId id) const {
  const Stream& stream = streams_[id];
  if (stream.pinned) return now_ - stream.pinned_since;
  double left = 0;
  for (const Running& running : running_) {
    if (running.stream == id) left = std::max(left, running.end - now_);
  }
  if (stream.started && stream.waiting > 0) left += stream.unit_ns;
  for (size_t i = stream.started ? 1 : 0; i < stream.items.size(); ++i) {
    if (stream.items[i].boundary) break;
    left += static_cast<double>(stream.items[i].command.cost_ns);
  }
  return -left;
}

Replay::Batch Replay::Complete(StreamId id, Nanos at, Nanos after, End end) {
  Note({.kind = Call::Kind::kComplete, .stream = id, .at = at, .after = after, .end = end});
  Stream& stream = streams_[id];
  for (const Item& item : stream.items) {
    if (!item.boundary) continue;
    if (item.found_idle && end == End::kStamped) end = End::kBefore;
    break;
  }
  const bool late = end != End::kStamped;
  Advance(static_cast<double>(at.count()));
  if (!late) TakeOver(stream);
  // Even a marker that came late bounds the batch from above: what the model has not run by then was
  // predicted to take too long.
  const double late_ns = LateNs(id);
  const bool outlasted = !stream.items.empty() && !stream.items.front().boundary && !stream.pinned;
  Finish(stream, id);
  while (!stream.items.empty() && !stream.items.front().boundary) PopCommand(stream);
  if (!stream.items.empty()) {
    stream.items.pop_front();
    --stream.boundaries;
    stream.stamped = std::max(stream.stamped - 1, 0);
  }
  stream.ready = end == End::kUnknown ? now_ : std::max(now_, static_cast<double>(after.count()));
  // The model lets known work run at once and opaque work wait; on the device it was, in part, the other
  // way round. What is left until the marker was the opaque work's, which may have ended meanwhile.
  if (stream.beside_opaque && streams_[stream.opaque].live) {
    streams_[stream.opaque].owed_ns += stream.pinned_used_ns;
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
    batch.predicted_ns += static_cast<double>(c.cost_ns);
    group_predicted += GroupTime(c);
  }
  batch.ratio = group_predicted > 0 ? stream.group_ns / group_predicted : 1;
  batch.learnable = stream.beside_opaque ? false
                    : late               ? outlasted && group_predicted > 0
                                         : stream.group_predicted_ns > kLearnable * group_predicted;
  const bool opaque = std::any_of(stream.done.begin(), stream.done.end(),
                                  [](const Command& c) { return c.opaque; });
  if (end == End::kBefore && group_predicted > 0 && !stream.beside_opaque && !opaque &&
      now_ - stream.launched < kUnseen * batch.predicted_ns) {
    ChargeUnseen(stream, static_cast<double>(at.count()), batch);
  }
  if (end != End::kUnknown) {
    stream.marked = static_cast<double>(after.count());
    stream.unclaimed = unclaimed_ns_;
  }
  batch.alone = !batch.guessed && stream.shared_ns <= kAlone * stream.resident_ns;
  batch.beside_ns = std::exchange(stream.beside_ns, 0);
  batch.commands.swap(stream.done);
  stream.patience_ns = std::min(stream.patience_ns + kPatience * batch.used_ns, kMostPatienceNs);
  stream.alone_ns.reset();
  stream.used_ns = stream.shared_ns = stream.resident_ns = 0;
  stream.group_ns = stream.group_predicted_ns = 0;
  stream.pinned_used_ns = stream.pinned_group_ns = 0;
  stream.beside_opaque = false;
  return batch;
}

}  // namespace gpushare::meter
