// SPDX-License-Identifier: Apache-2.0
// Records waits at the gate, leases, device time and memory over time, as a file for ui.perfetto.dev or
// chrome://tracing, or as values.
//
//   absl::StatusOr<Trace> trace = Trace::Start(*runtime);
//   ...
//   absl::Status written = trace->Write("out.json");   // everything recorded so far
//
// A trace covers every GPU that is open in the runtime, and those that are opened while it records. The
// latest `capacity` events of each GPU are kept; lost() and the file say how many were overwritten.
// Destroying the trace ends the recording.
//
// Errors: AlreadyExists while another trace of the runtime is recording. Threading: thread-safe.
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
  uint32_t commands = 0;   // for kDevice
  bool gave_up = false;    // the wait ended without a turn
  bool for_lease = false;  // the wait is for a lease, or the device time is a lease's
  bool exclusive = false, overrun = false;  // for kLease
  bool overdue = false;                     // the device time was charged before the work ended
  bool device_full = false;                 // the driver refused, not the quota
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

  // Ends the recording. The recorded events can still be read and written.
  absl::Status Stop() { return internal::ToStatus(gpushare_trace_stop(handle_.get())); }

  // Takes up to `most` events: one GPU after the other, and each GPU's events in the order in which they ended.
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

  // Takes the events that have not been read, and writes them. InvalidArgument: the file cannot be opened for writing.
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
