// SPDX-License-Identifier: Apache-2.0
#include "meter/outlook.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "meter/replay.h"

namespace gpushare::meter {
namespace {

constexpr double kNoEventNs = std::numeric_limits<double>::infinity();
constexpr size_t kNoLine = SIZE_MAX;
// What is later than predicted is taken to end so soon.
constexpr double kSoonNs = 2'000;
// Of more streams it is not asked.
constexpr size_t kMostLines = 16;

}  // namespace

// How things go on from now, with one command more or without.
struct Outlook::Course {
  struct State {
    double ready = 0;
    std::vector<Group> running;
    int waiting = 0;
    double unit = 0;
    bool started = false;
    size_t next = 0;     // of `ahead`: the head, or what comes behind it
    size_t done = 0;     // commands
    double done_at = 0;  // the last of them
  };

  Course(const Outlook& outlook, size_t extra_line, const Command* extra_command)
      : of(outlook),
        now(outlook.now_),
        free(outlook.sms_),
        extra_at(extra_line),
        extra(extra_command),
        states(outlook.lines_.size()) {
    for (size_t i = 0; i < states.size(); ++i) {
      const Line& line = of.lines_[i];
      states[i] = {.ready = line.ready,
                   .running = line.running,
                   .waiting = line.waiting,
                   .unit = line.unit,
                   .started = Begun(line),
                   .done_at = now};
      for (const Group& group : line.running) free -= group.count;
    }
    free = std::max(free, 0);
    Place();
  }

  static bool Begun(const Line& line) { return line.waiting > 0 || !line.running.empty(); }

  // Its head, if that has not begun.
  const Command* Head(size_t i) const {
    if (states[i].started) return nullptr;
    const std::vector<Command>& ahead = of.lines_[i].ahead;
    const size_t next = states[i].next;
    if (next < ahead.size()) return &ahead[next];
    return i == extra_at && next == ahead.size() ? extra : nullptr;
  }
  double ReadyAt(size_t i, const Command& head) const {
    return std::max(states[i].ready, head.not_before);
  }

  double NextEvent() const {
    double next = kNoEventNs;
    for (size_t i = 0; i < states.size(); ++i) {
      for (const Group& group : states[i].running) next = std::min(next, group.end);
      const Command* head = Head(i);
      if (head == nullptr) continue;
      if (const double at = ReadyAt(i, *head); at > now) next = std::min(next, at);
    }
    return next;
  }

  // Goes on to the next event. False: there is none.
  bool Step() {
    const double to = NextEvent();
    if (to == kNoEventNs) return false;
    now = std::max(now, to);
    for (size_t i = 0; i < states.size(); ++i) {
      State& state = states[i];
      std::erase_if(state.running, [&](const Group& group) {
        if (group.end > now) return false;
        free += group.count;
        return true;
      });
      if (!state.started || state.waiting > 0 || !state.running.empty()) continue;
      state.started = false;
      state.ready = state.done_at = now;
      ++state.done;
      extra_done |= i == extra_at && extra_started;
    }
    Place();
    return true;
  }

  void Begin(size_t i, const Command& head) {
    State& state = states[i];
    state.ready = ReadyAt(i, head);
    state.started = true;
    state.waiting = head.groups;
    state.unit = head.length / std::max(1, (head.groups + of.sms_ - 1) / of.sms_);
    if (&head == extra) {
      extra_started = true;
      extra_starts = now;
    }
    ++state.next;
  }

  void Place() {
    for (size_t i = 0; i < states.size(); ++i) {
      const Command* head = Head(i);
      if (head == nullptr || head->groups > 0 || ReadyAt(i, *head) > now) continue;
      Begin(i, *head);
      states[i].running.push_back({now + states[i].unit, 0});
    }
    while (free > 0) {
      size_t best = kNoLine;
      double best_ready = 0;
      for (size_t i = 0; i < states.size(); ++i) {
        const Command* head = Head(i);
        if (states[i].started ? states[i].waiting == 0 : head == nullptr) continue;
        const double ready = head != nullptr ? ReadyAt(i, *head) : states[i].ready;
        if (ready > now) continue;
        const int priority = of.lines_[i].priority;
        if (best == kNoLine || priority < of.lines_[best].priority ||
            (priority == of.lines_[best].priority && ready < best_ready)) {
          best = i;
          best_ready = ready;
        }
      }
      if (best == kNoLine) return;
      if (const Command* head = Head(best); head != nullptr) Begin(best, *head);
      State& state = states[best];
      const int count = std::min(free, state.waiting);
      state.waiting -= count;
      free -= count;
      state.running.push_back({now + state.unit, count});
    }
  }

  // All that is known of it is over.
  bool Over(size_t i) const { return !states[i].started && Head(i) == nullptr; }

  const Outlook& of;
  double now;
  int free;
  size_t extra_at;
  const Command* extra;
  bool extra_started = false, extra_done = false;
  double extra_starts = 0;
  std::vector<State> states;
};

Outlook::Delay Outlook::Of(const Command& command, size_t line) const {
  Delay delay;
  if (!lines_[line].ends) return delay;
  const auto known = [&](const Line& l) {
    return l.kept && (!l.ahead.empty() || Course::Begun(l));
  };
  // It has begun something of which the books do not know yet what it is.
  if (std::none_of(lines_.begin(), lines_.end(), known)) return delay;
  Course with(*this, line, &command);
  const auto lost = [&] {
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].kept && !lines_[i].ends && with.Over(i)) return true;
    }
    return false;
  };
  while (!with.extra_done) {
    if (lost() || !with.Step()) return delay;
  }
  if (lost()) return delay;
  delay.known = true;
  delay.starts = with.extra_starts;
  delay.ends = with.now;
  const Course without(*this, kNoLine, nullptr);
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (!known(lines_[i])) continue;
    if (with.Over(i)) delay.kept = std::max(delay.kept, delay.ends - with.states[i].done_at);
    // To the end of what it has begun by then.
    const size_t upto = with.states[i].done + (with.states[i].started ? 1 : 0);
    if (upto == 0) continue;
    const auto done_at = [&](Course course) {
      while (course.states[i].done < upto && course.Step()) {
      }
      return course.states[i].done_at;
    };
    delay.kept = std::max(delay.kept, done_at(with) - done_at(without));
  }
  return delay;
}

std::vector<double> Outlook::KeptEnds(double after, size_t most) const {
  std::vector<double> ends;
  Course course(*this, kNoLine, nullptr);
  const auto done = [&] {
    size_t all = 0;
    for (size_t i = 0; i < lines_.size(); ++i) all += lines_[i].kept ? course.states[i].done : 0;
    return all;
  };
  size_t before = done();
  while (ends.size() < most && course.Step()) {
    const size_t now_done = done();
    if (now_done > before && course.now > after) ends.push_back(course.now);
    before = now_done;
  }
  return ends;
}

std::optional<Outlook> Replay::Look(StreamId own, absl::FunctionRef<bool(uint32_t tenant)> kept,
                                    size_t most, double marker_ns) const {
  Outlook outlook(sm_count_, now_);
  if (live_.size() > kMostLines) return std::nullopt;
  const auto add = [&](StreamId id) {
    const Stream& s = streams_[id];
    Outlook::Line line{.kept = kept(s.tenant), .priority = s.priority, .ready = s.ready};
    bool begun = s.started;
    for (const Item& item : s.items) {
      const Command& command = item.command;
      if (!item.boundary && command.opaque) return false;
      if (std::exchange(begun, false)) {
        line.waiting = s.pinned ? 0 : s.waiting;
        line.unit = s.unit_ns;
        for (const Running& r : running_) {
          if (r.stream != id || s.pinned) continue;
          line.running.push_back({r.end, r.groups});
        }
        if (s.pinned) line.running.push_back({now_ + kSoonNs, s.held});
        continue;
      }
      if (line.ahead.size() >= most || (line.kept && !item.boundary && !command.sure)) {
        line.ends = false;
        break;
      }
      if (item.boundary) {
        line.ahead.push_back({.length = marker_ns});
      } else {
        const double groups = std::min(SmsOf(command), kMostWaves * sm_count_);
        line.ahead.push_back({.length = static_cast<double>(command.cost_ns),
                              .groups = command.memory ? 0 : static_cast<int>(groups),
                              .not_before = item.not_before});
      }
    }
    outlook.Add(std::move(line));
    return true;
  };
  if (!add(own)) return std::nullopt;
  for (const StreamId id : live_) {
    if (id != own && !add(id)) return std::nullopt;
  }
  return outlook;
}

}  // namespace gpushare::meter
