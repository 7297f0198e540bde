// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the broker's configuration: no crash, and an error names its place.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "broker/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto require = [](bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = gpushare::broker::ParseConfig(text, "file");
  if (!config.ok()) {
    const bool not_there_yet =
        config.status().code() == absl::StatusCode::kUnimplemented;  // a parent's parent
    require(not_there_yet || config.status().code() == absl::StatusCode::kInvalidArgument,
            "it is InvalidArgument");
    require(config.status().message().substr(0, 5) == "file:", "an error says where");
    require(config.status().message().size() < 4096, "an error does not echo its input");
    return 0;
  }
  require(*config == *gpushare::broker::ParseConfig(text, "file"), "it is the same again");
  return 0;
}
