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
//
// Where no thread may wait for it, an event loop for instance, it is asked for, and taken when it is there:
//
//   absl::StatusOr<LeaseRequest> request =
//       LeaseRequest::Ask(*device, {.hint = absl::Milliseconds(2)}, [&] { loop.Post(serve); });
//   ...
//   absl::StatusOr<Lease> lease = request->Take();             // in `serve`
#ifndef GPUSHARE_LEASE_H_
#define GPUSHARE_LEASE_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
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
  friend class LeaseRequest;
  explicit Lease(gpushare_lease lease) : lease_(lease) {}
  void Drop() {
    if (lease_ != nullptr) static_cast<void>(gpushare_lease_release(lease_, nullptr));
    lease_ = nullptr;
  }
  gpushare_lease lease_ = nullptr;
};

// A lease that is asked for and not waited for. It belongs to no thread, and its timeout counts from when it is asked for. The
// requests of a virtual device are served one after the other, as they came.
//
// Errors: what there is to take may be DeadlineExceeded, and Cancelled after Cancel().
// Threading: thread-safe, but that its end is its owner's alone: not in the `done` of a request of the same virtual device,
// for whose end it waits. The end calls it off.
class LeaseRequest {
 public:
  // `done` (may be empty) is called once, when there is something to take and nobody has called it off: on a thread of
  // gpushare's, which serves the next request when it has come back. It throws nothing.
  static absl::StatusOr<LeaseRequest> Ask(const VirtualDevice& device,
                                          const LeaseOptions& options = {},
                                          std::function<void()> done = {}) {
    const std::vector<gpushare_stream> streams = internal::Handles(options.streams);
    gpushare_lease_options c = internal::ToC(options);
    c.streams = streams.data();
    c.stream_count = streams.size();
    auto owned = std::make_unique<std::function<void()>>(std::move(done));
    gpushare_lease_request request = nullptr;
    const gpushare_status code = gpushare_lease_request_create(
        device.handle(), &c, *owned ? &Call : nullptr, owned.get(), &request);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return LeaseRequest(std::move(owned), request);
  }

  LeaseRequest(LeaseRequest&&) noexcept = default;
  LeaseRequest& operator=(LeaseRequest&& other) noexcept {
    handle_ = std::move(other.handle_);  // the old one ends before its callback goes
    done_ = std::move(other.done_);
    return *this;
  }

  // Readable (poll, epoll) when there is something to take. The request's: neither to be read nor closed.
  absl::StatusOr<int> descriptor() const {
    int descriptor = -1;
    const gpushare_status code = gpushare_lease_request_descriptor(handle_.get(), &descriptor);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return descriptor;
  }

  // What has come of it, once. Unavailable: nothing yet. FailedPrecondition: it was taken.
  absl::StatusOr<Lease> Take() {
    gpushare_lease lease = nullptr;
    const gpushare_status code = gpushare_lease_request_take(handle_.get(), &lease);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Lease(lease);
  }

  // Nothing is acquired for it any more, and what nobody has taken goes back. Waits for nothing: `done` may be running, or about
  // to.
  absl::Status Cancel() { return internal::ToStatus(gpushare_lease_request_cancel(handle_.get())); }

 private:
  LeaseRequest(std::unique_ptr<std::function<void()>> done, gpushare_lease_request handle)
      : done_(std::move(done)), handle_(handle) {}
  static void Call(void* done) noexcept { (*static_cast<std::function<void()>*>(done))(); }

  std::unique_ptr<std::function<void()>> done_;
  internal::Handle<gpushare_lease_request, gpushare_lease_request_destroy>
      handle_;  // ends before the callback
};

}  // namespace gpushare

#endif  // GPUSHARE_LEASE_H_
