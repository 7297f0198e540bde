// SPDX-License-Identifier: Apache-2.0
// How kernels of several streams share the device: priorities, footprints, partitions.
#include <algorithm>

#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

struct Crowd {
  double block_ns;  // of the kernels in the way, each of which takes 1 ms in total
  bool high;        // the probe has the greatest priority, else the same as they
};

// The time of a 50 us kernel on half of the SMs, from the launch call until polling sees the completion. Meanwhile four streams
// together have 20 ms of kernels queued (crowd null: none).
std::vector<double> ProbeLatency(const Gpu& gpu, const Crowd* crowd) {
  std::vector<CUstream> busy;
  for (int i = 0; i < 4; ++i) busy.push_back(gpu.NewStream(gpu.least_priority));
  CUstream probe =
      gpu.NewStream(crowd == nullptr || crowd->high ? gpu.greatest_priority : gpu.least_priority);
  CUevent done = gpu.NewEvent(false);
  std::vector<double> samples;
  for (int i = -2; i < 30; ++i) {
    const int waves = crowd == nullptr ? 0 : static_cast<int>(kNsPerMs / crowd->block_ns);
    for (size_t k = 0; crowd != nullptr && k < 20; ++k) {
      gpu.Spin(busy[k % busy.size()], gpu.sms * waves, crowd->block_ns, 0, kNsPerMs);
    }
    // Each time at another moment of the running kernel.
    gpu.PollUntil(Now() + 2'000'000 + (i + 2) * 137'000, busy[0]);
    const int64_t before = Now();
    gpu.Spin(probe, std::max(gpu.sms / 2, 1), 50 * kNsPerUs);
    gpu.Record(done, probe);
    gpu.Poll(done);
    if (i >= 0) samples.push_back(static_cast<double>(Now() - before));
    for (CUstream stream : busy) gpu.Sync(stream);
  }
  for (CUstream stream : busy) MUST(gpu.cu, cuStreamDestroy, stream);
  MUST(gpu.cu, cuStreamDestroy, probe);
  return samples;
}

// The time from a common start until both streams have completed the launches of `launch_a` and `launch_b`.
template <class LaunchA, class LaunchB>
double TogetherNs(const Gpu& gpu, CUstream a, CUstream b, LaunchA launch_a, LaunchB launch_b) {
  static CUevent start = gpu.NewEvent(), end = gpu.NewEvent(), other = gpu.NewEvent(false);
  gpu.Spin(a, 1, 0.5 * kNsPerMs);
  gpu.Record(start, a);
  MUST(gpu.cu, cuStreamWaitEvent, b, start, 0u);
  launch_a();
  launch_b();
  gpu.Record(other, b);
  MUST(gpu.cu, cuStreamWaitEvent, a, other, 0u);
  gpu.Record(end, a);
  gpu.Sync(a);
  return gpu.ElapsedNs(start, end);
}

// 1: two kernels on two streams take as long as one; 0: as long as one after the other.
std::vector<double> Overlap(const Gpu& gpu, int blocks, bool small) {
  constexpr double kNs = 2 * kNsPerMs;
  CUstream a = gpu.NewStream(), b = gpu.NewStream();
  const auto run = [&](CUstream stream) {
    if (small) {
      gpu.SpinSmall(stream, blocks, kNs);
    } else {
      gpu.Spin(stream, blocks, kNs);
    }
  };
  std::vector<double> samples;
  for (int i = -1; i < 12; ++i) {
    const double alone = TogetherNs(
        gpu, a, b, [&] { run(a); }, [] {});
    const double both = TogetherNs(
        gpu, a, b, [&] { run(a); }, [&] { run(b); });
    if (i >= 0) samples.push_back((2 * alone - both) / alone);
  }
  return samples;
}

}  // namespace

void MeasurePriority() {
  const Gpu gpu = OpenGpu();
  Report("probe_alone", ProbeLatency(gpu, nullptr));
  if (gpu.least_priority == gpu.greatest_priority)
    StopUnsupported("this device has one priority only");
  const Crowd long_equal{1 * kNsPerMs, false}, long_high{1 * kNsPerMs, true};
  const Crowd short_equal{50 * kNsPerUs, false}, short_high{50 * kNsPerUs, true};
  Report("probe_beside_1ms_blocks_equal", ProbeLatency(gpu, &long_equal));
  Report("probe_beside_1ms_blocks_high", ProbeLatency(gpu, &long_high));
  Report("probe_beside_50us_blocks_equal", ProbeLatency(gpu, &short_equal));
  Report("probe_beside_50us_blocks_high", ProbeLatency(gpu, &short_high));
}

void MeasureConcurrency() {
  const Gpu gpu = OpenGpu();
  Report("overlap_half_half", Overlap(gpu, gpu.sms / 2, false));
  Report("overlap_three_quarters", Overlap(gpu, gpu.sms * 3 / 4, false));
  Report("overlap_full_full", Overlap(gpu, gpu.sms, false));
  Report("overlap_small_blocks", Overlap(gpu, gpu.sms, true));
}

void MeasureGreenContexts() {
  const Gpu gpu = OpenGpu(/*warm=*/false);
  CUdevResource whole{};
  MUST(gpu.cu, cuDeviceGetDevResource, gpu.device, &whole, CU_DEV_RESOURCE_TYPE_SM);
  std::string rows;
  for (unsigned asked = 2; asked <= whole.sm.smCount; asked = asked < 8 ? asked + 2 : asked + 8) {
    std::vector<CUdevResource> groups(whole.sm.smCount);
    unsigned count = whole.sm.smCount / asked;
    CUdevResource rest{};
    if (gpu.cu.cuDevSmResourceSplitByCount == nullptr)
      StopUnsupported("no cuDevSmResourceSplitByCount");
    const CUresult result =
        gpu.cu.cuDevSmResourceSplitByCount(groups.data(), &count, &whole, &rest, 0, asked);
    rows += std::string(rows.empty() ? "" : ", ") + "{\"asked\": " + std::to_string(asked);
    if (result != CUDA_SUCCESS) {
      rows += ", \"error\": " + JsonString(ErrorName(gpu.cu, result)) + "}";
      continue;
    }
    rows += ", \"groups\": " + std::to_string(count) +
            ", \"sms\": " + std::to_string(count > 0 ? groups[0].sm.smCount : 0) + ", \"rest\": " +
            std::to_string(rest.type == CU_DEV_RESOURCE_TYPE_SM ? rest.sm.smCount : 0) + "}";
  }
  ReportJson("green_split", "[" + rows + "]");

  std::vector<double> create, destroy;
  for (int i = 0; i < 10; ++i) {
    CUdevResource half{};
    unsigned count = 1;
    MUST(gpu.cu, cuDevSmResourceSplitByCount, &half, &count, &whole, nullptr, 0u,
         whole.sm.smCount / 2);
    CUdevResourceDesc description = nullptr;
    CUgreenCtx green = nullptr;
    const int64_t before = Now();
    MUST(gpu.cu, cuDevResourceGenerateDesc, &description, &half, 1u);
    MUST(gpu.cu, cuGreenCtxCreate, &green, description, gpu.device,
         static_cast<unsigned>(CU_GREEN_CTX_DEFAULT_STREAM));
    const int64_t middle = Now();
    MUST(gpu.cu, cuGreenCtxDestroy, green);
    create.push_back(static_cast<double>(middle - before) / kNsPerMs);
    destroy.push_back(static_cast<double>(Now() - middle) / kNsPerMs);
  }
  Report("green_create", create);
  Report("green_destroy", destroy);
}

}  // namespace gpushare::facts
