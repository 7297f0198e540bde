// SPDX-License-Identifier: Apache-2.0
// What happened among the processes of a broker while somebody recorded it: the broker's answer to "trace".
#ifndef GPUSHARE_BROKER_RECORDING_H_
#define GPUSHARE_BROKER_RECORDING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"

namespace gpushare::broker {

struct RecordedEvent {
  enum class Kind : uint32_t {
    kLease,  // a grant, until it was used, given back or followed by another; value: its device time, ns
    kWait,     // for a grant; value: the device time that was asked for, ns
    kDevice,   // work of high priority, which needs no grant; value: the device time it took, ns
    kMemory,   // an instant; value: bytes held; other: bytes granted
    kDenied,   // an instant; value: allocations that were refused since the last
    kSuspend,  // an instant, of the tenant; value: 1 suspended, 0 resumed
  };
  Kind kind = Kind::kLease;
  std::string gpu, tenant;  // its UUID; its name
  int32_t pid = 0;       // 0: of the tenant as a whole, or its process is not visible to the broker
  uint64_t session = 0;  // tells processes apart that are not visible; 0: of the tenant as a whole
  Time begin{}, end{};   // of the broker's clock; equal for an instant
  int64_t value = 0;
  uint64_t other = 0;
  bool operator==(const RecordedEvent&) const = default;
};

struct Recording {
  Time at{};          // when it was made
  uint64_t next = 0;  // the number from which to ask the next time
  uint64_t lost = 0;  // events since the number that was asked for, overwritten before
  std::vector<RecordedEvent> events;
  std::vector<RecordedEvent> open;  // under way: they end with `at`, and come again when they end
};

std::string ToJson(const Recording& recording);
// Keys that are not known are passed over, and kinds. InvalidArgument: it is none.
absl::StatusOr<Recording> RecordingFromJson(std::string_view json);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_RECORDING_H_
