// SPDX-License-Identifier: Apache-2.0
// Tells the program of work that does not end, and of a context that is lost.
//
//   absl::StatusOr<Watchdog> watchdog = Watchdog::Start(
//       *gpu, {.limit = absl::Seconds(5)}, [&](const Incident& incident) {
//         if (incident.kind == Incident::Kind::kStuck) Warn(incident.tenant, incident.late);
//       });
//
// A kernel cannot be stopped on a GPU that is shared within one process. What the program can do is to warn,
// to suspend the tenant, or to end the process; isolation.md says who is hurt by what.
//
// Work that waits for its turn on the device is not stuck. It may be reported all the same where the meter takes
// it to run: beside work that it does not know (leases, long graphs), behind an event of another stream, or where
// the device does not run kernels side by side although their sizes would allow it.
// Not reported: what is launched past gpushare without a lease, what is left on a stream that was destroyed, and
// kernels of a known cost after which the host makes no call of gpushare's for a millisecond, since they have no
// marker. Streams that are waited for with Stream::Synchronize() have one.
//
// The callback runs on a thread of the watchdog's, one call at a time, once for each piece of work that is
// stuck. It may call anything except the end of the watchdog itself. An exception that leaves it ends the program by
// std::terminate().
//
// Errors: AlreadyExists when the GPU has one; Aborted when its context is lost already; InvalidArgument for a
// limit under 100 ms. Threading:
// thread-safe. The watchdog keeps its GPU open.
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
    kStuck = GPUSHARE_INCIDENT_STUCK,  // runs on, for longer than the limit past what was predicted
    // The context is lost: one for each tenant that had work in flight. Which of them did it the driver
    // does not say.
    kFault = GPUSHARE_INCIDENT_FAULT,
  };
  Kind kind = Kind::kStuck;
  std::string tenant;
  // Stuck: past what was predicted; of a lease's work past its hint, of one that is held past its maximum.
  absl::Duration late;
  bool lease = false;             // stuck: the work of a lease
  CUstream_st* stream = nullptr;  // one on which the tenant has work in flight; may be null
  int driver_result = 0;          // fault: the driver's CUresult
};

struct WatchdogOptions {
  absl::Duration limit = absl::Seconds(10);  // 100 ms or more
};

// Watches from Start() to its end, which waits for a callback that is running.
class Watchdog {
 public:
  Watchdog(Watchdog&&) noexcept = default;
  Watchdog& operator=(Watchdog&& other) noexcept {
    handle_ = std::move(other.handle_);  // the old one ends before its callback goes
    callback_ = std::move(other.callback_);
    return *this;
  }

  static absl::StatusOr<Watchdog> Start(const Gpu& gpu, const WatchdogOptions& options,
                                        std::function<void(const Incident&)> callback) {
    auto owned = std::make_unique<std::function<void(const Incident&)>>(std::move(callback));
    gpushare_watchdog_options c = {};
    c.struct_size = sizeof(c);
    c.limit_ns = absl::ToInt64Nanoseconds(options.limit);
    if (c.limit_ns == 0) c.limit_ns = -1;  // what is 0 in C is the default
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
  internal::Handle<gpushare_watchdog, gpushare_watchdog_stop> handle_;  // ends before the callback
};

}  // namespace gpushare

#endif  // GPUSHARE_WATCHDOG_H_
