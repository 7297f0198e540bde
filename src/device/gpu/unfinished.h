// SPDX-License-Identifier: Apache-2.0
// What a context does that no stream at hand tells of: streams that were destroyed while they had work, and streams that gpushare
// does not know. Closing a GPU has to wait for that work.
//
//   unfinished.Leave("trainer", StreamEnd::Of(driver, native));   // before the stream is destroyed
//   std::string who = unfinished.Await(clock, clock.Now() + kCloseGrace);   // empty: all has ended
//   absl::StatusOr<bool> over = unfinished.AwaitAll(driver, site, deadline);   // what streams have that nobody knows, too
//
// Threading: thread-safe; the GPU's context must be current.
#ifndef GPUSHARE_DEVICE_GPU_UNFINISHED_H_
#define GPUSHARE_DEVICE_GPU_UNFINISHED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "device/gpu/context_wait.h"
#include "device/stream/stream_end.h"

namespace gpushare::device {

class Unfinished {
 public:
  void Leave(const std::string& tenant, std::shared_ptr<StreamEnd> end);
  // Waits until all work has ended, at most until `deadline`. Returns what has not ended, such as
  // "tenant 'a' (2 streams), tenant 'b' (1 stream)".
  // `tenant`: whose alone are waited for; null: everybody's, and what an AwaitAll() has left running.
  std::string Await(base::Clock& clock, Time deadline, const std::string* tenant = nullptr);
  // Waits until the context has done all that it was given, by anybody. False: it has not by `deadline`.
  absl::StatusOr<bool> AwaitAll(const std::shared_ptr<const driver::Driver>& driver,
                                const Site& site, Time deadline) {
    return context_.Await(driver, site, deadline);
  }

 private:
  struct End {
    std::string tenant;
    std::shared_ptr<StreamEnd> end;
  };
  // Forgets the ends that have come. Makes queries, which the driver may refuse on a thread that captures a stream.
  void Sweep();

  ContextWait context_;
  base::Mutex mutex_;
  std::vector<End> ends_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_UNFINISHED_H_
