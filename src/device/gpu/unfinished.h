// SPDX-License-Identifier: Apache-2.0
// Streams that were destroyed while they had work. Closing a GPU has to wait for that work.
//
//   unfinished.Leave("trainer", StreamEnd::Of(driver, native));   // before the stream is destroyed
//   std::string who = unfinished.Await(clock, clock.Now() + kCloseGrace);   // empty: all has ended
//
// Threading: thread-safe; the GPU's context must be current.
#ifndef GPUSHARE_DEVICE_GPU_UNFINISHED_H_
#define GPUSHARE_DEVICE_GPU_UNFINISHED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "device/stream/stream_end.h"

namespace gpushare::device {

class Unfinished {
 public:
  void Leave(const std::string& tenant, std::shared_ptr<StreamEnd> end);
  // Waits until all work has ended, at most until `deadline`. Returns what has not ended, such as
  // "tenant 'a' (2 streams), tenant 'b' (1 stream)".
  // `tenant`: whose alone are waited for; null: everybody's.
  std::string Await(base::Clock& clock, Time deadline, const std::string* tenant = nullptr);

 private:
  struct End {
    std::string tenant;
    std::shared_ptr<StreamEnd> end;
  };
  // Forgets the ends that have come. Makes queries, which the driver may refuse on a thread that captures a stream.
  void Sweep();

  base::Mutex mutex_;
  std::vector<End> ends_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_GPU_UNFINISHED_H_
