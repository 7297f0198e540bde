// SPDX-License-Identifier: Apache-2.0
// Events among the processes of a broker while it recorded them: the broker's answer to "trace".
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
    kWait,     // a wait for a grant; value: the device time asked for, ns
    kDevice,   // work of high priority, which needs no grant; value: the device time it took, ns
    kMemory,   // an instant; value: bytes held; other: bytes granted
    kDenied,   // an instant; value: allocations refused since the last such event
    kSuspend,  // an instant for the whole tenant; value: 1 suspended, 0 resumed
  };
  Kind kind = Kind::kLease;
  std::string gpu, tenant;  // the GPU's UUID; the tenant's name
  int32_t pid = 0;          // 0: an event of the whole tenant, or the broker cannot see the process
  // Distinguishes processes that the broker cannot see; 0: an event of the whole tenant.
  uint64_t session = 0;
  Time begin{}, end{};  // by the broker's clock; equal for an instant
  int64_t value = 0;
  uint64_t other = 0;
  bool operator==(const RecordedEvent&) const = default;
};

struct Recording {
  Time at{};          // when the recording was made
  uint64_t next = 0;  // the number from which to ask the next time
  uint64_t lost = 0;  // events from the number asked for on that were overwritten
  std::vector<RecordedEvent> events;
  // Not ended yet: shown as ending at `at`, and reported again when they end.
  std::vector<RecordedEvent> open;
};

std::string ToJson(const Recording& recording);
// Ignores unknown keys and kinds of events. InvalidArgument: the text is not a recording.
absl::StatusOr<Recording> RecordingFromJson(std::string_view json);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_RECORDING_H_
