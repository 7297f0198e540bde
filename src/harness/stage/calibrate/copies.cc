// SPDX-License-Identifier: Apache-2.0
// Copy bandwidths of page-locked memory, from the difference between large and small copies, which excludes fixed costs.
#include <algorithm>

#include "harness/stage/calibrate/parts.h"

namespace gpushare::harness {
namespace {

constexpr size_t kMib = size_t{1} << 20;

class Copies {
 public:
  Copies(const Gpu& gpu, size_t large) : gpu_(gpu), large_(large), stream_(gpu.NewStream()) {
    GPUSHARE_MUST(gpu_, cuMemAlloc, &to_, large_);
    GPUSHARE_MUST(gpu_, cuMemAlloc, &from_, large_);
    GPUSHARE_MUST(gpu_, cuMemHostAlloc, &host_, large_, 0);
  }
  ~Copies() {
    gpu_.cu().cuMemFree(to_);
    gpu_.cu().cuMemFree(from_);
    gpu_.cu().cuMemFreeHost(host_);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // In GB/s, which equals bytes per ns.
  template <class Copy>
  std::vector<double> Rates(Copy copy) const {
    std::vector<double> samples;
    for (int round = -1; round < 8; ++round) {
      const double more = Took(copy, large_) - Took(copy, large_ / 4);
      if (round >= 0 && more > 0) {
        samples.push_back(static_cast<double>(large_ - large_ / 4) / more);
      }
    }
    return samples;
  }
  void HostToDevice(size_t bytes) const {
    GPUSHARE_MUST(gpu_, cuMemcpyHtoDAsync, to_, host_, bytes, stream_);
  }
  void DeviceToHost(size_t bytes) const {
    GPUSHARE_MUST(gpu_, cuMemcpyDtoHAsync, host_, from_, bytes, stream_);
  }
  void DeviceToDevice(size_t bytes) const {
    GPUSHARE_MUST(gpu_, cuMemcpyDtoDAsync, to_, from_, bytes, stream_);
  }

 private:
  template <class Copy>
  double Took(Copy copy, size_t bytes) const {
    CUevent start = gpu_.NewEvent(), end = gpu_.NewEvent();
    gpu_.Spin(stream_, Micros(200));  // lets the host get ahead
    gpu_.Record(start, stream_);
    copy(bytes);
    gpu_.Record(end, stream_);
    gpu_.Sync(stream_);
    const double ns = gpu_.ElapsedNs(start, end);
    GPUSHARE_MUST(gpu_, cuEventDestroy, start);
    GPUSHARE_MUST(gpu_, cuEventDestroy, end);
    return ns;
  }

  const Gpu& gpu_;
  const size_t large_;
  CUstream stream_;
  CUdeviceptr to_ = 0, from_ = 0;
  void* host_ = nullptr;
};

}  // namespace

void MeasureCopies(Gpu& gpu) {
  gpu.Warm();
  // On the simulated GPU this machine's processor moves the bytes.
  const size_t wanted = gpu.driver().simulated() ? 16 * kMib : 256 * kMib;
  const size_t large = std::min(wanted, gpu.FreeMemory() / 4) / 4096 * 4096;
  if (large < 4096) return;
  const Copies copies(gpu, large);
  const auto report = [&](const char* name, const std::vector<double>& rates) {
    if (rates.empty()) {
      gpu.ReportWhyNot(name, "more bytes took no more time");
    } else {
      gpu.Report(name, rates);
    }
  };
  report("h2d", copies.Rates([&](size_t bytes) { copies.HostToDevice(bytes); }));
  report("d2h", copies.Rates([&](size_t bytes) { copies.DeviceToHost(bytes); }));
  report("d2d", copies.Rates([&](size_t bytes) { copies.DeviceToDevice(bytes); }));
}

}  // namespace gpushare::harness
