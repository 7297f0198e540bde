// SPDX-License-Identifier: Apache-2.0
// Streams that were destroyed while their work went on: what closing a GPU has to wait for.
//
//   unfinished.Leave("trainer", native);                     // before the stream is destroyed
//   std::string who = unfinished.Await(clock, clock.Now() + kCloseGrace);   // empty: all has ended
//
// An event is recorded behind the work of such a stream and asked for later, since the stream itself is
// gone then. No call waits in the driver. A stream that is idle costs one query.
//
// Threading: thread-safe; the GPU's context must be current.
#ifndef GPUSHARE_DEVICE_UNFINISHED_H_
#define GPUSHARE_DEVICE_UNFINISHED_H_

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::device {

class Unfinished {
 public:
  explicit Unfinished(const driver::Driver& driver) : driver_(driver) {}
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  void Leave(const std::string& tenant, driver::Stream stream);
  // Waits until everything has ended, at most until `deadline`. Tells what has not, as
  // "tenant 'a' (2 streams), tenant 'b' (1 stream)".
  std::string Await(base::Clock& clock, Time deadline);

 private:
  struct End {
    std::string tenant;
    driver::Event event;
  };
  // Forgets those that have ended. Queries, which the driver may refuse a thread that captures.
  void Sweep();

  const driver::Driver& driver_;
  base::Mutex mutex_;
  std::vector<End> ends_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_UNFINISHED_H_
