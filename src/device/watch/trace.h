// SPDX-License-Identifier: Apache-2.0
// What the GPUs of a runtime did, behind gpushare_trace: switches their flight recorders on and off,
// reads them, and writes the file.
//
// The recorders are shared: what a GPU recorded can be read after it is closed.
#ifndef GPUSHARE_DEVICE_WATCH_TRACE_H_
#define GPUSHARE_DEVICE_WATCH_TRACE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "base/time.h"
#include "gate/recorder.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::device {

class Gpu;
class Runtime;

class Trace {
 public:
  // Of all GPUs that are open in the runtime, and those that are opened while it lasts. AlreadyExists:
  // another trace of the runtime records.
  static absl::StatusOr<std::shared_ptr<Trace>> Start(const std::shared_ptr<Runtime>& runtime,
                                                      const gpushare_trace_options& options);
  ~Trace() { Stop(); }

  void Attach(const std::shared_ptr<Gpu>& gpu);
  void Stop();  // what was recorded can still be read
  bool recording() const {
    base::MutexLock lock(&mutex_);
    return !stopped_;
  }

  // Takes up to `most` events, of one GPU after the other, each one's oldest first.
  std::vector<gpushare_trace_event> Read(size_t most);
  uint64_t lost() const;
  // Takes all that was not read, into a file. The file is made new; on an error of the disk what was
  // taken is gone.
  absl::Status Write(const std::string& path);

 private:
  struct Source {
    std::shared_ptr<gate::Recorder> recorder;
    std::weak_ptr<Gpu> gpu;
    int ordinal = 0;
    std::string name;
  };

  Trace(std::shared_ptr<Runtime> runtime, uint32_t capacity);
  static void RecordMemory(Gpu& gpu);

  const std::shared_ptr<Runtime> runtime_;
  const uint32_t capacity_;
  const Time started_;
  mutable base::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Source> sources_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_WATCH_TRACE_H_
