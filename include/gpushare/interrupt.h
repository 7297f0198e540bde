// SPDX-License-Identifier: Apache-2.0
// Ends waits of the calling thread early, because of a signal or because their result is no longer wanted.
//
//   std::atomic<bool> stopping{false};
//   gpushare::InterruptScope scope([&] { return stopping.load(); });
//   absl::StatusOr<gpushare::Lease> lease = gpushare::Lease::Acquire(*device);   // Cancelled, once it is stopping
//
// A call within the scope waits once and keeps its place in line. In a loop with short timeouts, each wait would begin at
// the end of the line and count as a refusal.
//
// Units: the function is called every 50 ms of the runtime's clock. Errors: a call whose wait is ended returns Cancelled, and
// nothing was launched, acquired or allocated; parts of a copy may have been made. Threading: a scope belongs to one thread,
// and does not end waits of other threads.
#ifndef GPUSHARE_INTERRUPT_H_
#define GPUSHARE_INTERRUPT_H_

#include <functional>
#include <utility>

#include "gpushare/c/gpushare.h"

namespace gpushare {

// From construction to destruction, while the calling thread waits for its turn (launches, graphs, leases, gangs), for
// bandwidth (copies) or for memory, `interrupted` decides whether the wait ends. It is called on that thread with no lock
// held. It may call gpushare, must not throw, and is not called for its own waits. A turn that it asks for on the same
// virtual device comes before the one being waited for. If it takes a lease on that GPU and keeps it, a wait for a lease
// ends. Scopes nest: only the innermost one counts.
class InterruptScope {
 public:
  explicit InterruptScope(std::function<bool()> interrupted)
      : interrupted_(std::move(interrupted)) {
    other_.struct_size = sizeof(other_);
    other_.interrupted = [](void* self) {
      return static_cast<InterruptScope*>(self)->interrupted_() ? 1 : 0;
    };
    other_.context = this;
    static_cast<void>(gpushare_thread_exchange_interrupt(&other_));
  }
  ~InterruptScope() { static_cast<void>(gpushare_thread_exchange_interrupt(&other_)); }
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<bool()> interrupted_;
  gpushare_interrupt other_ = {};  // the thread's former callback
};

}  // namespace gpushare

#endif  // GPUSHARE_INTERRUPT_H_
