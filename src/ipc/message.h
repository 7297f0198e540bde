// SPDX-License-Identifier: Apache-2.0
// What processes, the command line and the broker say to each other.
//
// One message is one packet of a SOCK_SEQPACKET socket, so there are no half messages:
//
//   u16 kind | u16 protocol | fields in the order in which they stand here
//
// little endian; a string is its u32 length and its bytes; a list its u32 count and its elements. Decoding checks
// everything: a packet that is too short or too long, an unknown kind, a string over kMostText or that is not UTF-8
// is InvalidArgument, and allocates nothing beyond the packet's own size.
//
//   process              broker
//   Hello            ->
//                    <-  Welcome, or Refusal
//   OpenGpu, OpenGpuAs ->
//                    <-  GpuOpened with three descriptors: limits page, usage page, doorbell (an eventfd); or Refusal
//   and from then on the pages and the doorbell; the end of the connection ends the session.
//
//   command              broker
//   Query            ->
//                    <-  Part of the answer (JSON text) again and again, the last with `more` 0; or Refusal
//   Change           ->
//                    <-  Part, or Refusal
#ifndef GPUSHARE_IPC_MESSAGE_H_
#define GPUSHARE_IPC_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpushare::ipc {

inline constexpr uint16_t kProtocol = 1;
inline constexpr size_t kMostPacket = 64 << 10;
inline constexpr size_t kMostText = 4096;      // of a name, a spec, a message
inline constexpr size_t kMostPart = 32 << 10;  // of a Part's text

// Who a process is. The broker takes uid, gid and process id from the kernel, and the rest only as far as its
// configuration lets that user say it.
struct Hello {
  std::string tenant;   // empty: the one that the configuration gives to this user
  std::string program;  // for lists: the name of the executable
  std::string
      spec;  // what it asks for, in the text form of a spec; counts only where the tenant has none
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  uint64_t session = 0;
  std::string tenant;  // the one it belongs to
  bool operator==(const Welcome&) const = default;
};
// By UUID, since ordinals differ between processes.
struct OpenGpu {
  std::string uuid;
  uint64_t memory = 0;  // of the device less what is never promised
  uint32_t sm_count = 0;
  bool operator==(const OpenGpu&) const = default;
};
// The same where the process asks for something else on this GPU than its Hello says; it counts where that would.
struct OpenGpuAs {
  OpenGpu gpu;
  std::string spec;
  bool operator==(const OpenGpuAs&) const = default;
};
struct GpuOpened {
  std::string uuid;
  std::string spec;  // the tenant's share there, as it is in force
  bool operator==(const GpuOpened&) const = default;
};
struct Refusal {
  uint32_t code = 0;  // an absl::StatusCode
  std::string message;
  bool operator==(const Refusal&) const = default;
};
// What is wanted: "list", "metrics", "trace"; of who has registered, "own": the limits of its tenant.
struct Query {
  std::string what;
  bool operator==(const Query&) const = default;
};
// "set" (spec: the keys to change), "suspend", "resume", "drain", "evict" (end its sessions), "reload", "shutdown".
struct Change {
  std::string what;
  std::string tenant;
  std::string gpu;  // a UUID; empty: all
  std::string spec;
  bool operator==(const Change&) const = default;
};
struct Part {
  uint32_t more = 0;  // whether others follow
  std::string text;
  bool operator==(const Part&) const = default;
};

// A kind's number is its place here, from 1 on: new ones go to the end.
using Message =
    std::variant<Hello, Welcome, OpenGpu, GpuOpened, Refusal, Query, Change, Part, OpenGpuAs>;

// InvalidArgument: a text is longer than it may be, or is not UTF-8.
absl::StatusOr<std::string> Encode(const Message& message);
absl::StatusOr<Message> Decode(std::string_view packet);

// What of an answer's `text` goes into its next Part: as much as there is room for, and no half of a character.
std::string_view NextPart(std::string_view text);

// Of what is no OK status, cut to what a message may hold; and the status again. A code that there is none of is
// Unknown.
Refusal ToRefusal(const absl::Status& status);
absl::Status FromRefusal(const Refusal& refusal);

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_MESSAGE_H_
