// SPDX-License-Identifier: Apache-2.0
// The effect of event records on a stream, and the accuracy of the times that they give.
#include <algorithm>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

enum class Between { kNothing, kTimed, kPlain };

// ns per kernel for `kernels` kernels in a row, with the requested record after each. Everything is queued before the first one
// starts, so the host's time does not count.
double NsAKernel(const Gpu& gpu, CUstream stream, int kernels, Between between,
                 const std::vector<CUevent>& timed, const std::vector<CUevent>& plain,
                 CUevent start, CUevent end) {
  gpu.Spin(stream, 1, 4 * kNsPerMs);
  gpu.Record(start, stream);
  for (int i = 0; i < kernels; ++i) {
    gpu.Spin(stream, gpu.sms, 10 * kNsPerUs);
    if (between == Between::kTimed) gpu.Record(timed[static_cast<size_t>(i)], stream);
    if (between == Between::kPlain) gpu.Record(plain[static_cast<size_t>(i)], stream);
  }
  gpu.Record(end, stream);
  gpu.Sync(stream);
  return gpu.ElapsedNs(start, end) / kernels;
}

struct Marker {
  CUevent event;
  size_t last_kernel;  // index of its stamp
};

// Records sparse end markers on `streams` backlogged streams. Returns how much later than the end of its kernel each marker's
// time is, relative to a marker on an idle device.
std::vector<double> MarkerLags(const Gpu& gpu, size_t streams) {
  constexpr size_t kGrants = 50, kKernels = 4;
  const size_t all = 1 + streams * kGrants * kKernels;
  CUdeviceptr stamps = gpu.NewStamps(all);
  const auto stamp = [&](size_t i) { return stamps + i * sizeof(Stamp); };
  std::vector<CUstream> stream;
  for (size_t s = 0; s < streams; ++s) stream.push_back(gpu.NewStream());
  CUevent reference = gpu.NewEvent(), gate = gpu.NewEvent(false);
  gpu.Spin(stream[0], gpu.sms, 14 * kNsPerUs, stamp(0));
  gpu.Record(reference, stream[0]);
  gpu.Spin(stream[0], 1, 5 * kNsPerMs);
  gpu.Record(gate, stream[0]);
  for (size_t s = 1; s < streams; ++s) MUST(gpu.cu, cuStreamWaitEvent, stream[s], gate, 0u);

  std::vector<Marker> markers;
  size_t next = 1;
  for (size_t grant = 0; grant < kGrants; ++grant) {
    for (size_t s = 0; s < streams; ++s) {
      for (size_t k = 0; k < kKernels; ++k) {
        gpu.Spin(stream[s], gpu.sms, 14 * kNsPerUs, stamp(next++));
      }
      markers.push_back({gpu.NewEvent(), next - 1});
      gpu.Record(markers.back().event, stream[s]);
    }
  }
  for (CUstream s : stream) gpu.Sync(s);
  const std::vector<Stamp> seen = gpu.ReadStamps(stamps, all);
  std::vector<double> lags;
  for (const Marker& marker : markers) {
    const double by_marker = gpu.ElapsedNs(reference, marker.event);
    const double by_kernel = static_cast<double>(seen[marker.last_kernel].end - seen[0].end);
    lags.push_back(by_marker - by_kernel);
  }
  return lags;
}

// Two backlogged streams: kernels of 14 us with a marker after every eighth, and kernels of 200 us with a marker after each.
// Device time is attributed by giving each interval between markers to the marker that completed. Returns, in percentage
// points, the error of the short kernels' share against the kernels' own times.
double SerialAttributionError(const Gpu& gpu) {
  constexpr size_t kShort = 400, kShortGrant = 8, kLong = 30, kTrials = 1 + kShort + kLong;
  CUdeviceptr stamps = gpu.NewStamps(kTrials);
  const auto stamp = [&](size_t i) { return stamps + i * sizeof(Stamp); };
  CUstream a = gpu.NewStream(), b = gpu.NewStream();
  CUevent start = gpu.NewEvent();
  gpu.Spin(a, 1, 8 * kNsPerMs, stamp(0));
  gpu.Record(start, a);
  MUST(gpu.cu, cuStreamWaitEvent, b, start, 0u);

  struct Completion {
    CUevent event;
    bool is_short;
    double when;
  };
  std::vector<Completion> markers;
  for (size_t i = 0; i < kLong; ++i) {
    gpu.Spin(b, gpu.sms, 200 * kNsPerUs, stamp(1 + kShort + i));
    markers.push_back({gpu.NewEvent(), false, 0});
    gpu.Record(markers.back().event, b);
  }
  for (size_t i = 0; i < kShort; ++i) {
    gpu.Spin(a, gpu.sms, 14 * kNsPerUs, stamp(1 + i));
    if ((i + 1) % kShortGrant != 0) continue;
    markers.push_back({gpu.NewEvent(), true, 0});
    gpu.Record(markers.back().event, a);
  }
  gpu.Sync(a);
  gpu.Sync(b);
  for (Completion& marker : markers) marker.when = gpu.ElapsedNs(start, marker.event);
  std::sort(markers.begin(), markers.end(),
            [](const Completion& x, const Completion& y) { return x.when < y.when; });
  // Only while both streams have work.
  double last_short = 0, last_long = 0;
  for (const Completion& marker : markers) (marker.is_short ? last_short : last_long) = marker.when;
  const double until = std::min(last_short, last_long);
  double before = 0, by_marker[2] = {};
  for (const Completion& marker : markers) {
    if (marker.when > until) break;
    by_marker[marker.is_short ? 1 : 0] += marker.when - before;
    before = marker.when;
  }
  const std::vector<Stamp> seen = gpu.ReadStamps(stamps, kTrials);
  double by_kernel[2] = {};
  for (size_t i = 1; i < kTrials; ++i) {
    const double ended = static_cast<double>(static_cast<int64_t>(seen[i].end - seen[0].end));
    if (ended <= until) by_kernel[i <= kShort ? 1 : 0] += seen[i].length();
  }
  const auto share = [](const double* of) { return 100 * of[1] / (of[0] + of[1]); };
  return share(by_marker) - share(by_kernel);
}

}  // namespace

void MeasureRecordBubble() {
  const Gpu gpu = OpenGpu();
  constexpr int kKernels = 200;
  CUstream stream = gpu.NewStream();
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  std::vector<CUevent> timed, plain;
  for (int i = 0; i < kKernels; ++i) {
    timed.push_back(gpu.NewEvent(true));
    plain.push_back(gpu.NewEvent(false));
  }
  std::vector<double> bubble_timed, bubble_plain, gap;
  for (int round = -1; round < 15; ++round) {
    const double bare =
        NsAKernel(gpu, stream, kKernels, Between::kNothing, timed, plain, start, end);
    const double with_timed =
        NsAKernel(gpu, stream, kKernels, Between::kTimed, timed, plain, start, end);
    const double with_plain =
        NsAKernel(gpu, stream, kKernels, Between::kPlain, timed, plain, start, end);
    if (round < 0) continue;
    bubble_timed.push_back(with_timed - bare);
    bubble_plain.push_back(with_plain - bare);
    gap.push_back(bare - 10 * kNsPerUs);
  }
  Report("record_bubble_timing", bubble_timed);
  Report("record_bubble_plain", bubble_plain);
  Report("kernel_overhead_in_row", gap);
}

void MeasureMarkerBias() {
  const Gpu gpu = OpenGpu();
  gpu.NeedExecution();
  CUstream stream = gpu.NewStream();
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  for (const int kernels : {1, 10}) {
    std::vector<double> bias;
    for (int round = -2; round < 60; ++round) {
      CUdeviceptr stamps = gpu.NewStamps(1);
      gpu.Spin(stream, 1, 0.5 * kNsPerMs);
      gpu.Record(start, stream);
      // One stamp for all: the first start and the last end.
      for (int i = 0; i < kernels; ++i) gpu.Spin(stream, gpu.sms, 50 * kNsPerUs, stamps);
      gpu.Record(end, stream);
      gpu.Sync(stream);
      const Stamp seen = gpu.ReadStamps(stamps, 1)[0];
      if (round >= 0) bias.push_back(gpu.ElapsedNs(start, end) - seen.length());
      MUST(gpu.cu, cuMemFree, stamps);
    }
    Report(kernels == 1 ? "event_pair_bias_1" : "event_pair_bias_10", bias);
  }
  std::vector<double> one, two;
  for (int round = 0; round < 4; ++round) {
    for (const double lag : MarkerLags(gpu, 1)) one.push_back(lag);
    for (const double lag : MarkerLags(gpu, 2)) two.push_back(lag);
  }
  Report("marker_lag_one_stream", one);
  Report("marker_lag_two_streams", two);
  std::vector<double> errors;
  for (int round = 0; round < 10; ++round) errors.push_back(SerialAttributionError(gpu));
  Report("serial_attribution_error", errors);
}

}  // namespace gpushare::facts
