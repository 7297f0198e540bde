// SPDX-License-Identifier: Apache-2.0
// Reports work that does not end, and contexts that are lost.
//
//   absl::StatusOr<Watchdog> watchdog = Watchdog::Start(
//       *gpu, {.limit = absl::Seconds(5)}, [&](const Incident& incident) {
//         if (incident.kind == Incident::Kind::kStuck) Warn(incident.tenant, incident.late);
//       });
//
// A kernel cannot be stopped on a GPU that is shared within one process. The program can warn, suspend the tenant,
// or end the process; isolation.md says who is affected by what.
//
// Work that waits for its turn on the device is not stuck. It may still be reported if the meter believes that it
// runs: beside work that the meter does not know (leases, long graphs), behind an event of another stream, or if the
// device does not run kernels side by side although their sizes would allow it.
// Not reported: work launched past gpushare without a lease, work left on a stream that was destroyed, and kernels of
// known cost after which the host makes no call to gpushare for a millisecond, since they have no marker. Streams that
// are waited for with Stream::Synchronize() have a marker.
//
// The callback runs on the watchdog's thread, one call at a time, once for each piece of work that is stuck. It may
// do anything except destroy the watchdog itself. An exception that leaves it ends the program by std::terminate().
//
// Errors: AlreadyExists if the GPU has a watchdog; Aborted if its context is already lost; InvalidArgument for a
// limit under 100 ms. Threading: thread-safe. The watchdog keeps its GPU open.
#ifndef GPUSHARE_WATCHDOG_H_
#define GPUSHARE_WATCHDOG_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/gpu.h"
#include "gpushare/internal/handle.h"

struct CUstream_st;

namespace gpushare {

struct Incident {
  enum class Kind {
    kStuck = GPUSHARE_INCIDENT_STUCK,  // has run longer than predicted by more than the limit
    // The context is lost: one incident for each tenant that had work in flight. The driver does not say
    // which of them caused it.
    kFault = GPUSHARE_INCIDENT_FAULT,
  };
  Kind kind = Kind::kStuck;
  std::string tenant;
  // Stuck: the time beyond the prediction; for work of a lease beyond its hint, for a held lease beyond its maximum.
  absl::Duration late;
  bool lease = false;             // stuck: whether it is the work of a lease
  CUstream_st* stream = nullptr;  // a stream on which the tenant has work in flight; may be null
  int driver_result = 0;          // fault: the driver's CUresult
};

struct WatchdogOptions {
  absl::Duration limit = absl::Seconds(10);  // 100 ms or more
};

// Watches from Start() until it is destroyed, which waits for a running callback.
class Watchdog {
 public:
  Watchdog(Watchdog&&) noexcept = default;
  Watchdog& operator=(Watchdog&& other) noexcept {
    handle_ = std::move(other.handle_);  // the old watchdog ends before its callback is destroyed
    callback_ = std::move(other.callback_);
    return *this;
  }

  static absl::StatusOr<Watchdog> Start(const Gpu& gpu, const WatchdogOptions& options,
                                        std::function<void(const Incident&)> callback) {
    auto owned = std::make_unique<std::function<void(const Incident&)>>(std::move(callback));
    gpushare_watchdog_options c = {};
    c.struct_size = sizeof(c);
    c.limit_ns = absl::ToInt64Nanoseconds(options.limit);
    if (c.limit_ns == 0) c.limit_ns = -1;  // 0 means the default in C, so pass an invalid value
    if (*owned) c.callback = &Call;
    c.context = owned.get();
    gpushare_watchdog watchdog = nullptr;
    const gpushare_status code = gpushare_watchdog_start(gpu.handle(), &c, &watchdog);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Watchdog(std::move(owned), watchdog);
  }

 private:
  Watchdog(std::unique_ptr<std::function<void(const Incident&)>> callback, gpushare_watchdog handle)
      : callback_(std::move(callback)), handle_(handle) {}

  static void Call(void* context, const gpushare_incident* incident) noexcept {
    (*static_cast<std::function<void(const Incident&)>*>(context))(
        {.kind = static_cast<Incident::Kind>(incident->kind),
         .tenant = incident->tenant,
         .late = absl::Nanoseconds(incident->late_ns),
         .lease = incident->lease != 0,
         .stream = incident->stream,
         .driver_result = incident->driver_result});
  }

  std::unique_ptr<std::function<void(const Incident&)>> callback_;
  // Destroyed before the callback.
  internal::Handle<gpushare_watchdog, gpushare_watchdog_stop> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_WATCHDOG_H_
