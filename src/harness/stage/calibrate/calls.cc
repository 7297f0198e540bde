// SPDX-License-Identifier: Apache-2.0
// Host time of calls on an idle device, and the number of launches that a stream accepts.
#include <algorithm>

#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

constexpr int kRounds = 100, kWarmUp = 3;

// ns per call, over `batch` calls in a row on an idle stream.
template <class Call>
std::vector<double> HostTime(const Gpu& gpu, CUstream stream, int batch, Call call) {
  std::vector<double> samples;
  for (int round = -kWarmUp; round < kRounds; ++round) {
    gpu.Sync(stream);
    const Time before = gpu.Now();
    for (int i = 0; i < batch; ++i) call();
    const double each = InNs(gpu.Now() - before) / batch;
    if (round >= 0) samples.push_back(each);
  }
  gpu.Sync(stream);
  return samples;
}

}  // namespace

int QueueDepth(const Gpu& gpu, CUstream stream) {
  constexpr Nanos kHead = Millis(300), kBlocked = Millis(20);
  constexpr int kMost = 20'000;
  gpu.Sync(stream);
  const Time end = gpu.Now() + kHead - 2 * kBlocked;  // later calls might not have to wait
  gpu.Spin(stream, kHead);
  int depth = 1;
  bool blocked = false;
  while (!blocked && depth < kMost && gpu.Now() < end) {
    const Time before = gpu.Now();
    gpu.Nothing(stream);
    blocked = gpu.Now() - before > kBlocked;
    if (!blocked) ++depth;
  }
  gpu.Sync(stream);
  return blocked ? depth : 0;
}

void MeasureCalls(Gpu& gpu) {
  gpu.Warm();
  CUstream stream = gpu.NewStream();
  const int depth = QueueDepth(gpu, stream);
  if (depth > 0) {
    gpu.Report("queue_depth", {static_cast<double>(depth)});
  } else {
    gpu.ReportWhyNot(
        "queue_depth",
        "no launch waited for the device, of 20000 or within 0.26 s behind one kernel");
  }
  // Few enough that no launch waits for room.
  const int batch = depth == 0 ? 16 : std::clamp(depth / 4, 1, 16);
  gpu.Report("launch_host", HostTime(gpu, stream, batch, [&] { gpu.Nothing(stream); }));
  CUevent event = gpu.NewEvent();
  gpu.Report("record_host", HostTime(gpu, stream, batch, [&] { gpu.Record(event, stream); }));
  gpu.Report("query_host", HostTime(gpu, stream, 16, [&] { gpu.IsDone(event); }));
  // Two calls each: create and destroy.
  std::vector<double> calls = HostTime(gpu, stream, 16, [&] {
    CUevent one = gpu.NewEvent();
    GPUSHARE_MUST(gpu, cuEventDestroy, one);
  });
  for (double& sample : calls) sample /= 2;
  gpu.Report("call_host", calls);
}

}  // namespace gpushare::harness
