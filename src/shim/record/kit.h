// SPDX-License-Identifier: Apache-2.0
// The tools that measuring kernels needs in one context: timing events, and a kernel that only waits.
//
// A kernel is measured between two events on its stream. On an idle stream the first event would be stamped long before the
// host has launched the kernel. So the events and the kernel are queued behind a short waiting kernel, which keeps the stream
// busy until the host is done:
//
//   kit.Delay(stream, pace.delay());          // the device waits
//   kit.Stamp(&begin, stream); launch(); kit.Stamp(&end, stream);
//   ...                                       // when `end` has been reached
//   Nanos took = kit.Between(begin, end);
//
// The overhead of two events and a kernel's start is measured with a kernel that reads the device's own clock until a known
// time has passed. It is subtracted.
//
// Threading: one thread at a time. The context need not be current.
#ifndef GPUSHARE_SHIM_RECORD_KIT_H_
#define GPUSHARE_SHIM_RECORD_KIT_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "base/time.h"
#include "driver/driver.h"

namespace gpushare::shim::recording {

// How long the waiting kernel has to keep a stream busy, learnt from how long the host takes to launch.
class HostPace {
 public:
  Nanos delay() const { return delay_; }
  // Records how long the host took. Returns true if that was longer than delay().
  bool Took(Nanos time) {
    const bool late = time > delay_;
    // Move the delay towards twice that time: at once if it is too short, slowly if it is too long.
    delay_ = std::clamp(std::max(2 * time, delay_ - delay_ / 64), kLeast, kMost);
    return late;
  }

 private:
  static constexpr Nanos kLeast = Micros(20), kMost = Millis(2);
  Nanos delay_ = 2 * kLeast;
};

class Kit {
 public:
  // Null if the driver refuses something that it needs. Waits for the device. `pace` is shared by all contexts and must outlive
  // the kit. `waits` says whether to load the waiting kernel.
  static std::unique_ptr<Kit> Make(const driver::Driver& driver, driver::Context context,
                                   HostPace& pace, bool waits);
  ~Kit();
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

  // Keeps the stream busy for `time`. False if the driver does not accept the waiting kernel.
  bool Delay(driver::Stream stream, Nanos time);
  // Records a new event on the stream. Null if the driver refuses.
  driver::Event Stamp(driver::Stream stream);
  void GiveBack(driver::Event event) { free_.push_back(event); }
  // The time between two events, less the measuring overhead. `known` is false if the driver does not tell.
  Nanos Between(driver::Event begin, driver::Event end, bool* known);
  Nanos bias() const { return bias_; }
  driver::Context context() const { return context_; }

 private:
  Kit(const driver::Driver& driver, driver::Context context, HostPace& pace)
      : driver_(driver), context_(context), pace_(pace) {}
  bool Prepare();
  // Measures a kernel of a known length on `stream`. False if that fails.
  bool Try(driver::Stream stream, Nanos* measured, bool* late);
  driver::Event Take();

  const driver::Driver& driver_;
  const driver::Context context_;
  HostPace& pace_;
  driver::Module module_ = nullptr;
  driver::Function wait_ = nullptr;
  Nanos bias_{0};
  std::vector<driver::Event> free_;
};

// Makes a context current during its own lifetime.
class Within {
 public:
  Within(const driver::Driver& driver, driver::Context context)
      : driver_(driver), there_(driver.PushContext(context) == driver::Result::kSuccess) {}
  ~Within() {
    if (there_) driver_.PopContext();
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;
  explicit operator bool() const { return there_; }

 private:
  const driver::Driver& driver_;
  const bool there_;
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_KIT_H_
