// SPDX-License-Identifier: Apache-2.0
#include "ipc/message.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace gpushare::ipc {
namespace {

// The fields of each kind, in the order in which they travel: once for both directions.
template <typename Wire, typename M>
void EachField(Wire& wire, M& m) {
  using Kind = std::remove_const_t<M>;
  if constexpr (std::is_same_v<Kind, Hello>) {
    wire.Text(m.tenant), wire.Text(m.program), wire.Text(m.spec);
    wire.Number(m.image);
  } else if constexpr (std::is_same_v<Kind, Welcome>) {
    wire.Number(m.session), wire.Text(m.tenant);
  } else if constexpr (std::is_same_v<Kind, OpenGpu>) {
    wire.Text(m.uuid), wire.Number(m.memory), wire.Number(m.sm_count);
  } else if constexpr (std::is_same_v<Kind, OpenGpuAs>) {
    wire.Text(m.gpu.uuid), wire.Number(m.gpu.memory), wire.Number(m.gpu.sm_count);
    wire.Text(m.spec);
  } else if constexpr (std::is_same_v<Kind, GpuOpened>) {
    wire.Text(m.uuid), wire.Text(m.spec);
  } else if constexpr (std::is_same_v<Kind, Refusal>) {
    wire.Number(m.code), wire.Text(m.message);
  } else if constexpr (std::is_same_v<Kind, Query>) {
    wire.Text(m.what);
  } else if constexpr (std::is_same_v<Kind, Change>) {
    wire.Text(m.what), wire.Text(m.tenant), wire.Text(m.gpu), wire.Text(m.spec);
  } else {
    static_assert(std::is_same_v<Kind, Part>);
    wire.Number(m.more), wire.Text(m.text, kMostPart);
  }
}

absl::Status TooLong(uint64_t length, size_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat("a text of ", length, " bytes; ", most, " are the most"));
}

absl::Status NoUtf8() { return absl::InvalidArgumentError("a text that is not UTF-8"); }

class Writer {
 public:
  template <typename T>
  void Number(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      packet_ += static_cast<char>(static_cast<unsigned char>(value >> (8 * i)));
    }
  }
  void Text(std::string_view text, size_t most = kMostText) {
    if (text.size() > most) return Fail(TooLong(text.size(), most));
    if (!IsUtf8(text)) return Fail(NoUtf8());
    Number(static_cast<uint32_t>(text.size()));
    packet_ += text;
  }
  absl::StatusOr<std::string> Packet() && {
    if (!status_.ok()) return status_;
    return std::move(packet_);
  }

 private:
  void Fail(absl::Status status) { status_.Update(std::move(status)); }

  std::string packet_;
  absl::Status status_;
};

class Reader {
 public:
  explicit Reader(std::string_view packet) : rest_(packet) {}

  template <typename T>
  void Number(T& value) {
    value = 0;
    if (!status_.ok()) return;
    if (rest_.size() < sizeof(T)) return Fail(TooShort());
    for (size_t i = 0; i < sizeof(T); ++i) {
      value =
          static_cast<T>(value | (static_cast<T>(static_cast<unsigned char>(rest_[i])) << (8 * i)));
    }
    rest_.remove_prefix(sizeof(T));
  }
  void Text(std::string& text, size_t most = kMostText) {
    uint32_t length;
    Number(length);
    if (!status_.ok()) return;
    if (length > most) return Fail(TooLong(length, most));
    if (length > rest_.size()) return Fail(TooShort());
    const std::string_view found = rest_.substr(0, length);
    if (!IsUtf8(found)) return Fail(NoUtf8());
    text.assign(found);
    rest_.remove_prefix(length);
  }
  // OK when all of it was read, and nothing is left.
  absl::Status End() {
    if (status_.ok() && !rest_.empty()) {
      Fail(absl::InvalidArgumentError(
          absl::StrCat("a packet with ", rest_.size(), " bytes after its last field")));
    }
    return status_;
  }
  const absl::Status& status() const { return status_; }

 private:
  static absl::Status TooShort() {
    return absl::InvalidArgumentError("a packet that ends within a field");
  }
  void Fail(absl::Status status) { status_.Update(std::move(status)); }

  std::string_view rest_;
  absl::Status status_;
};

// The message that has the place `kind`, from 1 on.
template <size_t place = 1>
absl::StatusOr<Message> DecodeKind(size_t kind, Reader& reader) {
  if constexpr (place > std::variant_size_v<Message>) {
    return absl::InvalidArgumentError(absl::StrCat("a packet of the unknown kind ", kind));
  } else {
    if (kind != place) return DecodeKind<place + 1>(kind, reader);
    std::variant_alternative_t<place - 1, Message> message;
    EachField(reader, message);
    GPUSHARE_RETURN_IF_ERROR(reader.End());
    return Message(std::move(message));
  }
}

// The longest beginning of at most `most` bytes that ends with a whole character. Of what is no UTF-8, any.
std::string_view WholeCharacters(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && most - end < 3 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) {
    --end;
  }
  return text.substr(0, end);
}

}  // namespace

absl::StatusOr<std::string> Encode(const Message& message) {
  Writer writer;
  writer.Number(static_cast<uint16_t>(message.index() + 1));
  writer.Number(kProtocol);
  std::visit([&](const auto& m) { EachField(writer, m); }, message);
  return std::move(writer).Packet();
}

absl::StatusOr<Message> Decode(std::string_view packet) {
  if (packet.size() > kMostPacket) {
    return absl::InvalidArgumentError(
        absl::StrCat("a packet of ", packet.size(), " bytes; ", kMostPacket, " are the most"));
  }
  Reader reader(packet);
  uint16_t kind, protocol;
  reader.Number(kind);
  reader.Number(protocol);
  GPUSHARE_RETURN_IF_ERROR(reader.status());
  // A refusal is the same in every protocol: it is what tells who speaks another.
  if (protocol != kProtocol && kind != Message(Refusal{}).index() + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("a process and the broker are of different versions of gpushare (protocol ",
                     protocol, ", here ", kProtocol, "): start anew whichever is older"));
  }
  return DecodeKind(kind, reader);
}

std::string_view NextPart(std::string_view text) { return WholeCharacters(text, kMostPart); }

Refusal ToRefusal(const absl::Status& status) {
  // Messages may quote what came from anywhere.
  const std::string message = Printable(std::string(status.message()), kMostText);
  return {.code = static_cast<uint32_t>(status.code()),
          .message = std::string(WholeCharacters(message, kMostText))};
}

absl::Status FromRefusal(const Refusal& refusal) {
  const bool known = refusal.code >= 1 && refusal.code <= 16;
  return absl::Status(
      known ? static_cast<absl::StatusCode>(refusal.code) : absl::StatusCode::kUnknown,
      refusal.message);
}

}  // namespace gpushare::ipc
