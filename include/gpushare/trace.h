// SPDX-License-Identifier: Apache-2.0
// What happened when: waits at the gate, leases, device time, memory, as a file for ui.perfetto.dev or
// chrome://tracing, or as values.
//
//   absl::StatusOr<Trace> trace = Trace::Start(*runtime);
//   ...
//   absl::Status written = trace->Write("out.json");   // what was recorded up to now
//
// It covers every GPU that is open in the runtime, and those that are opened while it lasts. The latest
// events of each GPU are kept, `capacity` of them; lost() says how many were overwritten, and so does
// the file. Destroying it ends the recording.
//
// Errors: AlreadyExists while another trace of the runtime records. Threading: thread-safe.
#ifndef GPUSHARE_TRACE_H_
#define GPUSHARE_TRACE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/runtime.h"

namespace gpushare {

struct TraceOptions {
  uint32_t capacity = 65536;  // events kept for each GPU, 128 bytes each; at most 4194304
};

struct TraceEvent {
  enum class Kind {
    kWait = GPUSHARE_TRACE_WAIT,           // at the gate; value: device time asked for, ns
    kLease = GPUSHARE_TRACE_LEASE,         // value: the hint, ns
    kDevice = GPUSHARE_TRACE_DEVICE,       // work settled; value: device time charged, ns
    kCopyWait = GPUSHARE_TRACE_COPY_WAIT,  // value: bytes; other: 0 to the device, 1 from it
    kMemory = GPUSHARE_TRACE_MEMORY,       // an instant; value: bytes held; other: the limit
    kDenied = GPUSHARE_TRACE_DENIED,       // an instant; value: bytes asked; other: bytes left
    kSuspend = GPUSHARE_TRACE_SUSPEND,     // an instant; value: 1 suspended, 0 resumed
  };
  Kind kind = Kind::kWait;
  std::string tenant;
  int gpu = 0;                // ordinal
  absl::Duration begin, end;  // on the runtime's clock; equal for an instant
  int64_t value = 0;
  uint64_t other = 0;
  uint32_t commands = 0;                    // of kDevice
  bool gave_up = false;                     // a wait that ended without a turn
  bool for_lease = false;                   // a wait for a lease; device time of one
  bool exclusive = false, overrun = false;  // of a lease
  bool overdue = false;                     // device time charged before the work has ended
  bool device_full = false;                 // refused by the driver, not by the quota
};

class Trace {
 public:
  static absl::StatusOr<Trace> Start(const Runtime& runtime, const TraceOptions& options = {}) {
    gpushare_trace_options c = {};
    c.struct_size = sizeof(c);
    c.capacity = options.capacity;
    gpushare_trace trace = nullptr;
    const gpushare_status code = gpushare_trace_start(runtime.handle(), &c, &trace);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Trace(trace);
  }

  // What was recorded can still be read and written.
  absl::Status Stop() { return internal::ToStatus(gpushare_trace_stop(handle_.get())); }

  // Takes up to `most` events: of one GPU after the other, each one's in the order in which they ended.
  absl::StatusOr<std::vector<TraceEvent>> Read(size_t most = 4096) {
    std::vector<gpushare_trace_event> c(most);
    if (most > 0) c[0].struct_size = sizeof(c[0]);
    size_t got = 0;
    const gpushare_status code = gpushare_trace_read(handle_.get(), c.data(), most, &got);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    std::vector<TraceEvent> events;
    events.reserve(got);
    for (size_t i = 0; i < got; ++i) events.push_back(FromC(c[i]));
    return events;
  }

  // Events that were overwritten before they were read or written.
  absl::StatusOr<uint64_t> lost() const {
    uint64_t lost = 0;
    const gpushare_status code = gpushare_trace_lost(handle_.get(), &lost);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return lost;
  }

  // Writes what was not read, and takes it. InvalidArgument: the file cannot be opened for writing.
  absl::Status Write(const std::string& path) {
    return internal::ToStatus(gpushare_trace_write(handle_.get(), path.c_str()));
  }

 private:
  explicit Trace(gpushare_trace handle) : handle_(handle) {}
  static TraceEvent FromC(const gpushare_trace_event& c) {
    TraceEvent event;
    event.kind = static_cast<TraceEvent::Kind>(c.kind);
    event.tenant = c.tenant;
    event.gpu = c.gpu;
    event.begin = absl::Nanoseconds(c.begin_ns);
    event.end = absl::Nanoseconds(c.end_ns);
    event.value = c.value;
    event.other = c.other;
    event.commands = c.commands;
    event.gave_up = (c.flags & GPUSHARE_TRACE_GAVE_UP) != 0;
    event.for_lease = (c.flags & GPUSHARE_TRACE_FOR_LEASE) != 0;
    event.exclusive = (c.flags & GPUSHARE_TRACE_EXCLUSIVE) != 0;
    event.overrun = (c.flags & GPUSHARE_TRACE_OVERRUN) != 0;
    event.overdue = (c.flags & GPUSHARE_TRACE_OVERDUE) != 0;
    event.device_full = (c.flags & GPUSHARE_TRACE_DEVICE_FULL) != 0;
    return event;
  }

  internal::Handle<gpushare_trace, gpushare_trace_destroy> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_TRACE_H_
