// SPDX-License-Identifier: Apache-2.0
#include "workload/trace.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

namespace gpushare::workload {

const char* BoundName(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kMemory:
      return "memory";
    case Bound::kUnknown:
      break;
  }
  return "unknown";
}

void KernelTrace::Add(std::string_view name, Bound bound, int64_t sms, Nanos duration) {
  assert(sms >= 1 && sms <= kMaxKernelSms);
  assert(duration >= Nanos(1) && duration <= kMaxKernelDuration);
  const auto [entry, is_new] =
      ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
  if (is_new) names_.emplace_back(name);
  kernels_.push_back({entry->second, bound, static_cast<int32_t>(sms), duration});
}

std::string FormatTrace(const KernelTrace& trace) {
  std::string text = "kernel,bound,sms,duration_ns\n";
  for (const TraceKernel& kernel : trace.kernels()) {
    const std::string& name = trace.name_of(kernel);
    // The reader removes quotes around a name, so a name that has them gets another pair.
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
      text.append("\"").append(name).append("\"");
    } else {
      text += name;
    }
    text.append(",").append(BoundName(kernel.bound));
    text.append(",").append(std::to_string(kernel.sms));
    text.append(",").append(std::to_string(kernel.duration.count())).append("\n");
  }
  return text;
}

TraceSummary Summarize(const KernelTrace& trace, int device_sms) {
  TraceSummary sums;
  std::set<std::pair<uint32_t, int32_t>> keys;
  double sm_time = 0;
  for (const TraceKernel& kernel : trace.kernels()) {
    sums.total += kernel.duration;
    sums.longest = std::max(sums.longest, kernel.duration);
    sums.widest_sms = std::max(sums.widest_sms, kernel.sms);
    sm_time += static_cast<double>(kernel.duration.count()) * std::min(kernel.sms, device_sms);
    keys.emplace(kernel.name, kernel.sms);
  }
  sums.kernels = static_cast<int64_t>(trace.kernels().size());
  sums.distinct_names = static_cast<int64_t>(trace.names().size());
  sums.distinct_keys = static_cast<int64_t>(keys.size());
  if (sums.total > Nanos(0)) sums.mean_sms = sm_time / static_cast<double>(sums.total.count());
  return sums;
}

}  // namespace gpushare::workload
