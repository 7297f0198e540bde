// SPDX-License-Identifier: Apache-2.0
#include "workload/roofline.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpushare::workload {
namespace {

constexpr double kBytes = 2;  // of a 16-bit number

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How a matrix product is cut into thread blocks.
struct Tiling {
  int64_t m, n;    // extent of a tile
  int64_t tiles;   // of all products, including parts along k
  int64_t k_part;  // extent along k of one part
  int64_t blocks_per_sm;
};

// Uses large tiles while they fill the device, then smaller ones, then parts along k: in this order the heuristics of libraries
// trade arithmetic intensity for parallelism.
Tiling Tile(const GemmShape& shape, int sms) {
  constexpr int64_t kLargest = 128, kSmallest = 16, kLeastKPart = 256;
  Tiling tiling{kLargest, kLargest, 0, shape.k, 1};
  while (tiling.m > kSmallest && tiling.m / 2 >= shape.m) tiling.m /= 2;
  while (tiling.n > kSmallest && tiling.n / 2 >= shape.n) tiling.n /= 2;
  const auto count = [&](int64_t m, int64_t n) {
    return CeilDiv(shape.m, m) * CeilDiv(shape.n, n) * shape.batch;
  };
  if (tiling.n == kLargest && count(tiling.m, tiling.n) < sms) tiling.n = 64;
  if (tiling.m == kLargest && count(tiling.m, tiling.n) < sms) tiling.m = 64;
  tiling.tiles = count(tiling.m, tiling.n);
  tiling.blocks_per_sm = tiling.m * tiling.n <= 64 * 64 ? 2 : 1;
  const int64_t parts = std::clamp<int64_t>(sms * tiling.blocks_per_sm / tiling.tiles, 1,
                                            std::max<int64_t>(1, shape.k / kLeastKPart));
  tiling.tiles *= parts;
  tiling.k_part = CeilDiv(shape.k, parts);
  return tiling;
}

}  // namespace

absl::StatusOr<GpuRates> RatesOf(std::string_view name) {
  // NVIDIA's data sheets, SXM modules: SMs, dense FP16 matrix rate, memory bandwidth.
  if (name == "h200") return GpuRates{"h200", 132, 989e12, 4.8e12};
  if (name == "h100") return GpuRates{"h100", 132, 989e12, 3.35e12};
  if (name == "a100") return GpuRates{"a100", 108, 312e12, 2.039e12};
  if (name == "v100") return GpuRates{"v100", 80, 125e12, 0.9e12};
  std::string known;
  for (const std::string& each : KnownRates()) known += (known.empty() ? "" : ", ") + each;
  return absl::NotFoundError("no peak rates for GPU '" + std::string(name.substr(0, 40)) +
                             "': known are " + known);
}

std::vector<std::string> KnownRates() { return {"h200", "h100", "a100", "v100"}; }

Roofline::Roofline(GpuRates rates, std::string label) : rates_(std::move(rates)) {
  model_.trace.set_label(std::move(label));
}

void Roofline::Gemm(std::string_view name, const GemmShape& shape) {
  const Tiling tiling = Tile(shape, rates_.sms);
  const int64_t footprint = CeilDiv(tiling.tiles, tiling.blocks_per_sm);
  // Every wave takes as long as the tiles of one SM take, whether it is full or not.
  const double waves = static_cast<double>(CeilDiv(footprint, rates_.sms));
  const double tile_flops = 2.0 * static_cast<double>(tiling.m) * static_cast<double>(tiling.n) *
                            static_cast<double>(tiling.k_part);
  const double sm_flops = rates_.matrix_flops * rates_.matrix_efficiency / rates_.sms;
  const double compute_s =
      waves * static_cast<double>(tiling.blocks_per_sm) * tile_flops / sm_flops;

  const double m = static_cast<double>(shape.m), n = static_cast<double>(shape.n);
  const double k = static_cast<double>(shape.k), batch = static_cast<double>(shape.batch);
  const double left =
      shape.input_elements > 0 ? static_cast<double>(shape.input_elements) : m * k * batch;
  model_.matrix_flops += 2 * m * n * k * batch;
  Add(name, compute_s, kBytes * (left + (k * n + m * n) * batch), footprint);
}

void Roofline::Elementwise(std::string_view name, const ElementwiseShape& shape) {
  // A block has 256 threads with 4 elements each; 8 blocks fill the 2048 threads of an SM.
  constexpr int64_t kElementsPerSm = 256 * 4 * 8;
  const double bytes =
      static_cast<double>(shape.elements) * (shape.reads + shape.writes) * shape.bytes_per_element;
  Add(name, 0, bytes, CeilDiv(shape.elements, kElementsPerSm));
}

void Roofline::Reduce(std::string_view name, const ReduceShape& shape) {
  Add(name, 0, kBytes * static_cast<double>(shape.elements) * (shape.reads + shape.writes),
      shape.blocks);
}

void Roofline::Add(std::string_view name, double compute_s, double bytes, int64_t footprint) {
  // Half of the SMs can use the memory's full bandwidth; fewer use a proportional part.
  const double drawn = std::min(1.0, 2.0 * static_cast<double>(footprint) / rates_.sms);
  const double memory_s = bytes / (rates_.bytes_per_s * rates_.memory_efficiency * drawn);
  const double duration_ns =
      std::max(compute_s, memory_s) * 1e9 + static_cast<double>(rates_.floor.count());
  if (!(duration_ns < static_cast<double>(kMaxKernelDuration.count()))) {
    status_.Update(absl::InvalidArgumentError("kernel " + std::string(name) + " of " +
                                              model_.trace.label() +
                                              " takes more than 60 s: ask for a smaller batch"));
    return;
  }
  model_.bytes += bytes;
  model_.trace.Add(name, compute_s >= memory_s ? Bound::kCompute : Bound::kMemory,
                   std::clamp<int64_t>(footprint, 1, kMaxKernelSms),
                   Nanos(std::max<int64_t>(1, std::llround(duration_ns))));
}

absl::StatusOr<ModelTrace> Roofline::Finish() && {
  if (!status_.ok()) return status_;
  return std::move(model_);
}

}  // namespace gpushare::workload
