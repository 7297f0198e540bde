// SPDX-License-Identifier: Apache-2.0
// Waits that end before their time: for a signal, or because nobody wants their outcome any more.
//
//   std::atomic<bool> stopping{false};
//   gpushare::InterruptScope scope([&] { return stopping.load(); });
//   absl::StatusOr<gpushare::Lease> lease = gpushare::Lease::Acquire(*device);   // Cancelled, once it is stopping
//
// One call then waits once, in its place in line, for as long as it is to. Short timeouts in a loop would each begin at the
// end of the line, and count as so many refusals.
//
// Units: the thread is asked each 50 ms of the runtime's clock. Errors: the call that waited answers Cancelled, and nothing
// was launched, acquired or allocated; pieces of a copy may have been made. Threading: of one thread; waits of others are not asked about.
#ifndef GPUSHARE_INTERRUPT_H_
#define GPUSHARE_INTERRUPT_H_

#include <functional>
#include <utility>

#include "gpushare/c/gpushare.h"

namespace gpushare {

// From construction to destruction, while the calling thread waits for its turn (launches, graphs, leases, gangs), for bandwidth
// (copies) or for memory, `interrupted` says whether the wait is to end. It is called on that thread with no lock held, may call gpushare,
// must not throw, and is not asked about its own waits. A turn that it waits for on the same virtual device comes before the
// one that it is asked about; a lease that it takes on that GPU and keeps ends a wait for one. Scopes nest: the innermost is asked.
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
  gpushare_interrupt other_ = {};  // what the thread had before
};

}  // namespace gpushare

#endif  // GPUSHARE_INTERRUPT_H_
