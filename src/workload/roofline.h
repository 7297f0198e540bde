// SPDX-License-Identifier: Apache-2.0
// The roofline model: computes how long a layer's kernels take on a GPU, and how many of its SMs they can occupy, from only the
// layer's shape and the GPU's peak rates. docs/workloads.md has the formulas and the sources of the constants.
//
//   GPUSHARE_ASSIGN_OR_RETURN(GpuRates rates, RatesOf("h200"));
//   Roofline roofline(rates, "one layer");
//   roofline.Gemm("qkv", {.m = 4096, .n = 2304, .k = 768});
//   roofline.Elementwise("gelu", {.elements = 4096 * 3072, .reads = 1, .writes = 1});
//   GPUSHARE_ASSIGN_OR_RETURN(ModelTrace model, std::move(roofline).Finish());
//
// Deterministic. Numbers have 16 bits unless stated otherwise. A Roofline is not thread-safe; the other types are values.
#ifndef GPUSHARE_WORKLOAD_ROOFLINE_H_
#define GPUSHARE_WORKLOAD_ROOFLINE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/time.h"
#include "workload/trace.h"

namespace gpushare::workload {

// A GPU's peak rates, and the part of them that well-written kernels reach.
struct GpuRates {
  std::string name;
  int sms = 132;
  double matrix_flops = 989e12;  // per second, 16-bit matrix units, dense
  double bytes_per_s = 4.8e12;   // device memory
  double matrix_efficiency = 0.6;
  double memory_efficiency = 0.8;
  Nanos floor{1'500};  // the duration of an empty kernel
};

// "h200", "h100", "a100", "v100". NotFound for others; its message lists these.
absl::StatusOr<GpuRates> RatesOf(std::string_view name);
std::vector<std::string> KnownRates();

// A network's kernels, and the work in them according to the layers' shapes (two operations per multiply-add).
struct ModelTrace {
  KernelTrace trace;
  double matrix_flops = 0;  // of matrix products and convolutions, without padding to tiles
  double bytes = 0;  // of device memory, every kernel reading its inputs and writing its outputs
};

struct GemmShape {
  int64_t m = 1, n = 1, k = 1;
  int64_t batch = 1;           // independent products in one kernel
  int64_t input_elements = 0;  // elements of the left operand in memory; 0: m * k * batch
};

struct ElementwiseShape {
  int64_t elements = 1;
  int reads = 1, writes = 1;  // arrays with that many elements
  int bytes_per_element = 2;
};

struct ReduceShape {
  int64_t blocks = 1;         // independent results: one thread block each, one block per SM
  int64_t elements = 1;       // in total
  int reads = 1, writes = 0;  // arrays with that many elements
};

class Roofline {
 public:
  Roofline(GpuRates rates, std::string label);

  void Gemm(std::string_view name, const GemmShape& shape);
  void Elementwise(std::string_view name, const ElementwiseShape& shape);
  void Reduce(std::string_view name, const ReduceShape& shape);

  // InvalidArgument when a kernel is longer than a trace allows.
  absl::StatusOr<ModelTrace> Finish() &&;

 private:
  void Add(std::string_view name, double compute_s, double bytes, int64_t footprint);

  const GpuRates rates_;
  ModelTrace model_;
  absl::Status status_;
};

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_ROOFLINE_H_
