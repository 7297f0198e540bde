// SPDX-License-Identifier: Apache-2.0
#include "device/process/runtimes.h"

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "device/gpu/gpu.h"
#include "device/process/runtime.h"

namespace gpushare::device {
namespace {

struct Listed {
  base::Mutex mutex;
  std::vector<std::weak_ptr<Runtime>> runtimes ABSL_GUARDED_BY(mutex);
};

// Never destroyed: memory may be freed while the process exits.
Listed& AllRuntimes() {
  static auto* const listed = new Listed;
  return *listed;
}

}  // namespace

void ListRuntime(const std::shared_ptr<Runtime>& runtime) {
  Listed& all = AllRuntimes();
  const base::MutexLock lock(&all.mutex);
  std::erase_if(all.runtimes, [](const auto& weak) { return weak.expired(); });
  all.runtimes.push_back(runtime);
}

std::vector<std::shared_ptr<Gpu>> OpenGpusOver(const driver::Driver& driver) {
  std::vector<std::shared_ptr<Runtime>>
      runtimes;  // the last to let go of one does so without the lock
  {
    Listed& all = AllRuntimes();
    const base::MutexLock lock(&all.mutex);
    for (const auto& weak : all.runtimes) {
      if (std::shared_ptr<Runtime> runtime = weak.lock()) runtimes.push_back(std::move(runtime));
    }
  }
  std::vector<std::shared_ptr<Gpu>> gpus;
  for (const std::shared_ptr<Runtime>& runtime : runtimes) {
    if (runtime->driver().path() != driver.path()) continue;
    for (std::shared_ptr<Gpu>& gpu : runtime->OpenGpus()) gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace gpushare::device
