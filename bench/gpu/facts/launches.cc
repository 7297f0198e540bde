// SPDX-License-Identifier: Apache-2.0
// The host cost of launches, alone and with markers, and the latency of launches.
#include <atomic>
#include <thread>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

constexpr int kBatch = 64;
constexpr int kBatches = 100;

// ns per launch, with a timing record after every `per_record`th (0: none).
std::vector<double> LaunchCost(const Gpu& gpu, CUstream stream, int per_record,
                               bool behind_kernel) {
  std::vector<CUevent> events;
  for (int i = 0; per_record > 0 && i < kBatch; i += per_record) events.push_back(gpu.NewEvent());
  std::vector<double> samples;
  for (int batch = -3; batch < kBatches; ++batch) {
    gpu.Sync(stream);
    if (behind_kernel) gpu.Spin(stream, 1, 2 * kNsPerMs);
    size_t event = 0;
    const int64_t before = Now();
    for (int i = 1; i <= kBatch; ++i) {
      gpu.Nothing(stream);
      if (per_record > 0 && i % per_record == 0) gpu.Record(events[event++], stream);
    }
    const double each = static_cast<double>(Now() - before) / kBatch;
    if (batch >= 0) samples.push_back(each);
  }
  gpu.Sync(stream);
  for (CUevent event : events) MUST(gpu.cu, cuEventDestroy, event);
  return samples;
}

CUgraphExec GraphOf(const Gpu& gpu, CUstream stream, int kernels) {
  MUST(gpu.cu, cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  for (int i = 0; i < kernels; ++i) gpu.Nothing(stream);
  CUgraph graph = nullptr;
  MUST(gpu.cu, cuStreamEndCapture, stream, &graph);
  CUgraphExec exec = nullptr;
  MUST(gpu.cu, cuGraphInstantiate, &exec, graph, 0ull);
  return exec;
}

std::vector<double> GraphLaunchCost(const Gpu& gpu, CUstream stream, int kernels) {
  CUgraphExec exec = GraphOf(gpu, stream, kernels);
  constexpr int kGraphs = 8;
  std::vector<double> samples;
  for (int batch = -3; batch < 60; ++batch) {
    gpu.Sync(stream);
    const int64_t before = Now();
    for (int i = 0; i < kGraphs; ++i) MUST(gpu.cu, cuGraphLaunch, exec, stream);
    const double each = static_cast<double>(Now() - before) / kGraphs;
    if (batch >= 0) samples.push_back(each);
  }
  gpu.Sync(stream);
  return samples;
}

// How many launches a stream takes before the call waits for the device.
void MeasureQueueDepth(const Gpu& gpu, CUstream stream) {
  constexpr int kMost = 20'000;
  constexpr double kHeadNs = 400 * kNsPerMs;
  gpu.Sync(stream);
  gpu.Spin(stream, 1, kHeadNs);
  int depth = 1;
  for (; depth < kMost; ++depth) {
    const int64_t before = Now();
    gpu.Nothing(stream);
    if (static_cast<double>(Now() - before) > 20 * kNsPerMs) break;
  }
  gpu.Sync(stream);
  if (depth == kMost) {
    ReportUnsupported("launch_queue_depth", "no launch blocked among 20000 behind one kernel");
  } else {
    ReportValue("launch_queue_depth", depth);
  }
}

// The device time of each of many empty kernels in a row.
void MeasureEmptyInterval(const Gpu& gpu, CUstream stream) {
  constexpr int kKernels = 400;
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  std::vector<double> samples;
  for (int round = 0; round < 10; ++round) {
    gpu.Spin(stream, 1, 4 * kNsPerMs);  // everything is queued before the first one starts
    gpu.Record(start, stream);
    for (int i = 0; i < kKernels; ++i) gpu.Nothing(stream);
    gpu.Record(end, stream);
    gpu.Sync(stream);
    samples.push_back(gpu.ElapsedNs(start, end) / kKernels);
  }
  Report("empty_kernel_interval", samples);
}

}  // namespace

void MeasureLaunches() {
  const Gpu gpu = OpenGpu();
  CUstream stream = gpu.NewStream();
  Report("launch", LaunchCost(gpu, stream, 0, false));
  Report("launch_busy", LaunchCost(gpu, stream, 0, true));
  Report("launch_record_1", LaunchCost(gpu, stream, 1, false));
  Report("launch_record_4", LaunchCost(gpu, stream, 4, false));
  Report("launch_record_8", LaunchCost(gpu, stream, 8, false));
  Report("launch_record_64", LaunchCost(gpu, stream, 64, false));
  Report("launch_record_1_busy", LaunchCost(gpu, stream, 1, true));
  MeasureQueueDepth(gpu, stream);
  MeasureEmptyInterval(gpu, stream);
  Report("graph_launch_1", GraphLaunchCost(gpu, stream, 1));
  Report("graph_launch_20", GraphLaunchCost(gpu, stream, 20));
}

void MeasureLatency() {
  const Gpu gpu = OpenGpu();
  CUstream stream = gpu.NewStream();
  std::vector<double> round_trip;
  for (int i = -5; i < 200; ++i) {
    const int64_t before = Now();
    gpu.Nothing(stream);
    gpu.Sync(stream);
    if (i >= 0) round_trip.push_back(static_cast<double>(Now() - before));
  }
  Report("launch_sync_round_trip", round_trip);
  gpu.NeedExecution();

  void* host = nullptr;
  CUdeviceptr mapped = 0;
  MUST(gpu.cu, cuMemHostAlloc, &host, size_t{64}, static_cast<unsigned>(CU_MEMHOSTALLOC_DEVICEMAP));
  MUST(gpu.cu, cuMemHostGetDevicePointer, &mapped, host, 0u);
  auto* words = static_cast<uint32_t*>(host);
  const auto flag = [&](int i) { return std::atomic_ref<uint32_t>(words[i]); };
  uint64_t cost = 200'000, cycles = static_cast<uint64_t>(200 * kNsPerUs * gpu.cycles_per_ns);
  void* parameters[] = {&cost, &cycles, &mapped};

  std::vector<double> to_start, sync_return, seen_by_query;
  CUevent done = gpu.NewEvent();
  for (int i = -5; i < 100; ++i) {
    flag(0) = 0;
    flag(1) = 0;
    int64_t ended = 0;
    // Watches for the kernel's last write while this thread is inside the waiting call.
    std::thread watcher([&] {
      while (flag(1).load(std::memory_order_acquire) == 0) {
      }
      ended = Now();
    });
    const int64_t before = Now();
    MUST(gpu.cu, cuLaunchKernel, gpu.flags, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, parameters,
         nullptr);
    while (flag(0).load(std::memory_order_acquire) == 0) {
    }
    const int64_t started = Now();
    if (i % 2 == 0) {
      gpu.Sync(stream);
    } else {
      gpu.Record(done, stream);
      gpu.Poll(done);
    }
    const int64_t returned = Now();
    watcher.join();
    if (i < 0) continue;
    to_start.push_back(static_cast<double>(started - before));
    (i % 2 == 0 ? sync_return : seen_by_query).push_back(static_cast<double>(returned - ended));
  }
  Report("launch_to_start", to_start);
  Report("sync_return", sync_return);
  Report("query_sees_end", seen_by_query);
}

}  // namespace gpushare::facts
