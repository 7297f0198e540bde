// SPDX-License-Identifier: Apache-2.0
// What one tenant of a run does to itself, so that it is seen what the others have of it.
//
//   {kind: endless-kernel, at: 500ms, sms: 66}
#ifndef GPUSHARE_HARNESS_FAULT_H_
#define GPUSHARE_HARNESS_FAULT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/time.h"
#include "yaml/reader.h"

namespace gpushare::harness {

struct Fault {
  enum class Kind : uint8_t {
    kNone,
    kIllegalAddress,  // a kernel that touches what is not its own: its context is lost
    kKilled,          // its process is killed (SIGKILL), and with that whoever is in it
    kEndlessKernel,   // a kernel that never ends
    kAllMemory,       // it takes memory until there is none, and keeps it
  };
  Kind kind = Kind::kNone;
  Nanos at{0};      // since the start
  int64_t sms = 0;  // kEndlessKernel: those that its kernel holds
  bool operator==(const Fault&) const = default;
};
inline constexpr char kFaultKinds[] =
    "illegal-address|killed|endless-kernel|all-memory";  // in that order, from kIllegalAddress

absl::Status ReadFault(const yaml::Reader& in, const yaml::Node& map, const std::string& place,
                       Nanos step, Fault* out);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_FAULT_H_
