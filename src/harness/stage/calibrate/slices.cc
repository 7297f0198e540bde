// SPDX-License-Identifier: Apache-2.0
// How the device time-slices the contexts of two processes that both have work, from markers behind short kernels: intervals that
// include the other process's turn are longer.
#include <algorithm>
#include <iterator>
#include <utility>

#include "harness/stage/calibrate/parts.h"
#include "harness/statistics.h"

namespace gpushare::harness {
namespace {

struct Turns {
  size_t pauses = 0;
  double
      on = 0,
      off =
          0;  // ns: mean length of a turn between the first and last pause; median length of a pause
};

// ns from each marker to the next, of `n` kernels.
std::vector<double> Intervals(const Gpu& gpu, CUstream stream, Nanos kernel, size_t n) {
  std::vector<CUevent> events;
  for (size_t i = 0; i <= n; ++i) events.push_back(gpu.NewEvent());
  gpu.Record(events[0], stream);
  for (size_t i = 1; i <= n; ++i) {
    gpu.Spin(stream, kernel);
    gpu.Record(events[i], stream);
  }
  gpu.Sync(stream);
  std::vector<double> intervals;
  for (size_t i = 1; i <= n; ++i) intervals.push_back(gpu.ElapsedNs(events[i - 1], events[i]));
  for (CUevent event : events) GPUSHARE_MUST(gpu, cuEventDestroy, event);
  return intervals;
}

Turns TurnsOf(const std::vector<double>& intervals) {
  const double usual = MedianOf(intervals).value;
  const double longest = 1.5 * usual + 10'000;
  Turns turns;
  double at = 0, begun = 0, off_between = 0, last = 0;
  std::vector<double> pauses;
  for (const double interval : intervals) {
    at += interval;
    if (interval <= longest) continue;
    const double off = interval - usual;
    if (pauses.empty()) {
      begun = at;
    } else {
      off_between += off;
    }
    last = at;
    pauses.push_back(off);
  }
  turns.pauses = pauses.size();
  if (turns.pauses < 2) return turns;
  // A pause ends somewhere within the kernel before a marker. For one turn that is an error; in the mean it cancels out. Each pause
  // lies within one interval.
  turns.on = (last - begun - off_between) / static_cast<double>(turns.pauses - 1);
  turns.off = MedianOf(std::move(pauses)).value;
  return turns;
}

}  // namespace

void MeasureSlices(Gpu& gpu, Meeting& meeting, int seat) {
  constexpr size_t kFewest = 8;  // pauses
  gpu.Warm();
  CUstream stream = gpu.NewStream();
  meeting.Arrive();
  meeting.AwaitBoth(gpu.clock(), Micros(200));
  Turns turns;
  // Seat 0 decides for both whether to look for longer turns. Until then the other waits without work.
  struct {
    Nanos kernel;
    size_t n;
  } const kTries[] = {{Micros(50), 4000}, {Micros(400), 4000}};
  for (uint32_t i = 0; i < std::size(kTries); ++i) {
    turns = TurnsOf(Intervals(gpu, stream, kTries[i].kernel, kTries[i].n));
    if (i + 1 == std::size(kTries)) break;
    const bool enough = turns.pauses >= kFewest;
    if (seat == 0) {
      meeting.Say(enough ? 1 : 2);
      if (enough) break;
    } else {
      meeting.Await(gpu.clock(), 1, Micros(200));
      if (meeting.stage() == 1) break;
    }
  }
  if (seat != 0) return;
  if (turns.pauses < kFewest) {
    const char* const why = turns.pauses == 0 ? "the two processes did not take turns"
                                              : "the two processes took too few turns to tell";
    gpu.ReportWhyNot("slice", why);
    gpu.ReportWhyNot("slice_switch", why);
    return gpu.ReportWhyNot("slice_off", why);
  }
  gpu.Report("slice", {turns.on});
  gpu.Report("slice_off", {turns.off});
  // A pause consists of a switch, the other's turn (as long as an own one), and a switch back.
  gpu.Report("slice_switch", {std::max(turns.off - turns.on, 0.0) / 2});
}

}  // namespace gpushare::harness
