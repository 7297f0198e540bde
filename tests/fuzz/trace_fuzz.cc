// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a kernel trace: the result is a trace or an error, and an accepted trace reads back as the same
// kernels.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "workload/gzip.h"
#include "workload/spin.h"
#include "workload/trace.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

void CheckOne(std::string_view text) {
  using namespace gpushare::workload;  // NOLINT(google-build-using-namespace)
  const auto trace = ParseTrace(text, "fuzz");
  if (!trace.ok()) {
    Require(!trace.status().message().empty());
    return;
  }
  Require(!trace->empty());
  const auto again = ParseTrace(FormatTrace(*trace), "again");
  Require(again.ok());
  Require(again->names() == trace->names());
  Require(again->kernels().size() == trace->kernels().size());
  for (size_t i = 0; i < trace->kernels().size(); ++i) {
    const TraceKernel &a = trace->kernels()[i], &b = again->kernels()[i];
    Require(a.name == b.name && a.bound == b.bound && a.sms == b.sms && a.duration == b.duration);
    const SpinLaunch launch = SpinLaunchOf(a, {.sms = 132, .shared_per_sm = 228 << 10});
    Require(launch.grid >= 1 && launch.block_ns >= 1 && launch.block_ns <= launch.duration_ns);
  }
  (void)MakeSpinModule(*trace);
}

// Compressed text expands to itself; other bytes expand to no more than is allowed.
void CheckGzip(std::string_view text) {
  using namespace gpushare::workload;  // NOLINT(google-build-using-namespace)
  constexpr size_t kMost = 1 << 16;
  const auto expanded = Gunzip(text, kMost);
  Require(!expanded.ok() || expanded->size() <= kMost);
  const auto small = Gzip(text);
  if (absl::IsUnimplemented(small.status())) return;
  Require(small.ok());
  const auto same = Gunzip(*small, text.size());
  Require(same.ok() && *same == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  CheckOne(text);
  // Most random bytes fail at the header; behind a valid header the same bytes get further.
  CheckOne("kernel,bound,sms,duration_ns\n" + std::string(text));
  CheckGzip(text);
  return 0;
}
