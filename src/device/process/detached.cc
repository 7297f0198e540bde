// SPDX-License-Identifier: Apache-2.0
#include "device/process/detached.h"

#include <atomic>
#include <iterator>
#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/service_threads.h"
#include "base/sync.h"

namespace gpushare::device {
namespace {

// A thread that is never joined keeps its stack, so each is joined by the next one's start, when it is over.
struct Detached {
  std::shared_ptr<const driver::Driver> driver;  // whose clock the thread needs until it is joined
  std::unique_ptr<base::ClockThread> thread;     // null: it is being started
  std::atomic<bool> over{false};
};

struct All {
  base::Mutex mutex;
  std::list<std::shared_ptr<Detached>> threads ABSL_GUARDED_BY(mutex);
};

// Never destroyed: some do not end.
All& AllDetached() {
  static auto* const all = new All;
  return *all;
}

void JoinThoseThatAreOver() {
  std::list<std::shared_ptr<Detached>> over;
  {
    const base::MutexLock lock(&AllDetached().mutex);
    std::list<std::shared_ptr<Detached>>& threads = AllDetached().threads;
    for (auto at = threads.begin(); at != threads.end();) {
      const auto next = std::next(at);
      if ((*at)->thread != nullptr && (*at)->over) over.splice(over.end(), threads, at);
      at = next;
    }
  }
  for (const std::shared_ptr<Detached>& each : over) each->thread.reset();
}

}  // namespace

void RunDetached(std::shared_ptr<const driver::Driver> driver, std::string name,
                 std::function<void()> body) {
  JoinThoseThatAreOver();
  const auto detached = std::make_shared<Detached>();
  detached->driver = std::move(driver);
  {
    const base::MutexLock lock(&AllDetached().mutex);
    AllDetached().threads.push_back(detached);
  }
  try {
    std::unique_ptr<base::ClockThread> thread = detached->driver->clock().StartThread(
        std::move(name), base::Service([detached, body = std::move(body)]() mutable {
          std::exchange(body, nullptr)();
          detached->over = true;
        }));
    const base::MutexLock lock(&AllDetached().mutex);
    detached->thread = std::move(thread);
  } catch (...) {
    const base::MutexLock lock(&AllDetached().mutex);
    AllDetached().threads.remove(detached);
    throw;
  }
}

}  // namespace gpushare::device
