// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a benchmark's scenario: no crash, and an error names its place.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "harness/scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

void RequireGoodError(const absl::Status& status) {
  if (status.ok()) return;
  Require(status.code() == absl::StatusCode::kInvalidArgument, "it is InvalidArgument");
  Require(status.message().substr(0, 5) == "file:", "an error says where");
  Require(status.message().size() < 4096, "an error does not echo its input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  RequireGoodError(gpushare::harness::ParseScenario(text, "file").status());
  return 0;
}
