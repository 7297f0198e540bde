// SPDX-License-Identifier: Apache-2.0
// The replay's model of the device: which commands hold which SMs, from one event to the next.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "meter/replay.h"

namespace gpushare::meter {
namespace {

constexpr double kNeverNs = std::numeric_limits<double>::infinity();

}  // namespace

void Replay::PlaceMemory() {
  Stream* best = nullptr;
  StreamId best_id = 0;
  for (StreamId id : live_) {
    Stream& s = At(id);
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

int Replay::PriorityOf(const Stream& stream) {
  return stream.priority - stream.items.front().command.level;
}

// Whether a late command waits for kernels of a greater priority. If it is later than costs vary, it has most likely waited for
// these rather than run on. It goes on waiting for them from the next time on that something begins or ends. Without this
// rule, the tenant of the greater priority is charged up to 1.4 pp too little; if no late command were assumed to run on, it
// would be charged as much too much.
bool Replay::Waits(const Stream& stream, int priority) const {
  return stream.pinned && PriorityOf(stream) > priority && now_ > VeryLateFrom(stream);
}

bool Replay::MakesWay(int priority) const {
  return several_priorities_ && std::any_of(live_.begin(), live_.end(), [&](StreamId id) {
           return At(id).held > 0 && Waits(At(id), priority);
         });
}

void Replay::MakeWay(int priority, int wanted) {
  if (!several_priorities_) return;
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (!Waits(s, priority)) continue;
    const int n = std::min(wanted, s.held);
    s.held -= n;
    s.waiting += n;
    free_ += n;
    wanted -= n;
  }
}

// Kernels of a graph that could begin at the same time go in their order.
bool Replay::IsBefore(const Stream& a, const Stream& b) {
  if (a.ready != b.ready || !a.owner.has_value() || a.owner != b.owner) return a.ready < b.ready;
  return a.items.front().kernel < b.items.front().kernel;
}

// Groups of a command that end at the same time are kept together: otherwise the waves of commands that share the device come
// apart into as many pieces as there are SMs, each of which ends by itself.
void Replay::AddRunning(StreamId id, int groups) {
  const double end = now_ + At(id).unit_ns;
  const auto same = std::find_if(running_.begin(), running_.end(), [&](const Running& running) {
    return running.stream == id && running.end == end;
  });
  if (same == running_.end()) {
    running_.push_back({end, id, groups});
  } else {
    same->groups += groups;
  }
}

void Replay::Place() {
  PlaceMemory();
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (s.items.empty() || s.items.front().boundary || s.started) continue;
    const Item& head = s.items.front();
    if (!head.command.opaque && head.branches == nullptr) continue;
    if (std::max(s.ready, head.not_before) <= now_) Begin(s);
  }
  while (free_ > 0 || several_priorities_) {
    Stream* best = nullptr;
    StreamId best_id = 0;
    int best_priority = 0;
    for (StreamId id : live_) {
      Stream& s = At(id);
      if (s.items.empty() || s.items.front().boundary) continue;
      if (s.blocked || (s.started && s.waiting == 0)) continue;
      if (s.items.front().branches != nullptr) continue;
      if (s.items.front().command.opaque || s.items.front().command.memory) continue;
      if (!s.started) {
        s.ready = std::max(s.ready, s.items.front().not_before);  // its age counts from then
        if (s.ready > now_) continue;
      }
      const int priority = PriorityOf(s);
      if (best == nullptr || priority < best_priority ||
          (priority == best_priority && IsBefore(s, *best))) {
        best = &s;
        best_id = id;
        best_priority = priority;
      }
    }
    if (best == nullptr || (free_ == 0 && !MakesWay(best_priority))) return;
    if (!best->started) {
      const Command& command = best->items.front().command;
      const double sms = SmsOf(command);
      // Beyond a few waves their number does not matter for who holds what. Coarser groups keep the replay of a
      // kernel of a million blocks cheap.
      const double waves = std::ceil(sms / sm_count_);
      best->started = true;
      best->waiting = static_cast<int>(std::min(sms, kMostWaves * sm_count_));
      best->running = 0;
      const double kept_waves = std::ceil(static_cast<double>(best->waiting) / sm_count_);
      best->unit_ns = static_cast<double>(command.cost_ns) / std::min(waves, kept_waves);
      if (!best->items.front().abandoned) {
        OwnerOf(*best).group_predicted_ns += best->unit_ns * best->waiting;
      }
    }
    if (free_ < best->waiting) MakeWay(best_priority, best->waiting - free_);
    const int n = std::min(free_, best->waiting);
    best->waiting -= n;
    best->held += n;
    free_ -= n;
    if (best->pinned) continue;
    best->running += n;
    AddRunning(best_id, n);
  }
}

// Beside opaque work a late command is not assumed to run on: the time from its predicted end to its marker may
// as well be the opaque work's.
void Replay::ReleasePinned() {
  for (StreamId id : live_) {
    Stream& s = At(id);
    if (!s.pinned) continue;
    free_ += std::exchange(s.held, 0);
    s.waiting = s.gave = 0;
  }
}

// From when on a pinned command is later than costs vary.
double Replay::VeryLateFrom(const Stream& stream) {
  return stream.pinned_since + kVaries * static_cast<double>(stream.items.front().command.cost_ns);
}

bool Replay::VeryLate(const Stream& stream) const {
  return stream.pinned && now_ >= VeryLateFrom(stream);
}

// A command that has held only its last wave's SMs beside a graph for longer than costs vary has most likely run on itself, so it
// gets its full width. It may take SMs from a late graph that has used all the time that it takes alone, since of such a graph
// nothing is known but that it has not ended. Returns when the next late graph will have used that time.
double Replay::Widen() {
  int wanted = 0;
  bool any = false;
  for (StreamId id : live_) {
    Stream& s = At(id);
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
    Stream& s = At(live_[i]);
    s.waiting += std::exchange(s.gave, 0);  // no other very late command is left to want these SMs
  }
  wanted -= free_;
  double next = kNeverNs;
  for (size_t i = 0; i < live_.size() && wanted > 0; ++i) {
    Stream& s = At(live_[i]);
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

// The last command of a batch is over in the model, but not on the device.
void Replay::Pin(Stream& stream) {
  stream.pinned = true;
  stream.pinned_since = now_;
  // The command takes longer than predicted, so what ended was not its last wave. It goes on at its full width,
  // and since it is the oldest, it gets the SMs that others leave. At the width of its last wave, a command of
  // several waves would be learnt too short, and the commands that wait for it too long.
  // Beside another tenant's graph this is different: more likely the graph's kernels ran at another time than in the model,
  // which uses their mean. So the command keeps the SMs that it holds, and the graph has the rest, until the command is later
  // than costs vary: see Widen().
  const Command& command = stream.items.front().command;
  stream.kept = !command.memory && FindGraphs().Beside(stream) != nullptr;
  stream.waiting = command.memory || stream.kept ? 0 : std::max(Width(command) - stream.held, 0);
  const double full = static_cast<double>(command.cost_ns) * Width(command);
  stream.pinned_fill = full > 0 ? GroupTime(command) / full : 1;  // 0 if it was refused
}

// A batch is not over, although its last command has ended in the model: that command goes on. Without host memory the batch
// ends as it did in the model.
void Replay::RunOn(Stream& stream) {
  if (stream.done.empty()) return;
  const double ended = stream.ready, begun = stream.done.size() == 1 ? stream.launched : ended;
  const Command command = stream.done.back();
  try {
    stream.items.push_front({.command = command, .not_before = begun});
  } catch (const std::bad_alloc&) {
    return;
  }
  stream.done.pop_back();
  stream.ready = begun;
  besides_ += command.beside ? 1 : 0;
  stream.started = true;
  stream.running = 0;
  Pin(stream);
  stream.pinned_since = ended;
}

void Replay::EndGroups(size_t index) {
  const Running ended = running_[index];
  Stream& stream = At(ended.stream);
  const bool last = stream.waiting == 0 && stream.running == ended.groups;
  const bool ends_graph = last && stream.owner.has_value() && EndsGraph(stream);
  if (ends_graph && LastOfBatch(At(*stream.owner))) {
    BecomeLast(*stream.owner, index);
    Pin(At(running_[index].stream));
    running_[index].end = kNeverNs;
    return;
  }
  if (last && !stream.owner.has_value() && LastOfBatch(stream)) {
    Pin(stream);
    running_[index].end = kNeverNs;
    return;
  }
  running_[index] = running_.back();
  running_.pop_back();
  stream.running -= ended.groups;
  stream.held -= ended.groups;
  free_ += ended.groups;
  if (!last) return;
  if (stream.owner.has_value()) {
    EndKernel(stream);
    return;
  }
  PopCommand(stream);
  stream.ready = now_;
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
    for (StreamId id : live_) {  // a stream's head may become eligible before
      const Stream& s = At(id);
      if (s.kept && VeryLateFrom(s) > now_ && VeryLateFrom(s) < next) {
        next = VeryLateFrom(s);  // see Widen()
        index = running_.size();
      }
      if (s.items.empty() || s.started || s.blocked || s.items.front().boundary) continue;
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
  std::erase_if(live_, [this](StreamId id) { return At(id).items.empty(); });
}

// SMs that all waves of a command hold together, that is, its number of groups.
double Replay::SmsOf(const Command& command) const {
  return std::max(1.0, std::round(static_cast<double>(command.footprint) * sm_count_));
}

// SMs that a command holds while it is not in its last wave.
int Replay::Width(const Command& command) const {
  return static_cast<int>(std::min(SmsOf(command), 1.0 * sm_count_));
}

// Predicted SM time of a command.
double Replay::GroupTime(const Command& command) const {
  if (command.memory) return static_cast<double>(command.cost_ns);
  const double sms = SmsOf(command);
  return static_cast<double>(command.cost_ns) / std::ceil(sms / sm_count_) * sms;
}

}  // namespace gpushare::meter
