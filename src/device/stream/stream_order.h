// SPDX-License-Identifier: Apache-2.0
// The order of a stream, which outlives it: what is submitted behind it comes after all that it was given.
//
//   order->Behind(other, [&](driver::Stream stream) { return driver.FreeAsync(pointer, stream); });
//
// While the stream is there that is the stream itself; afterwards `other`, which is made to wait for its end.
//
// Threading: thread-safe; the GPU's context must be current, and the thread in the relaxed mode. Who waits for
// another thread's call does so through the clock.
#ifndef GPUSHARE_DEVICE_STREAM_STREAM_ORDER_H_
#define GPUSHARE_DEVICE_STREAM_STREAM_ORDER_H_

#include <atomic>
#include <memory>
#include <utility>

#include "base/clock_lock.h"
#include "device/gpu/gpu.h"
#include "device/stream/stream_end.h"
#include "driver/driver.h"

namespace gpushare::device {

class StreamOrder {
 public:
  StreamOrder(const Gpu& gpu, driver::Stream native)
      : gpu_(gpu), driver_(gpu.driver()), native_(native) {}
  StreamOrder(const StreamOrder&) = delete;
  StreamOrder& operator=(const StreamOrder&) = delete;

  // The stream is about to be destroyed. `end` null: unknown.
  void Ends(std::shared_ptr<StreamEnd> end) {
    const base::ClockLock lock(driver_.clock(), busy_);
    gone_ = true;
    end_ = std::move(end);
  }

  // While it is there.
  driver::Stream native() const { return native_; }

  // Something was freed behind it, which it may have again before others; told once.
  void Freed() { freed_.store(true, std::memory_order_relaxed); }
  bool TakeFreed() { return freed_.exchange(false, std::memory_order_relaxed); }

  template <typename Call>
  driver::Result Behind(driver::Stream other, const Call& call) {
    const base::ClockLock lock(driver_.clock(), busy_);
    if (!gone_) return call(native_);
    if (!reached_) {
      // Where nobody could tell when it ends, it does by the end of everything.
      const driver::Result result = end_ == nullptr ? gpu_.AwaitWork()
                                    : end_->Over()  ? driver::Result::kSuccess
                                                    : end_->HoldBack(other);
      if (result != driver::Result::kSuccess) return result;
      reached_ = end_ == nullptr || end_->Over();
    }
    return call(other);
  }

 private:
  const Gpu& gpu_;  // there for as long as somebody calls Behind()
  const driver::Driver& driver_;
  const driver::Stream native_;
  std::atomic<bool> freed_{false};
  std::atomic<uint32_t> busy_{0};  // a ClockLock, of what follows
  bool gone_ = false;
  bool reached_ = false;  // all it was given is over
  std::shared_ptr<StreamEnd> end_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_STREAM_STREAM_ORDER_H_
