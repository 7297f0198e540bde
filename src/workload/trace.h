// SPDX-License-Identifier: Apache-2.0
// A kernel trace: the kernels that one iteration of a program launches, in order.
//
//   GPUSHARE_ASSIGN_OR_RETURN(KernelTrace trace, ReadTraceFile("resnet50.csv"));
//   TraceSummary sums = Summarize(trace);
//   // sums.total is the device time of one iteration that runs alone.
//
// The text form is CSV with the header `kernel,bound,sms,duration_ns` and one kernel per line:
//
//   kernel        the profiler's name for it, 1 to 1024 bytes of UTF-8. It may contain commas: the
//                 last three fields are taken from the right. Surrounding double quotes are
//                 removed.
//   bound         compute | memory | unknown
//   sms           footprint, 1 to 1000000: streaming multiprocessors that the kernel could occupy
//                 (blocks divided by blocks per SM; more than the device has means waves)
//   duration_ns   device time when alone, 1 to 60000000000 (60 s)
//
// Lines end in LF or CRLF. A file may be compressed with gzip, whatever its name. It has at most 1000000 kernels. Anything else
// is InvalidArgument "<file>:<line>: <field> ...: allowed ...". Files come from outside, and no content makes a reader crash.
//
// Threads: a KernelTrace is a value; the functions are pure.
#ifndef GPUSHARE_WORKLOAD_TRACE_H_
#define GPUSHARE_WORKLOAD_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::workload {

inline constexpr int64_t kMaxTraceKernels = 1'000'000;
inline constexpr int64_t kMaxKernelSms = 1'000'000;
inline constexpr Nanos kMaxKernelDuration = Seconds(60);
inline constexpr size_t kMaxKernelNameBytes = 1024;

// What limits a kernel, according to the profiler.
enum class Bound : uint8_t { kUnknown, kCompute, kMemory };

// "compute", "memory", "unknown".
const char* BoundName(Bound bound);

struct TraceKernel {
  uint32_t name;  // index into KernelTrace::names()
  Bound bound;
  int32_t sms;     // footprint
  Nanos duration;  // alone on the device
};

class KernelTrace {
 public:
  KernelTrace() = default;
  explicit KernelTrace(std::string label) : label_(std::move(label)) {}

  // The trace's name in tables: a file's name or a generator's arguments.
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<TraceKernel>& kernels() const { return kernels_; }
  const std::string& name_of(const TraceKernel& kernel) const { return names_[kernel.name]; }
  bool empty() const { return kernels_.empty(); }

  // Appends a kernel. The values must be within the ranges above (checked in ParseTrace, asserted
  // here).
  void Add(std::string_view name, Bound bound, int64_t sms, Nanos duration);

 private:
  std::string label_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<TraceKernel> kernels_;
};

// Parses the text form. `label` names the text in errors and becomes the trace's label.
absl::StatusOr<KernelTrace> ParseTrace(std::string_view text, const std::string& label);

// Reads a file in the text form. NotFound or PermissionDenied when it cannot be opened. The label is the file's name without
// folder and extension (and `.gz`); errors contain the path as given.
absl::StatusOr<KernelTrace> ReadTraceFile(const std::string& path);

// The text form of `trace`; ParseTrace() of it gives the same kernels.
std::string FormatTrace(const KernelTrace& trace);

struct TraceSummary {
  int64_t kernels = 0;
  int64_t distinct_names = 0;
  int64_t distinct_keys = 0;  // (name, footprint): what is known of a kernel at its launch
  Nanos total{0};             // sum of durations
  Nanos longest{0};
  int32_t widest_sms = 0;
  // Mean footprint weighted by duration; a footprint beyond `device_sms` counts as `device_sms`.
  double mean_sms = 0;
};

TraceSummary Summarize(const KernelTrace& trace, int device_sms = INT32_MAX);

}  // namespace gpushare::workload

#endif  // GPUSHARE_WORKLOAD_TRACE_H_
