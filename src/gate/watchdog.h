// SPDX-License-Identifier: Apache-2.0
// Reports work that does not end, and a lost context, to the program.
//
// The engine notices both but must not wait for the program, so the watchdog's own thread calls it.
#ifndef GPUSHARE_GATE_WATCHDOG_H_
#define GPUSHARE_GATE_WATCHDOG_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::gate {

struct Incident {
  enum class Kind {
    kStuck,  // work of the tenant is running and has been overdue for longer than the limit
    kFault,  // the context is lost; the tenant had work in flight
  };
  Kind kind = Kind::kStuck;
  std::string tenant;
  Nanos late{0};  // for kStuck: how long it has been overdue
  bool lease = false;
  driver::Stream stream = nullptr;
  driver::Result result = driver::Result::kSuccess;  // for kFault: the driver's answer
};

class Watchdog {
 public:
  using Callback = std::function<void(const Incident&)>;

  // `callback` runs on a thread of `clock`, one incident at a time.
  Watchdog(base::Clock& clock, Nanos limit, Callback callback);
  ~Watchdog();  // calls Stop() if that was not done; not on the callback's thread
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  Nanos limit() const { return limit_; }
  bool OnItsThread() const { return std::this_thread::get_id() == id_.load(); }
  // Waits for a running callback. May be called once, and not on the callback's thread.
  void Stop();
  // May be called from any thread that holds no lock.
  void Tell(std::vector<Incident> incidents);

 private:
  void Run();
  void Poke();

  base::Clock& clock_;
  const Nanos limit_;
  const Callback callback_;
  std::atomic<uint32_t> poke_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<std::thread::id> id_{};
  base::Mutex mutex_;
  std::vector<Incident> told_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<base::ClockThread> thread_;  // last, because it uses the other members
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_WATCHDOG_H_
