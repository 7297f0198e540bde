// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a packet: no crash, and an accepted packet is written as the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ipc/message.h"

namespace {

// Or too short to say.
bool OfThisProtocol(std::string_view packet) {
  if (packet.size() < 4 || packet.size() > gpushare::ipc::kMostPacket) return true;
  const auto byte = [&](size_t i) {
    return static_cast<unsigned>(static_cast<uint8_t>(packet[i]));
  };
  const unsigned kind = byte(0) | byte(1) << 8, protocol = byte(2) | byte(3) << 8;
  const size_t refusal = gpushare::ipc::Message(gpushare::ipc::Refusal{}).index() + 1;
  return protocol == gpushare::ipc::kProtocol || kind == refusal;
}

}  // namespace

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
    require(
        message.status().code() == (OfThisProtocol(packet) ? absl::StatusCode::kInvalidArgument
                                                           : absl::StatusCode::kFailedPrecondition),
        "what is no packet is InvalidArgument, one of another protocol FailedPrecondition");
    require(message.status().message().size() < 256, "an error does not echo its input");
  } else {
    const absl::StatusOr<std::string> again = Encode(*message);
    require(again.ok(), "what was decoded can be encoded");
    // A refusal of another protocol is written as one of this.
    require(again->size() == packet.size() && again->substr(4) == packet.substr(4) &&
                again->substr(0, 2) == packet.substr(0, 2),
            "there is one way to write a message");
    const absl::StatusOr<Message> twice = Decode(*again);
    require(twice.ok() && *twice == *message, "a message comes back as it was");
  }
  // The same bytes as the text of an answer.
  const std::string_view part = NextPart(packet);
  require(part.size() <= kMostPart && (packet.empty() || !part.empty()), "parts get on");
  return 0;
}
