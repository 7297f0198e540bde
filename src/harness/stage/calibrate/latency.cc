// SPDX-License-Identifier: Apache-2.0
// The latency from a launch on an idle device to the start of its kernel, and from its end to the return of the waiting call.
#include <algorithm>
#include <atomic>

#include "harness/stage/calibrate/parts.h"
#include "harness/statistics.h"

namespace gpushare::harness {
namespace {

constexpr Nanos kKernel = Micros(50);

// Measures from the return of the launch, by a flag that the kernel writes to host-visible memory.
std::vector<double> ByFlag(const Gpu& gpu, CUstream stream) {
  void* host = nullptr;
  CUdeviceptr word = 0;
  GPUSHARE_MUST(gpu, cuMemHostAlloc, &host, 64, CU_MEMHOSTALLOC_DEVICEMAP);
  GPUSHARE_MUST(gpu, cuMemHostGetDevicePointer, &word, host, 0);
  const std::atomic_ref<uint32_t> flag(*static_cast<uint32_t*>(host));
  std::vector<double> samples;
  for (int round = -5; round < 100; ++round) {
    flag.store(0);
    gpu.Flag(stream, kKernel, word);
    const Time launched = gpu.Now();
    const Time patience = launched + Seconds(2);
    while (flag.load(std::memory_order_acquire) == 0 && gpu.Now() < patience) {
    }
    const Time started = gpu.Now();
    gpu.Sync(stream);
    if (round >= 0) samples.push_back(std::max(InNs(started - launched), 0.0));
  }
  GPUSHARE_MUST(gpu, cuMemFreeHost, host);
  return samples;
}

// For devices whose kernels do not write: measures when a kernel of known length is seen to have ended. The lengths vary in steps
// smaller than the polling interval, so that some poll comes just after an end; that one counts.
double ByEnds(const Gpu& gpu, CUstream stream) {
  constexpr int kSteps = 64, kLooks = 16;
  const Time before = gpu.Now();
  for (int i = 0; i < kLooks; ++i) GPUSHARE_MUST(gpu, cuStreamQuery, stream);
  const Nanos look = std::max(Nanos((gpu.Now() - before) / kLooks), Nanos(100));
  double least = 0;
  for (int round = 0; round < kSteps; ++round) {
    const Nanos length = kKernel + look * round / kSteps;
    gpu.Sync(stream);
    gpu.Spin(stream, length);
    const Time launched = gpu.Now();
    gpu.AwaitStream(stream);
    const double late = InNs(gpu.Now() - launched - length);
    least = round == 0 ? late : std::min(least, late);
  }
  return std::max(least, 0.0);
}

}  // namespace

void MeasureLatency(Gpu& gpu) {
  gpu.Warm();
  CUstream stream = gpu.NewStream();
  const std::vector<double> latency =
      gpu.executes() ? ByFlag(gpu, stream) : std::vector<double>{ByEnds(gpu, stream)};
  gpu.Report("launch_latency", latency);
  const double start = MedianOf(latency).value;

  std::vector<double> returns;
  for (int round = -3; round < 60; ++round) {
    const CUdeviceptr stamps = gpu.NewStamps(1);
    gpu.Spin(stream, kKernel, stamps);
    const Time launched = gpu.Now();
    gpu.Sync(stream);
    const double waited = InNs(gpu.Now() - launched);
    const Stamp seen = gpu.ReadStamps(stamps, 1)[0];
    GPUSHARE_MUST(gpu, cuMemFree, stamps);
    const double took = gpu.executes() ? static_cast<double>(seen.end - seen.start) : InNs(kKernel);
    if (round >= 0) returns.push_back(std::max(waited - start - took, 0.0));
  }
  gpu.Report("sync_return", returns);
}

}  // namespace gpushare::harness
