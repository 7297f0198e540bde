// SPDX-License-Identifier: Apache-2.0
// Requests for leases that no thread of the caller waits for, behind gpushare_lease_request.
//
// Waiting at the gate takes a thread. Each virtual device with such requests has one (in its LeaseLine), which acquires leases
// for all of the requests in the order in which they came, and ends when there has been no request for a while. Such leases
// belong to no thread.
//
// Ownership: a request keeps its virtual device and the line alive. The line's thread keeps neither: it only refers to requests,
// and a request's destructor waits until the thread is done with it. So no object of gpushare is destroyed on that thread, which
// would then wait for itself: a request that its `done` lets go of ends on another (EndElsewhere()).
//
// Threading: thread-safe. A request is destroyed once, and not on the line's thread.
#ifndef GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_
#define GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/unique_fd.h"
#include "device/lease/lease.h"

namespace gpushare::device {

class PendingLease;

// The requests of one virtual device.
class LeaseLine {
 public:
  explicit LeaseLine(const VirtualDevice& device);
  ~LeaseLine();  // requires that no request is left; not on its own thread
  LeaseLine(const LeaseLine&) = delete;
  LeaseLine& operator=(const LeaseLine&) = delete;

  bool OnItsThread() const { return std::this_thread::get_id() == id_.load(); }

 private:
  friend class PendingLease;
  // May throw if there is no memory or no thread left; then the request is not in the line.
  void Join(PendingLease& request);
  void AwaitDoneWith(const PendingLease& request);
  void Run();
  void Serve(PendingLease& request);
  // While one request waits for its turn, ends the requests behind it whose timeout has passed.
  static int Expire(void* line);
  void Changed();

  base::Clock& clock_;
  // What requests may end with. Made beforehand, since a copy needs no memory: these ends must not fail.
  const absl::Status no_memory_, late_, called_off_;
  std::atomic<uint32_t> changed_{
      0};  // incremented when a request joins, and when the thread is done with one
  std::atomic<uint32_t> starting_{0};  // a ClockLock
  std::atomic<std::thread::id> id_{};
  std::unique_ptr<base::ClockThread> thread_;  // guarded by starting_

  base::Mutex mutex_;  // guards the requests as well
  std::deque<PendingLease*> waiting_ ABSL_GUARDED_BY(mutex_);
  PendingLease* serving_ ABSL_GUARDED_BY(mutex_) = nullptr;
  PendingLease* expiring_ ABSL_GUARDED_BY(mutex_) = nullptr;  // its `done` runs
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

class PendingLease {
 public:
  // `done` (may be empty) is called once there is a result, unless the request has been called off before. It runs on the line's
  // thread, with no lock held.
  static absl::StatusOr<std::shared_ptr<PendingLease>> Ask(std::shared_ptr<VirtualDevice> device,
                                                           LeaseRequest request,
                                                           std::function<void()> done);
  // Calls the request off, and waits for a running `done`.
  ~PendingLease();
  PendingLease(const PendingLease&) = delete;
  PendingLease& operator=(const PendingLease&) = delete;

  // A descriptor that is readable when there is a result; the request owns it.
  absl::StatusOr<int> Descriptor();
  // Returns the result, once. Unavailable: there is none yet.
  absl::StatusOr<std::shared_ptr<Lease>> Take();
  // Acquires nothing more for the request; a lease that has not been taken goes back. Does not wait.
  void CallOff();

  bool OnItsThread() const { return line_->OnItsThread(); }
  // Calls it off, and destroys it on a thread of its own: for the line's. `take` returns the last reference, and is called once
  // that thread is there. May throw if there is none; then it is called off, and no `done` comes.
  void EndElsewhere(absl::FunctionRef<std::shared_ptr<PendingLease>()> take);

 private:
  friend class LeaseLine;
  enum class State { kWaits, kServed, kDone, kTaken };

  PendingLease(std::shared_ptr<VirtualDevice> device, LeaseRequest request,
               std::function<void()> done);
  void Finish(absl::StatusOr<std::shared_ptr<Lease>> outcome);

  const std::shared_ptr<VirtualDevice> device_;
  const std::shared_ptr<LeaseLine> line_;  // destroyed before the device, which keeps its clock
  const LeaseRequest request_;
  const std::function<void()> done_;
  std::atomic<bool> called_off_{false};
  // Guarded by the line's mutex, which Finish() needs too.
  State state_ = State::kWaits;
  absl::StatusOr<std::shared_ptr<Lease>> outcome_ = nullptr;
  base::UniqueFd event_;  // invalid until Descriptor() is called
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_
