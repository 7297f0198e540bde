// SPDX-License-Identifier: Apache-2.0
// What event records cost a stream, and how accurate the times are that they give.
#include <algorithm>
#include <optional>

#include "harness/stage/calibrate/backlog.h"
#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

constexpr int kRounds = 15, kMostKernels = 200;
constexpr Nanos kKernel = Micros(10), kLong = Micros(50);
constexpr char kTooFew[] = "the stream takes too few commands before a launch waits for the device";

}  // namespace

void MeasureMarkers(Gpu& gpu) {
  gpu.Warm();
  CUstream stream = gpu.NewStream();
  Backlog backlog(gpu, stream, kMostKernels);
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  std::vector<CUevent> events;
  for (int i = 0; i < kMostKernels; ++i) events.push_back(gpu.NewEvent());
  const auto event = [&](int i) { return events[static_cast<size_t>(i)]; };

  // ns per kernel over many in a row, with or without a record behind each.
  const auto in_a_row = [&](bool records) {
    return backlog.Run([&](int n) {
      gpu.Record(start, stream);
      for (int i = 0; i < n; ++i) {
        gpu.Spin(stream, kKernel);
        if (records) gpu.Record(event(i), stream);
      }
      gpu.Record(end, stream);
    });
  };
  std::vector<double> marker, gap, back_to_back;
  for (int round = -1; round < kRounds; ++round) {
    // The variant that needs more room goes first, so that both use the same number of kernels.
    const std::optional<int> with = in_a_row(true);
    if (!with.has_value()) break;
    const double marked = gpu.ElapsedNs(start, end);
    const std::optional<int> without = in_a_row(false);
    if (!without.has_value()) break;
    const double bare = gpu.ElapsedNs(start, end);
    if (round < 0 || *with != *without) continue;
    const double each = (marked - bare) / *with;
    marker.push_back(std::max(each, 0.0));
    // The final record is included once.
    gap.push_back((bare - each) / *without - InNs(kKernel));
  }
  for (int round = -1; round < kRounds; ++round) {
    const std::optional<int> n = backlog.Run([&](int count) {
      for (int i = 0; i < count; ++i) gpu.Record(event(i), stream);
    });
    if (!n.has_value() || *n < 2) break;
    const double each = gpu.ElapsedNs(event(0), event(*n - 1)) / (*n - 1);
    if (round >= 0) back_to_back.push_back(each);
  }
  if (marker.empty() || back_to_back.empty()) {
    for (const char* name : {"record_device", "kernel_gap", "record_back_to_back"}) {
      gpu.ReportWhyNot(name, kTooFew);
    }
  } else {
    gpu.Report("record_device", marker);
    gpu.Report("kernel_gap", gap);
    gpu.Report("record_back_to_back", back_to_back);
  }

  // Compares the time between two events around a kernel with its own stamps or, without stamps, with the requested length.
  std::vector<double> bias;
  for (int round = -2; round < 4 * kRounds; ++round) {
    const CUdeviceptr stamps = gpu.NewStamps(1);
    const std::optional<int> ran = backlog.Run([&](int) {
      gpu.Record(start, stream);
      gpu.SpinAlone(stream, gpu.sms(), kLong, stamps);
      gpu.Record(end, stream);
    });
    const Stamp seen = gpu.ReadStamps(stamps, 1)[0];
    GPUSHARE_MUST(gpu, cuMemFree, stamps);
    if (!ran.has_value()) break;
    const double took = gpu.executes() ? static_cast<double>(seen.end - seen.start) : InNs(kLong);
    if (round >= 0) bias.push_back(gpu.ElapsedNs(start, end) - took);
  }
  if (bias.empty()) {
    gpu.ReportWhyNot("marker_bias", kTooFew);
  } else {
    gpu.Report("marker_bias", bias);
  }
}

}  // namespace gpushare::harness
