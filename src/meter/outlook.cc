// SPDX-License-Identifier: Apache-2.0
#include "meter/outlook.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "meter/replay.h"

namespace gpushare::meter {
namespace {

constexpr double kNoEventNs = std::numeric_limits<double>::infinity();
constexpr size_t kNoLine = SIZE_MAX;
// A command that is later than predicted is assumed to end after this time.
constexpr double kSoonNs = 2'000;
// With more streams than this there is no look ahead.
constexpr size_t kMostLines = 16;

bool Begun(const Outlook::Line& line) { return line.waiting > 0 || !line.running.empty(); }

double ReadyAt(double ready, const Outlook::Command& head) {
  return std::max(ready, head.not_before);
}

}  // namespace

void Outlook::Reset(int sms, double now) {
  sms_ = sms;
  now_ = now;
  count_ = 0;
  alone_begun_ = false;
}

Outlook::Line& Outlook::Add() {
  if (count_ == lines_.size()) lines_.emplace_back();
  Line& line = lines_[count_++];
  line.kept = false;
  line.priority = line.waiting = 0;
  line.ready = line.unit = 0;
  line.running.clear();
  line.ahead.clear();
  line.ends = true;
  return line;
}

void Outlook::Begin(Course& course, const Command* extra) const {
  course.now = now_;
  course.free = sms_;
  course.extra = extra;
  course.extra_started = course.extra_done = false;
  course.extra_starts = 0;
  if (course.states.size() < count_) course.states.resize(count_);
  for (size_t i = 0; i < count_; ++i) {
    const Line& line = lines_[i];
    Course::State& state = course.states[i];
    state.ready = line.ready;
    state.running = line.running;
    state.waiting = line.waiting;
    state.unit = line.unit;
    state.started = Begun(line);
    state.next = state.done = 0;
    state.done_at = now_;
    for (const Group& group : line.running) course.free -= group.count;
  }
  course.free = std::max(course.free, 0);
  Place(course);
}

// The head of the line, if it has not begun.
const Outlook::Command* Outlook::Head(const Course& course, size_t line) const {
  const Course::State& state = course.states[line];
  if (state.started) return nullptr;
  const std::vector<Command>& ahead = lines_[line].ahead;
  if (state.next < ahead.size()) return &ahead[state.next];
  return line == 0 && state.next == ahead.size() ? course.extra : nullptr;
}

double Outlook::NextEvent(const Course& course) const {
  double next = kNoEventNs;
  for (size_t i = 0; i < count_; ++i) {
    const Course::State& state = course.states[i];
    for (const Group& group : state.running) next = std::min(next, group.end);
    const Command* head = Head(course, i);
    if (head == nullptr) continue;
    if (const double at = ReadyAt(state.ready, *head); at > course.now) next = std::min(next, at);
  }
  return next;
}

// Advances to the next event. False: there is none.
bool Outlook::Step(Course& course) const {
  const double to = NextEvent(course);
  if (to == kNoEventNs) return false;
  course.now = std::max(course.now, to);
  for (size_t i = 0; i < count_; ++i) {
    Course::State& state = course.states[i];
    if (!state.started) continue;
    std::erase_if(state.running, [&](const Group& group) {
      if (group.end > course.now) return false;
      course.free += group.count;
      return true;
    });
    if (state.waiting > 0 || !state.running.empty()) continue;
    state.started = false;
    state.ready = state.done_at = course.now;
    ++state.done;
    course.extra_done |= i == 0 && course.extra_started;
  }
  Place(course);
  return true;
}

void Outlook::Start(Course& course, size_t line, const Command& head) const {
  Course::State& state = course.states[line];
  state.ready = ReadyAt(state.ready, head);
  state.started = true;
  state.waiting = head.groups;
  state.unit = head.length / std::max(1, (head.groups + sms_ - 1) / sms_);
  if (&head == course.extra) {
    course.extra_started = true;
    course.extra_starts = course.now;
  }
  ++state.next;
}

void Outlook::Place(Course& course) const {
  for (size_t i = 0; i < count_; ++i) {
    Course::State& state = course.states[i];
    const Command* head = Head(course, i);
    if (head == nullptr || head->groups > 0 || ReadyAt(state.ready, *head) > course.now) continue;
    Start(course, i, *head);
    state.running.push_back({course.now + state.unit, 0});
  }
  while (course.free > 0) {
    size_t best = kNoLine;
    const Command* best_head = nullptr;
    double best_ready = 0;
    for (size_t i = 0; i < count_; ++i) {
      const Course::State& state = course.states[i];
      const Command* head = Head(course, i);
      if (state.started ? state.waiting == 0 : head == nullptr) continue;
      const double ready = head != nullptr ? ReadyAt(state.ready, *head) : state.ready;
      if (ready > course.now) continue;
      const int priority = lines_[i].priority;
      if (best == kNoLine || priority < lines_[best].priority ||
          (priority == lines_[best].priority && ready < best_ready)) {
        best = i;
        best_head = head;
        best_ready = ready;
      }
    }
    if (best == kNoLine) return;
    if (best_head != nullptr) Start(course, best, *best_head);
    Course::State& state = course.states[best];
    const int count = std::min(course.free, state.waiting);
    state.waiting -= count;
    course.free -= count;
    state.running.push_back({course.now + state.unit, count});
  }
}

// Whether all known work of the line is over.
bool Outlook::Over(const Course& course, size_t line) const {
  return !course.states[line].started && Head(course, line) == nullptr;
}

// Whether it is unknown what some kept line does now.
bool Outlook::Lost(const Course& course) const {
  for (size_t i = 0; i < count_; ++i) {
    if (lines_[i].kept && !lines_[i].ends && Over(course, i)) return true;
  }
  return false;
}

bool Outlook::StepAlone() {
  if (!std::exchange(alone_begun_, true)) {
    if (alone_ends_.size() < count_) alone_ends_.resize(count_);
    for (size_t i = 0; i < count_; ++i) alone_ends_[i].clear();
    kept_ends_.clear();
    Begin(alone_, nullptr);
  }
  if (!Step(alone_)) return false;
  bool any = false;
  for (size_t i = 0; i < count_; ++i) {
    if (!lines_[i].kept || alone_.states[i].done == alone_ends_[i].size()) continue;
    alone_ends_[i].push_back(alone_.now);
    any = true;
  }
  if (any) kept_ends_.push_back(alone_.now);
  return true;
}

// When `commands` commands of a kept line are done if the extra command is not launched.
double Outlook::AloneDoneAt(size_t line, size_t commands) {
  while ((!alone_begun_ || alone_ends_[line].size() < commands) && StepAlone()) {
  }
  const std::vector<double>& ends = alone_ends_[line];
  return ends.empty() ? now_ : ends[std::min(commands, ends.size()) - 1];
}

Outlook::Delay Outlook::Of(const Command& command) {
  Delay delay;
  if (!lines_[0].ends) return delay;
  const auto known = [](const Line& line) {
    return line.kept && (!line.ahead.empty() || Begun(line));
  };
  // If no kept line has known work, a kept tenant has begun something that the books do not know yet.
  const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(count_);
  if (std::none_of(lines_.begin(), end, known)) return delay;
  Begin(with_, &command);
  while (!with_.extra_done) {
    if (Lost(with_) || !Step(with_)) return delay;
  }
  if (Lost(with_)) return delay;
  delay.known = true;
  delay.starts = with_.extra_starts;
  delay.ends = with_.now;
  upto_.assign(count_, 0);
  size_t begun = 0;  // kept lines with a command in progress then, whose delay counts until its end
  for (size_t i = 0; i < count_; ++i) {
    if (!known(lines_[i])) continue;
    const Course::State& state = with_.states[i];
    if (Over(with_, i)) delay.kept = std::max(delay.kept, delay.ends - state.done_at);
    if (state.started) {
      upto_[i] = state.done + 1;
      ++begun;
    } else if (state.done > 0) {
      delay.kept = std::max(delay.kept, state.done_at - AloneDoneAt(i, state.done));
    }
  }
  while (begun > 0 && Step(with_)) {
    for (size_t i = 0; i < count_; ++i) {
      const Course::State& state = with_.states[i];
      if (upto_[i] == 0 || state.done != upto_[i]) continue;
      delay.kept = std::max(delay.kept, state.done_at - AloneDoneAt(i, upto_[i]));
      upto_[i] = 0;
      --begun;
    }
  }
  return delay;
}

const std::vector<double>& Outlook::KeptEnds(double after, size_t most) {
  answer_.clear();
  for (size_t next = 0; answer_.size() < most; ++next) {
    while ((!alone_begun_ || kept_ends_.size() <= next) && StepAlone()) {
    }
    if (kept_ends_.size() <= next) break;
    if (kept_ends_[next] > after) answer_.push_back(kept_ends_[next]);
  }
  return answer_;
}

bool Replay::Look(StreamId own, absl::FunctionRef<bool(uint32_t tenant)> kept, size_t most,
                  double marker_ns, Outlook& outlook) const {
  outlook.Reset(sm_count_, now_);
  const auto is_stream = [this](StreamId id) { return !At(id).owner.has_value(); };
  if (std::count_if(live_.begin(), live_.end(), is_stream) > std::ptrdiff_t{kMostLines})
    return false;
  const auto add = [&](StreamId id) {
    const Stream& s = At(id);
    Outlook::Line& line = outlook.Add();
    line.kept = kept(s.tenant);
    line.priority = s.priority;
    line.ready = s.ready;
    bool begun = s.started;
    for (const Item& item : s.items) {
      const Command& command = item.command;
      if (!item.boundary && command.opaque) return false;
      double length = LeftNs(s, item);
      if (std::exchange(begun, false)) {
        line.waiting = s.pinned ? 0 : s.waiting;
        line.unit = s.unit_ns;
        for (const Running& r : running_) {
          if ((r.stream != id && At(r.stream).owner != id) || s.pinned) continue;
          line.running.push_back({r.end, r.groups});
        }
        if (s.pinned) line.running.push_back({now_ + kSoonNs, s.held});
        // Kernels of the graph that have not begun follow those that run.
        length = WaitingNs(s);
        if (length < 1) continue;
      }
      if (line.ahead.size() >= most || (line.kept && !item.boundary && !command.sure)) {
        line.ends = false;
        break;
      }
      if (item.boundary) {
        line.ahead.push_back({.length = marker_ns});
      } else if (item.branches != nullptr) {
        // Its kernels together, as wide as in the mean.
        line.ahead.push_back({.length = length,
                              .groups = static_cast<int>(SmsOf(command)),
                              .not_before = item.not_before});
      } else {
        const double groups = std::min(SmsOf(command), kMostWaves * sm_count_);
        line.ahead.push_back({.length = static_cast<double>(command.cost_ns),
                              .groups = command.memory ? 0 : static_cast<int>(groups),
                              .not_before = item.not_before});
      }
    }
    return true;
  };
  return add(own) && std::all_of(live_.begin(), live_.end(), [&](StreamId id) {
           return id == own || !is_stream(id) || add(id);
         });
}

}  // namespace gpushare::meter
