// SPDX-License-Identifier: Apache-2.0
// The C ABI: traces.
#include "device/watch/trace.h"

#include "device/abi/c_abi.h"
#include "device/process/runtime.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_trace_start(gpushare_runtime runtime,
                                     const gpushare_trace_options* options, gpushare_trace* trace) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(trace);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_trace_options known,
                              ReadStruct(options, "options", /*optional=*/true));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Trace> started, Trace::Start(owner, known));
    return NewHandle(trace, std::move(started));
  });
}

gpushare_status gpushare_trace_stop(gpushare_trace trace) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(recording, trace);
    recording->Stop();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_trace_read(gpushare_trace trace, gpushare_trace_event* events,
                                    size_t count, size_t* got) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(recording, trace);
    GPUSHARE_NOT_NULL(got);
    if (count > 0) GPUSHARE_RETURN_IF_ERROR(CheckStruct(events, "events"));
    const std::vector<gpushare_trace_event> read = recording->Read(count);
    // The caller's array has structs of the caller's version, which may differ in size.
    auto* out = reinterpret_cast<unsigned char*>(events);
    const size_t size = count > 0 ? events->struct_size : 0;
    for (const gpushare_trace_event& event : read) {
      auto* const place = reinterpret_cast<gpushare_trace_event*>(out);
      place->struct_size = static_cast<uint32_t>(size);
      GPUSHARE_RETURN_IF_ERROR(WriteStruct(place, event, "events"));
      out += size;
    }
    *got = read.size();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_trace_lost(gpushare_trace trace, uint64_t* lost) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(recording, trace);
    GPUSHARE_NOT_NULL(lost);
    *lost = recording->lost();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_trace_write(gpushare_trace trace, const char* path) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(recording, trace);
    GPUSHARE_NOT_NULL(path);
    return recording->Write(path);
  });
}

gpushare_status gpushare_trace_destroy(gpushare_trace trace) {
  return Guard([&]() -> absl::Status {
    const std::shared_ptr<Trace> last = Handles::Take(trace);
    if (last == nullptr) return BadHandle(trace);
    last->Stop();
    return absl::OkStatus();
  });
}
