// SPDX-License-Identifier: Apache-2.0
// The host cost of the calls that the meter makes.
#include <functional>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

constexpr int kBatch = 64;  // calls timed together: reading the clock must not matter
constexpr int kBatches = 60;

// ns per call of `call(i)`, i < kBatch; `between` runs untimed before each batch.
std::vector<double> Cost(const std::function<void(int)>& call,
                         const std::function<void()>& between) {
  std::vector<double> samples;
  for (int batch = -2; batch < kBatches; ++batch) {
    between();
    const int64_t before = Now();
    for (int i = 0; i < kBatch; ++i) call(i);
    const double each = static_cast<double>(Now() - before) / kBatch;
    if (batch >= 0) samples.push_back(each);
  }
  return samples;
}

}  // namespace

void MeasureCalls() {
  const Gpu gpu = OpenGpu();
  CUstream stream = gpu.NewStream();
  std::vector<CUevent> timed, plain;
  for (int i = 0; i < kBatch; ++i) {
    timed.push_back(gpu.NewEvent(true));
    plain.push_back(gpu.NewEvent(false));
  }
  const auto at = [](const std::vector<CUevent>& events, int i) {
    return events[static_cast<size_t>(i)];
  };
  const auto drained = [&] { gpu.Sync(stream); };
  // With a kernel of 2 ms ahead, nothing completes while the batch runs.
  const auto behind_kernel = [&] {
    gpu.Sync(stream);
    gpu.Spin(stream, 1, 2 * kNsPerMs);
  };
  const auto nothing_between = [] {};

  Report("record_timing", Cost([&](int i) { gpu.Record(at(timed, i), stream); }, drained));
  Report("record_plain", Cost([&](int i) { gpu.Record(at(plain, i), stream); }, drained));
  Report("record_timing_busy",
         Cost([&](int i) { gpu.Record(at(timed, i), stream); }, behind_kernel));
  Report("query_not_ready",
         Cost([&](int i) { static_cast<void>(gpu.cu.cuEventQuery(at(timed, i))); },
              [&] {
                behind_kernel();
                for (CUevent event : timed) gpu.Record(event, stream);
              }));
  gpu.Sync(stream);
  Report("query_ready", Cost([&](int i) { static_cast<void>(gpu.cu.cuEventQuery(at(timed, i))); },
                             nothing_between));
  Report("elapsed_time",
         Cost([&](int i) { gpu.ElapsedNs(timed[0], at(timed, i)); }, nothing_between));
  Report("stream_query",
         Cost([&](int) { static_cast<void>(gpu.cu.cuStreamQuery(stream)); }, nothing_between));
  Report("stream_is_capturing", Cost(
                                    [&](int) {
                                      CUstreamCaptureStatus status{};
                                      MUST(gpu.cu, cuStreamIsCapturing, stream, &status);
                                    },
                                    nothing_between));
  Report("stream_sync_idle", Cost([&](int) { gpu.Sync(stream); }, nothing_between));
  std::vector<CUevent> fresh(kBatch);
  std::vector<double> create, destroy;
  for (int round = 0; round < 20; ++round) {
    const int64_t before = Now();
    for (CUevent& event : fresh) event = gpu.NewEvent();
    const int64_t middle = Now();
    for (CUevent event : fresh) MUST(gpu.cu, cuEventDestroy, event);
    create.push_back(static_cast<double>(middle - before) / kBatch);
    destroy.push_back(static_cast<double>(Now() - middle) / kBatch);
  }
  Report("event_create", create);
  Report("event_destroy", destroy);
  Report("mem_get_info", Cost(
                             [&](int) {
                               size_t free = 0, total = 0;
                               MUST(gpu.cu, cuMemGetInfo, &free, &total);
                             },
                             nothing_between));
  std::vector<double> pairs;
  for (int i = 0; i < 200; ++i) {
    CUdeviceptr pointer = 0;
    const int64_t before = Now();
    MUST(gpu.cu, cuMemAlloc, &pointer, size_t{1} << 20);
    MUST(gpu.cu, cuMemFree, pointer);
    pairs.push_back(static_cast<double>(Now() - before));
  }
  Report("alloc_free_1mib", pairs);
}

}  // namespace gpushare::facts
