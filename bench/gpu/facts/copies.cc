// SPDX-License-Identifier: Apache-2.0
// Copy bandwidths, and the cost of copying in chunks.
#include "gpu.h"
#include "groups.h"

namespace gpushare::facts {
namespace {

constexpr size_t kBytes = size_t{256} << 20;

template <class Copy>
std::vector<double> Bandwidth(const Gpu& gpu, CUstream stream, size_t bytes_in_all, Copy copy) {
  CUevent start = gpu.NewEvent(), end = gpu.NewEvent();
  std::vector<double> samples;
  for (int i = -1; i < 6; ++i) {
    gpu.Record(start, stream);
    copy();
    gpu.Record(end, stream);
    gpu.Sync(stream);
    const double ns = gpu.ElapsedNs(start, end);
    if (i >= 0) samples.push_back(static_cast<double>(bytes_in_all) / ns);
  }
  return samples;
}

}  // namespace

void MeasureCopies() {
  const Gpu gpu = OpenGpu();
  CUstream stream = gpu.NewStream(), back = gpu.NewStream();
  CUdeviceptr a = 0, b = 0;
  MUST(gpu.cu, cuMemAlloc, &a, kBytes);
  MUST(gpu.cu, cuMemAlloc, &b, kBytes);
  void *out = nullptr, *in = nullptr;
  MUST(gpu.cu, cuMemHostAlloc, &out, kBytes, 0u);
  MUST(gpu.cu, cuMemHostAlloc, &in, kBytes, 0u);
  MUST(gpu.cu, cuMemsetD8, a, static_cast<unsigned char>(1), kBytes);
  MUST(gpu.cu, cuMemsetD8, b, static_cast<unsigned char>(2), kBytes);

  Report("copy_h2d", Bandwidth(gpu, stream, kBytes,
                               [&] { MUST(gpu.cu, cuMemcpyHtoDAsync, a, out, kBytes, stream); }));
  Report("copy_d2h", Bandwidth(gpu, stream, kBytes,
                               [&] { MUST(gpu.cu, cuMemcpyDtoHAsync, in, a, kBytes, stream); }));
  Report("copy_d2d", Bandwidth(gpu, stream, kBytes,
                               [&] { MUST(gpu.cu, cuMemcpyDtoDAsync, b, a, kBytes, stream); }));
  CUevent started = gpu.NewEvent(false), joined = gpu.NewEvent(false);
  Report("copy_both_ways", Bandwidth(gpu, stream, 2 * kBytes, [&] {
           gpu.Record(started, stream);
           MUST(gpu.cu, cuStreamWaitEvent, back, started, 0u);
           MUST(gpu.cu, cuMemcpyHtoDAsync, a, out, kBytes, stream);
           MUST(gpu.cu, cuMemcpyDtoHAsync, in, b, kBytes, back);
           gpu.Record(joined, back);
           MUST(gpu.cu, cuStreamWaitEvent, stream, joined, 0u);
         }));
  const auto chunked = [&](size_t chunk) {
    return Bandwidth(gpu, stream, kBytes, [&] {
      for (size_t at = 0; at < kBytes; at += chunk) {
        MUST(gpu.cu, cuMemcpyHtoDAsync, a + at, static_cast<char*>(out) + at, chunk, stream);
      }
    });
  };
  Report("copy_h2d_1mib_chunks", chunked(size_t{1} << 20));
  Report("copy_h2d_4mib_chunks", chunked(size_t{4} << 20));
  Report("copy_h2d_8mib_chunks", chunked(size_t{8} << 20));
}

}  // namespace gpushare::facts
