// SPDX-License-Identifier: Apache-2.0
// How far a stream has come that gpushare did not make, as far as it was told of.
//
//   foreign->Mark(native);          // within a call that names the stream: all it was given until now
//   if (foreign->Over()) ...        // later, whether the stream is still there or not
//
// Threading: thread-safe; the GPU's context must be current, and the thread in the relaxed mode.
#ifndef GPUSHARE_DEVICE_MEMORY_FOREIGN_STREAM_H_
#define GPUSHARE_DEVICE_MEMORY_FOREIGN_STREAM_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "driver/driver.h"

namespace gpushare::device {

class ForeignStream {
 public:
  explicit ForeignStream(const driver::Driver& driver) : driver_(driver) {
    if (driver_.CreateEvent(&event_, /*timing=*/false) != driver::Result::kSuccess) {
      event_ = nullptr;
    }
  }
  ~ForeignStream() {
    if (event_ != nullptr) static_cast<void>(driver_.DestroyEvent(event_));
  }
  ForeignStream(const ForeignStream&) = delete;
  ForeignStream& operator=(const ForeignStream&) = delete;

  // What cannot be marked, because the stream captures for one, is over when a later mark is.
  void Mark(driver::Stream native) {
    const uint64_t asked = asked_.fetch_add(1) + 1;
    // Of the legacy stream a mark breaks what others capture; of a stream that captures it becomes a part.
    driver::Driver::Capture capture = driver::Driver::Capture::kNone;
    if (event_ == nullptr || driver_.StreamCapture(native, &capture) != driver::Result::kSuccess ||
        capture != driver::Driver::Capture::kNone ||
        driver_.RecordEvent(event_, native) != driver::Result::kSuccess) {
      return;
    }
    uint64_t marked = marked_.load();
    while (marked < asked && !marked_.compare_exchange_weak(marked, asked)) {
    }
  }

  // Whether Over() comes to be true by itself.
  bool marked() const { return marked_.load() == asked_.load(); }
  // A lost context answers errors: nothing runs there any more.
  bool Over() const {
    return marked() &&
           (event_ == nullptr || driver_.QueryEvent(event_) != driver::Result::kNotReady);
  }

 private:
  const driver::Driver& driver_;
  driver::Event event_ = nullptr;
  std::atomic<uint64_t> asked_{0}, marked_{0};  // calls of Mark(); the latest that succeeded
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_FOREIGN_STREAM_H_
