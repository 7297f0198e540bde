// SPDX-License-Identifier: Apache-2.0
// What the measurement of kernels needs in one context: timing events, and a kernel that does nothing for a while.
//
// A kernel is measured between two events on its stream. On a stream that has nothing to do, the first would be stamped long
// before the host has launched the kernel; so all of it stands behind a short kernel of ours, which keeps the
// stream until the host is done:
//
//   kit.Delay(stream, pace.delay());          // the device waits
//   kit.Stamp(&begin, stream); launch(); kit.Stamp(&end, stream);
//   ...                                       // when `end` has come
//   Nanos took = kit.Between(begin, end);
//
// What two events and the begin of a kernel take themselves is measured with a kernel that looks at the device's own clock
// until a known time has passed, and taken off.
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

// For how long a stream is to be kept while the host launches: learnt from how long that takes it.
class HostPace {
 public:
  Nanos delay() const { return delay_; }
  // It took so long. True: longer than the stream was kept.
  bool Took(Nanos time) {
    const bool late = time > delay_;
    // Towards twice that: at once where it is too short, slowly where it is too long.
    delay_ = std::clamp(std::max(2 * time, delay_ - delay_ / 64), kLeast, kMost);
    return late;
  }

 private:
  static constexpr Nanos kLeast = Micros(20), kMost = Millis(2);
  Nanos delay_ = 2 * kLeast;
};

class Kit {
 public:
  // Null: the driver refuses what it takes. Waits for the device. `pace` is that of all contexts, and outlives it.
  // `waits`: with the kernel.
  static std::unique_ptr<Kit> Make(const driver::Driver& driver, driver::Context context,
                                   HostPace& pace, bool waits);
  ~Kit();
  Kit(const Kit&) = delete;
  Kit& operator=(const Kit&) = delete;

  // False: the driver takes no such kernel there, and nothing keeps the stream.
  bool Delay(driver::Stream stream, Nanos time);
  // A new event on the stream. Null: the driver refuses.
  driver::Event Stamp(driver::Stream stream);
  void GiveBack(driver::Event event) { free_.push_back(event); }
  // Less what measuring takes. `known` false: the driver does not say.
  Nanos Between(driver::Event begin, driver::Event end, bool* known);
  Nanos bias() const { return bias_; }
  driver::Context context() const { return context_; }

 private:
  Kit(const driver::Driver& driver, driver::Context context, HostPace& pace)
      : driver_(driver), context_(context), pace_(pace) {}
  bool Prepare();
  // Measures a kernel of a known length on `stream`. False: it cannot be done.
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

// Makes a context current while it lives.
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
