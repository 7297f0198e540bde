// SPDX-License-Identifier: Apache-2.0
#include "ipc/message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpushare::ipc {
namespace {

std::vector<Message> Samples() {
  return {
      Hello{.tenant = "a", .program = "/usr/bin/caf\xc3\xa9", .spec = "memory=8GiB", .image = 7},
      Hello{},
      Welcome{.session = UINT64_MAX, .tenant = "a"},
      OpenGpu{.uuid = "GPU-1", .memory = uint64_t{1} << 63, .sm_count = 132},
      OpenGpuAs{.gpu = {.uuid = "GPU-1", .memory = 7, .sm_count = 132}, .spec = "memory=1GiB"},
      GpuOpened{.uuid = "GPU-1", .spec = std::string(kMostText, 's')},
      Refusal{.code = 8, .message = "no"},
      Query{.what = "list"},
      Change{.what = "set", .tenant = "a", .gpu = "GPU-1", .spec = "weight=3"},
      Part{.more = 1, .text = std::string(kMostPart, '{')}};
}

std::string Packet(const Message& message) {
  const absl::StatusOr<std::string> packet = Encode(message);
  EXPECT_TRUE(packet.ok()) << packet.status();
  return packet.value_or("");
}

TEST(Message, ComesBackAsItWas) {
  for (const Message& message : Samples()) {
    const absl::StatusOr<Message> again = Decode(Packet(message));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(*again == message);
  }
}

// The format on which processes of several versions agree.
TEST(Message, HasTheBytesThatTheHeaderSays) {
  EXPECT_EQ(Packet(Welcome{.session = 0x0102, .tenant = "ab"}), std::string("\x02\0\x02\0"
                                                                            "\x02\x01\0\0\0\0\0\0"
                                                                            "\x02\0\0\0ab",
                                                                            18));
  EXPECT_EQ(Packet(Part{.more = 1, .text = ""}), std::string("\x08\0\x02\0\x01\0\0\0\0\0\0\0", 12));
}

TEST(Message, CutAnywhereItIsNone) {
  for (const Message& message : Samples()) {
    const std::string packet = Packet(message);
    for (size_t length = 0; length < packet.size(); length += length < 64 ? 1 : 997) {
      EXPECT_EQ(Decode(std::string_view(packet).substr(0, length)).status().code(),
                absl::StatusCode::kInvalidArgument)
          << length << " of " << packet.size();
    }
    EXPECT_FALSE(Decode(packet + "x").ok());
  }
}

TEST(Message, OfAnotherKindOrProtocolItIsNone) {
  std::string packet = Packet(Query{.what = "list"});
  for (const char kind : {'\0', '\x09', '\xff'}) {
    packet[0] = kind;
    EXPECT_EQ(Decode(packet).status().code(), absl::StatusCode::kInvalidArgument);
  }
  packet = Packet(Query{.what = "list"});
  packet[2] = static_cast<char>(kProtocol + 1);
  EXPECT_EQ(Decode(packet).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Decode(packet).status().message(),
            "a process and the broker are of different versions of gpushare (protocol 3, here 2): "
            "start anew whichever is older");
}

// It is the answer to a client that speaks another protocol.
TEST(Message, ARefusalIsReadInWhateverProtocolItComes) {
  const Refusal refusal{.code = 9, .message = "of different versions"};
  std::string packet = Packet(refusal);
  packet[2] = static_cast<char>(kProtocol + 1);
  packet[3] = 1;
  const auto read = Decode(packet);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(std::get<Refusal>(*read), refusal);
}

TEST(Message, TextsHaveALengthAndAreUtf8) {
  EXPECT_FALSE(Encode(Query{.what = std::string(kMostText + 1, 'x')}).ok());
  EXPECT_FALSE(Encode(Part{.more = 0, .text = std::string(kMostPart + 1, 'x')}).ok());
  EXPECT_FALSE(Encode(Query{.what = "\xff"}).ok());
  std::string packet = Packet(Query{.what = "list"});
  packet.back() = '\xff';
  EXPECT_FALSE(Decode(packet).ok());
  // A length beyond the packet, up to one that would not fit into memory.
  for (const char high : {'\0', '\x10', '\xff'}) {
    std::string longer = Packet(Query{.what = "list"});
    longer[4] = 5;
    longer[7] = high;
    EXPECT_FALSE(Decode(longer).ok());
  }
  // A length that fits the packet, but exceeds the limit for a text.
  std::string text(kMostText + 1, 'x');
  std::string packed("\x06\0\x02\0\x01\x10\0\0", 8);
  EXPECT_FALSE(Decode(packed + text).ok());
  text.pop_back(), packed[4] = 0;
  EXPECT_TRUE(Decode(packed + text).ok());
}

TEST(Message, AnAnswerGoesInPartsOfWholeCharacters) {
  std::string answer(kMostPart - 2, 'x');
  for (int i = 0; i < 20'000; ++i) answer += "\xe2\x82\xac";
  std::string_view rest = answer;
  std::string together;
  while (!rest.empty()) {
    const std::string_view part = NextPart(rest);
    ASSERT_FALSE(part.empty());
    together += std::get<Part>(*Decode(Packet(Part{.more = 1, .text = std::string(part)}))).text;
    rest.remove_prefix(part.size());
  }
  EXPECT_EQ(together, answer);
  // Text that is not UTF-8 is split as well; such a Part is refused.
  EXPECT_FALSE(NextPart(std::string(kMostPart + 1, '\x80')).empty());
}

TEST(Message, ARefusalIsAStatusAgain) {
  const absl::Status full = absl::ResourceExhaustedError("no memory left");
  EXPECT_EQ(FromRefusal(ToRefusal(full)), full);
  EXPECT_EQ(FromRefusal({.code = 0, .message = "odd"}).code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(FromRefusal({.code = 4711, .message = "odd"}).code(), absl::StatusCode::kUnknown);
  const Refusal quoted = ToRefusal(absl::InvalidArgumentError(std::string(9000, '\xff')));
  EXPECT_LE(quoted.message.size(), kMostText);
  EXPECT_TRUE(Encode(quoted).ok());
}

}  // namespace
}  // namespace gpushare::ipc
