// SPDX-License-Identifier: Apache-2.0
// Concurrency of kernels on several streams.
#include <algorithm>
#include <optional>

#include "harness/stage/calibrate/backlog.h"
#include "harness/stage/calibrate/parts.h"
#include "harness/statistics.h"

namespace gpushare::harness {
namespace {

// Two kernels on half of the SMs each: 1 if both together take as long as one, 0 if as long as one after the other.
void MeasureOverlap(const Gpu& gpu) {
  constexpr Nanos kLength = Millis(2);
  if (gpu.sms() < 2) {
    gpu.ReportWhyNot("overlap", "there is one SM");
    return gpu.ReportWhyNot("overlap_of_halves", "there is one SM");
  }
  CUstream a = gpu.NewStream(), b = gpu.NewStream();
  CUevent start = gpu.NewEvent(), other = gpu.NewEvent(), end = gpu.NewEvent();
  Backlog backlog(gpu, a, 1);
  const auto together = [&](bool both) {
    const std::optional<int> ran = backlog.Run([&](int) {
      gpu.Record(start, a);
      GPUSHARE_MUST(gpu, cuStreamWaitEvent, b, start, 0);
      gpu.SpinAlone(a, gpu.sms() / 2, kLength);
      if (both) gpu.SpinAlone(b, gpu.sms() / 2, kLength);
      gpu.Record(other, b);
      GPUSHARE_MUST(gpu, cuStreamWaitEvent, a, other, 0);
      gpu.Record(end, a);
    });
    return ran.has_value() ? std::optional<double>(gpu.ElapsedNs(start, end)) : std::nullopt;
  };
  std::vector<double> samples;
  for (int round = -1; round < 10; ++round) {
    const std::optional<double> alone = together(false), both = together(true);
    if (!alone.has_value() || !both.has_value()) break;
    if (round >= 0) samples.push_back((2 * *alone - *both) / *alone);
  }
  if (samples.empty()) {
    gpu.ReportWhyNot("overlap", "the stream takes too few commands");
    return gpu.ReportWhyNot("overlap_of_halves", "the stream takes too few commands");
  }
  gpu.Report("overlap_of_halves", samples);
  gpu.ReportWords("overlap", MedianOf(samples).value > 0.5 ? "footprint" : "serial");
}

// The number of one-block kernels that run at the same time: how many of many began before any ended.
void MeasureAtOnce(const Gpu& gpu) {
  constexpr Nanos kLength = Millis(4);
  constexpr int kMost = 256;
  const int n = std::min(2 * gpu.sms(), kMost);
  CUstream gate = gpu.NewStream();
  CUevent open = gpu.NewEvent();
  std::vector<CUstream> streams;
  std::vector<CUevent> ends;
  for (int i = 0; i < n; ++i) {
    streams.push_back(gpu.NewStream());
    ends.push_back(gpu.NewEvent());
  }
  Backlog backlog(gpu, gate, 1);
  std::vector<double> samples;
  for (int round = 0; round < 3; ++round) {
    const CUdeviceptr stamps = gpu.NewStamps(streams.size());
    const std::optional<int> ran = backlog.Run([&](int) {
      gpu.Record(open, gate);
      for (size_t i = 0; i < streams.size(); ++i) {
        GPUSHARE_MUST(gpu, cuStreamWaitEvent, streams[i], open, 0);
        gpu.Spin(streams[i], kLength, stamps + i * sizeof(Stamp));
        // If kernels write stamps, no events are recorded: streams that share a hardware queue would wait for them.
        if (!gpu.executes()) gpu.Record(ends[i], streams[i]);
      }
    });
    for (CUstream stream : streams) gpu.Sync(stream);
    const std::vector<Stamp> seen = gpu.ReadStamps(stamps, streams.size());
    GPUSHARE_MUST(gpu, cuMemFree, stamps);
    if (!ran.has_value()) break;
    uint64_t first_end = UINT64_MAX;
    for (const Stamp& stamp : seen) first_end = std::min(first_end, stamp.end);
    int at_once = 0;
    for (size_t i = 0; i < streams.size(); ++i) {
      const bool early = gpu.executes() ? seen[i].start < first_end
                                        : gpu.ElapsedNs(open, ends[i]) < 1.5 * InNs(kLength);
      if (early) ++at_once;
    }
    samples.push_back(at_once);
  }
  for (CUstream stream : streams) GPUSHARE_MUST(gpu, cuStreamDestroy, stream);
  if (samples.empty()) {
    return gpu.ReportWhyNot("kernels_at_once", "they were not all there before the first began");
  }
  gpu.Report("kernels_at_once", samples);
}

}  // namespace

void MeasureConcurrency(Gpu& gpu) {
  gpu.Warm();
  MeasureOverlap(gpu);
  MeasureAtOnce(gpu);
}

}  // namespace gpushare::harness
