// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as the broker's answer to "list" and to "trace", and as the file for its successor: no crash, and
// accepted input survives being written and read.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "broker/json.h"
#include "broker/recording.h"
#include "broker/remains.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpushare::broker::SnapshotFromJson;
  using gpushare::broker::ToJson;
  const auto require = [](bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto recording = gpushare::broker::RecordingFromJson(text); recording.ok()) {
    const auto again = gpushare::broker::RecordingFromJson(ToJson(*recording));
    require(again.ok(), "a recording that was written is read");
    require(ToJson(*again) == ToJson(*recording), "a recording comes back as it went");
  }
  gpushare::broker::Where where;
  if (const auto remains = gpushare::broker::RemainsFromJson(text, &where); remains.ok()) {
    gpushare::broker::Where where_again;
    const auto again = gpushare::broker::RemainsFromJson(ToJson(*remains, where), &where_again);
    require(again.ok(), "remains that were written are read");
    require(*again == *remains && where_again == where, "remains come back as they went");
  }
  const auto snapshot = SnapshotFromJson(text);
  if (!snapshot.ok()) return 0;
  // Numbers are written with nine digits, so the second text is compared.
  const auto again = SnapshotFromJson(ToJson(*snapshot));
  require(again.ok(), "what was written is read");
  const auto third = SnapshotFromJson(ToJson(*again));
  require(third.ok() && ToJson(*third) == ToJson(*again), "its text is stable");
  return 0;
}
