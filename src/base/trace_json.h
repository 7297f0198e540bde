// SPDX-License-Identifier: Apache-2.0
// Events of a trace as a file for Perfetto or Chrome (docs/trace.md).
//
//   TraceJson json(started);
//   json.AddGpu(0, "NVIDIA H200");
//   json.Add(event);
//   json.Write([&](std::string_view text) { file << text; });
//
// A process is a GPU, a thread a tenant; a tenant has one for its device time, one for its leases, one
// for its waits and one for its copies, and more of a kind when several overlap, since slices of one
// thread may not. Times are microseconds since the trace began.
#ifndef GPUSHARE_BASE_TRACE_JSON_H_
#define GPUSHARE_BASE_TRACE_JSON_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/time.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::base {

class TraceJson {
 public:
  explicit TraceJson(Time started) : started_ns_(started.time_since_epoch().count()) {}

  void AddGpu(int ordinal, const std::string& name) { gpus_[ordinal] = name; }
  void Add(const gpushare_trace_event& event) { events_.push_back(event); }
  void SetLost(uint64_t lost) { lost_ = lost; }

  // In pieces, since it may be large.
  void Write(absl::FunctionRef<void(std::string_view text)> out);

 private:
  const int64_t started_ns_;
  uint64_t lost_ = 0;
  std::map<int, std::string> gpus_;
  std::vector<gpushare_trace_event> events_;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_TRACE_JSON_H_
