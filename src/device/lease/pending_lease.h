// SPDX-License-Identifier: Apache-2.0
// Leases that are asked for and not waited for, behind gpushare_lease_request.
//
// A wait at the gate takes a thread. Each virtual device that is asked so has one (its LeaseLine), which acquires for all of its
// requests, one after the other as they came, and ends when nobody has asked for a while. Such leases belong to no thread.
//
// Who holds what: a request keeps its virtual device and the line, and the line's thread keeps neither: it only names requests,
// each of which is there until its destructor has seen that the thread is done with it. So nothing of gpushare's ends on that
// thread, which would wait for itself.
//
// Threading: thread-safe; a request is destroyed once, and not by its own `done`.
#ifndef GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_
#define GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
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
  explicit LeaseLine(base::Clock& clock) : clock_(clock) {}
  ~LeaseLine();  // no request is left; not on its thread
  LeaseLine(const LeaseLine&) = delete;
  LeaseLine& operator=(const LeaseLine&) = delete;

  bool OnItsThread() const { return std::this_thread::get_id() == id_.load(); }

 private:
  friend class PendingLease;
  // May throw, for want of memory or of threads; then it is not in the line.
  void Join(PendingLease& request);
  void AwaitDoneWith(const PendingLease& request);
  void Run();
  void Serve(PendingLease& request);
  // While one waits for its turn: those behind it whose time is over.
  static int Expire(void* line);
  void Changed();

  base::Clock& clock_;
  std::atomic<uint32_t> changed_{
      0};  // bumped when somebody joins, and when the thread is done with one
  std::atomic<uint32_t> starting_{0};  // a ClockLock's
  std::atomic<std::thread::id> id_{};
  std::unique_ptr<base::ClockThread> thread_;  // with starting_

  base::Mutex mutex_;  // of its requests as well
  std::deque<PendingLease*> waiting_ ABSL_GUARDED_BY(mutex_);
  PendingLease* serving_ ABSL_GUARDED_BY(mutex_) = nullptr;
  PendingLease* expiring_ ABSL_GUARDED_BY(mutex_) = nullptr;  // its `done` runs
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

class PendingLease {
 public:
  // `done` (may be empty) is called once something has come of it, unless it is called off before; on the line's thread, with no
  // lock held.
  static absl::StatusOr<std::shared_ptr<PendingLease>> Ask(std::shared_ptr<VirtualDevice> device,
                                                           LeaseRequest request,
                                                           std::function<void()> done);
  // Calls it off, and waits for a `done` that runs.
  ~PendingLease();
  PendingLease(const PendingLease&) = delete;
  PendingLease& operator=(const PendingLease&) = delete;

  // Readable when something has come of it; its own.
  absl::StatusOr<int> Descriptor();
  // Once. Unavailable: nothing has come of it yet.
  absl::StatusOr<std::shared_ptr<Lease>> Take();
  // Nothing is acquired for it any more, and what was and nobody took goes back. Waits for nothing.
  void CallOff();

  bool OnItsThread() const { return line_->OnItsThread(); }

 private:
  friend class LeaseLine;
  enum class State { kWaits, kServed, kDone, kTaken };

  PendingLease(std::shared_ptr<VirtualDevice> device, LeaseRequest request,
               std::function<void()> done);
  void Finish(absl::StatusOr<std::shared_ptr<Lease>> outcome);

  const std::shared_ptr<VirtualDevice> device_;
  const std::shared_ptr<LeaseLine> line_;  // goes before the device, and with that its clock
  const LeaseRequest request_;
  const std::function<void()> done_;
  std::atomic<bool> called_off_{false};
  // With the line's mutex, as Finish().
  State state_ = State::kWaits;
  absl::StatusOr<std::shared_ptr<Lease>> outcome_ = nullptr;
  base::UniqueFd event_;  // none: nobody has asked for it
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_LEASE_PENDING_LEASE_H_
