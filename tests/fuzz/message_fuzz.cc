// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a packet: no crash, and an accepted packet is written as the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ipc/message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);  // libFuzzer calls it

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpushare::ipc;
  const auto require = [](bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "broken: %s\n", what);
    std::abort();
  };
  const std::string_view packet(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<Message> message = Decode(packet);
  if (!message.ok()) {
    require(message.status().code() == absl::StatusCode::kInvalidArgument,
            "what is no packet is InvalidArgument");
    require(message.status().message().size() < 256, "an error does not echo its input");
  } else {
    const absl::StatusOr<std::string> again = Encode(*message);
    require(again.ok(), "what was decoded can be encoded");
    require(*again == packet, "there is one way to write a message");
    const absl::StatusOr<Message> twice = Decode(*again);
    require(twice.ok() && *twice == *message, "a message comes back as it was");
  }
  // The same bytes as the text of an answer.
  const std::string_view part = NextPart(packet);
  require(part.size() <= kMostPart && (packet.empty() || !part.empty()), "parts get on");
  return 0;
}
