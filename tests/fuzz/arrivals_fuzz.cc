// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a trace of arrivals: no crash; an error names its place; and accepted times are in order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "workload/arrival_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace {

namespace workload = gpushare::workload;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void RequireGood(std::string_view text, workload::ArrivalsAs as) {
  const auto arrivals = workload::ParseArrivalTrace(text, "file", as);
  if (arrivals.ok()) {
    Require(!arrivals->empty(), "there is a request");
    Require(std::is_sorted(arrivals->begin(), arrivals->end()), "they are in order");
    Require(arrivals->front() >= gpushare::Nanos(0), "none is before the begin");
    return;
  }
  const std::string message(arrivals.status().message());
  Require(arrivals.status().code() == absl::StatusCode::kInvalidArgument, "it is InvalidArgument");
  Require(message.starts_with("file:"), "an error says where");
  Require(message.size() < 1024, "an error does not echo its input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RequireGood(text, workload::ArrivalsAs::kTimes);
  RequireGood(text, workload::ArrivalsAs::kGaps);
  return 0;
}
