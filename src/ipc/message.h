// SPDX-License-Identifier: Apache-2.0
// The messages between processes, the command line and the broker.
//
// One message is one packet of a SOCK_SEQPACKET socket, so there are no half messages:
//
//   u16 kind | u16 protocol | fields in the order of their declaration below
//
// little endian; a string is its u32 length and its bytes; a list its u32 count and its elements. Decoding checks
// everything: a packet that is too short or too long, an unknown kind, a string over kMostText or that is not UTF-8
// is InvalidArgument, and allocates nothing beyond the packet's own size. One of another protocol is FailedPrecondition, but
// for a Refusal, which keeps its form for ever: the broker answers it to who speaks another, and that one understands.
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
//                    <-  Parts of the answer (JSON text), the last with `more` 0; or Refusal
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

inline constexpr uint16_t kProtocol = 2;
inline constexpr size_t kMostPacket = 64 << 10;
inline constexpr size_t kMostText = 4096;      // of a name, a spec, a message
inline constexpr size_t kMostPart = 32 << 10;  // of a Part's text

// Introduces a process. The broker takes uid, gid and pid from the kernel, and believes the rest only as far as its
// configuration lets that user choose.
struct Hello {
  std::string tenant;   // empty: the tenant that the configuration assigns to this user
  std::string program;  // for lists: the name of the executable
  std::string
      spec;  // the spec that it asks for, as text; counts only if the configuration sets none for the tenant
  // A number by chance that is the same for as long as the process runs one program, and another after an exec. 0: not known.
  uint64_t image = 0;
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  uint64_t session = 0;
  std::string tenant;  // the tenant that the process now belongs to
  bool operator==(const Welcome&) const = default;
};
// GPUs are named by UUID, since ordinals differ between processes.
struct OpenGpu {
  std::string uuid;
  uint64_t memory = 0;  // the device's bytes less the reserve that is never promised
  uint32_t sm_count = 0;
  bool operator==(const OpenGpu&) const = default;
};
// OpenGpu with a spec for this GPU that replaces the one in the Hello; it counts under the same condition.
struct OpenGpuAs {
  OpenGpu gpu;
  std::string spec;
  bool operator==(const OpenGpuAs&) const = default;
};
struct GpuOpened {
  std::string uuid;
  std::string spec;  // the tenant's spec in force on this GPU
  bool operator==(const GpuOpened&) const = default;
};
struct Refusal {
  uint32_t code = 0;  // an absl::StatusCode
  std::string message;
  bool operator==(const Refusal&) const = default;
};
// `what`: "list", "metrics" or "trace"; from a registered process also "own", the limits of its tenant.
struct Query {
  std::string what;
  bool operator==(const Query&) const = default;
};
// `what`: "set" (with `spec`: the keys to change), "suspend", "resume", "drain", "evict" (end the tenant's sessions), "reload"
// or "shutdown".
struct Change {
  std::string what;
  std::string tenant;
  std::string gpu;  // a UUID; empty: all
  std::string spec;
  bool operator==(const Change&) const = default;
};
struct Part {
  uint32_t more = 0;  // nonzero if another Part follows
  std::string text;
  bool operator==(const Part&) const = default;
};

// A message's `kind` is its position in this list, counted from 1: append new ones at the end.
using Message =
    std::variant<Hello, Welcome, OpenGpu, GpuOpened, Refusal, Query, Change, Part, OpenGpuAs>;

// InvalidArgument: a text is longer than kMostText or kMostPart, or is not UTF-8.
absl::StatusOr<std::string> Encode(const Message& message);
absl::StatusOr<Message> Decode(std::string_view packet);

// The prefix of an answer's remaining `text` that goes into its next Part: as much as fits, cut between characters.
std::string_view NextPart(std::string_view text);

// A status that is not OK as a Refusal, with its text cut to what a message may hold; and the reverse. An invalid code becomes
// Unknown.
Refusal ToRefusal(const absl::Status& status);
absl::Status FromRefusal(const Refusal& refusal);

}  // namespace gpushare::ipc

#endif  // GPUSHARE_IPC_MESSAGE_H_
