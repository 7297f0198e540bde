// SPDX-License-Identifier: Apache-2.0
// A permit for code that launches on its own: an inference engine, a cuBLAS call.
//
//   absl::StatusOr<Lease> lease =
//       Lease::Acquire(*device, {.hint = absl::Milliseconds(2), .streams = {&*stream}});
//   if (!lease.ok()) return lease.status();
//   model->Execute(stream->native().value());   // whatever it launches there is covered
//   lease->Release().IgnoreError();             // or the end of the scope
//
// While it is held others' kernels may run between the lease's, unless it is exclusive; it is charged
// what their known commands leave it of the device's time (docs/meter.md).
//
// The wait is at acquire, outside the framework's locks. What it used beyond its hint is debt of the
// virtual device. On a thread that holds a lease of the same virtual device another waits for nothing, and both are one: it is
// charged as the first, on the streams of both, until the last is released, in whichever order. Of
// another one on the same GPU it is FailedPrecondition. Errors: DeadlineExceeded after `timeout`.
// Threading: may be released by any thread.
#ifndef GPUSHARE_LEASE_H_
#define GPUSHARE_LEASE_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/stream.h"
#include "gpushare/virtual_device.h"

namespace gpushare {

struct LeaseOptions {
  absl::Duration hint = absl::Microseconds(100);  // device time expected
  absl::Duration maximum = absl::Seconds(1);      // more becomes debt
  bool exclusive = false;                         // nobody else's of the same or a lower priority
  absl::Duration timeout = absl::InfiniteDuration();
  // Where the work will go; measured there. None: the time that the lease is held is charged.
  std::vector<const Stream*> streams = {};
  // Belongs to no thread: neither one with nor refused beside others that the thread holds. For work
  // that changes threads, such as coroutines.
  bool any_thread = false;
};

struct LeaseResult {
  bool overrun = false;  // it took more than the maximum
  absl::Duration held;   // host time from acquire to release
};

namespace internal {

inline std::vector<gpushare_stream> Handles(const std::vector<const Stream*>& streams) {
  std::vector<gpushare_stream> handles;
  for (const Stream* stream : streams) {
    handles.push_back(stream == nullptr ? nullptr : stream->handle());
  }
  return handles;
}

// All but the streams.
inline gpushare_lease_options ToC(const LeaseOptions& options) {
  gpushare_lease_options c = {};
  c.struct_size = sizeof(c);
  c.exclusive = options.exclusive ? 1 : 0;
  c.hint_ns = absl::ToInt64Nanoseconds(options.hint);
  c.maximum_ns = absl::ToInt64Nanoseconds(options.maximum);
  c.timeout_ns = absl::ToInt64Nanoseconds(options.timeout);
  c.any_thread = options.any_thread ? 1 : 0;
  return c;
}

}  // namespace internal

class Lease {
 public:
  static absl::StatusOr<Lease> Acquire(const VirtualDevice& device,
                                       const LeaseOptions& options = {}) {
    const std::vector<gpushare_stream> streams = internal::Handles(options.streams);
    gpushare_lease_options c = internal::ToC(options);
    c.streams = streams.data();
    c.stream_count = streams.size();
    gpushare_lease lease = nullptr;
    const gpushare_status code = gpushare_lease_acquire(device.handle(), &c, &lease);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Lease(lease);
  }

  Lease(Lease&& other) noexcept : lease_(std::exchange(other.lease_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      Drop();
      lease_ = std::exchange(other.lease_, nullptr);
    }
    return *this;
  }
  ~Lease() { Drop(); }

  // Waits for nothing. InvalidArgument when it has been released or moved from.
  absl::StatusOr<LeaseResult> Release() {
    gpushare_lease_result c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_lease_release(std::exchange(lease_, nullptr), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return LeaseResult{c.overrun != 0, absl::Nanoseconds(c.held_ns)};
  }

 private:
  explicit Lease(gpushare_lease lease) : lease_(lease) {}
  void Drop() {
    if (lease_ != nullptr) static_cast<void>(gpushare_lease_release(lease_, nullptr));
    lease_ = nullptr;
  }
  gpushare_lease lease_ = nullptr;
};

}  // namespace gpushare

#endif  // GPUSHARE_LEASE_H_
