// SPDX-License-Identifier: Apache-2.0
// A permit for code that makes its own launches, such as an inference engine or a cuBLAS call.
//
//   absl::StatusOr<Lease> lease =
//       Lease::Acquire(*device, {.hint = absl::Milliseconds(2), .streams = {&*stream}});
//   if (!lease.ok()) return lease.status();
//   model->Execute(stream->native().value());   // all that it launches there is covered
//   lease->Release().IgnoreError();             // or the end of the scope
//
// While the lease is held, kernels of other tenants may run between its kernels, unless it is exclusive. It is charged the
// device time that the known commands of others leave (docs/meter.md).
//
// The thread waits in Acquire(), outside the framework's locks. Use beyond the hint is debt of the virtual device. If the
// thread already holds a lease of the same virtual device, a second lease does not wait, and both count as one: that is
// charged like the first, on the streams of both, until the last of them is released, in any order.
//
// Errors: DeadlineExceeded after `timeout`; FailedPrecondition if the thread holds a lease of another virtual device on the
// same GPU. Threading: may be released by any thread.
//
// If no thread may wait, for instance in an event loop, ask for the lease and take it when it is ready:
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
  absl::Duration maximum = absl::Seconds(1);      // further use becomes debt
  bool exclusive = false;  // no work of others with the same or a lower priority runs meanwhile
  absl::Duration timeout = absl::InfiniteDuration();
  // The streams on which the work will run and be measured. None: the time that the lease is held is charged.
  std::vector<const Stream*> streams = {};
  // The lease belongs to no thread: it is neither merged with other leases of the thread nor refused beside them. For
  // work that changes threads, such as coroutines.
  bool any_thread = false;
};

struct LeaseResult {
  bool overrun = false;  // the lease took more than the maximum
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

// Everything except the streams.
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

  // Does not wait. InvalidArgument if the lease has been released or moved from.
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

// A request for a lease that no thread waits for. The lease belongs to no thread, and its timeout counts from the request.
// The requests of a virtual device are served one after the other, in the order in which they were made.
//
// Errors: Take() may return DeadlineExceeded, and Cancelled after Cancel().
// Threading: thread-safe, except that only the owner may destroy it. Destroying it cancels the request and waits for a
// running `done`; none runs afterwards. Its own `done`, or that of another request of the same virtual device, may destroy it
// too, and does not wait: the request ends soon after that `done` has returned.
class LeaseRequest {
 public:
  // `done` (may be empty) is called once, when Take() has a result and the request has not been cancelled. It runs on a
  // thread of gpushare, which serves the next request after it has returned. It must not throw.
  static absl::StatusOr<LeaseRequest> Ask(const VirtualDevice& device,
                                          const LeaseOptions& options = {},
                                          std::function<void()> done = {}) {
    const std::vector<gpushare_stream> streams = internal::Handles(options.streams);
    gpushare_lease_options c = internal::ToC(options);
    c.streams = streams.data();
    c.stream_count = streams.size();
    auto owned = std::make_shared<Done>(std::move(done));
    gpushare_lease_request request = nullptr;
    const gpushare_status code = gpushare_lease_request_create(
        device.handle(), &c, owned->call ? &Call : nullptr, owned.get(), &request);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return LeaseRequest(std::move(owned), request);
  }

  LeaseRequest(LeaseRequest&&) noexcept = default;
  LeaseRequest& operator=(LeaseRequest&& other) noexcept {
    handle_ = std::move(other.handle_);  // the old request ends before its callback is destroyed
    done_ = std::move(other.done_);
    return *this;
  }

  // Readable (poll, epoll) when Take() has a result. Belongs to the request: do not read or close it.
  absl::StatusOr<int> descriptor() const {
    int descriptor = -1;
    const gpushare_status code = gpushare_lease_request_descriptor(handle_.get(), &descriptor);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return descriptor;
  }

  // Returns the result, once. Unavailable: there is none yet. FailedPrecondition: it has been taken.
  absl::StatusOr<Lease> Take() {
    gpushare_lease lease = nullptr;
    const gpushare_status code = gpushare_lease_request_take(handle_.get(), &lease);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Lease(lease);
  }

  // Cancels the request: nothing more is acquired for it, and a lease that has not been taken goes back. Does not wait, so
  // `done` may be running or about to run.
  absl::Status Cancel() { return internal::ToStatus(gpushare_lease_request_cancel(handle_.get())); }

 private:
  struct Done : std::enable_shared_from_this<Done> {
    explicit Done(std::function<void()> c) : call(std::move(c)) {}
    const std::function<void()> call;
  };
  LeaseRequest(std::shared_ptr<Done> done, gpushare_lease_request handle)
      : done_(std::move(done)), handle_(handle) {}
  static void Call(void* done) noexcept {
    // The call may destroy its request.
    const std::shared_ptr<Done> running = static_cast<Done*>(done)->shared_from_this();
    running->call();
  }

  std::shared_ptr<Done> done_;
  internal::Handle<gpushare_lease_request, gpushare_lease_request_destroy>
      handle_;  // destroyed before the callback
};

}  // namespace gpushare

#endif  // GPUSHARE_LEASE_H_
