// SPDX-License-Identifier: Apache-2.0
// A scope in which the calling thread's driver calls are legal while any thread captures in GLOBAL mode, and do not invalidate
// a capture. gpushare allocates, frees and queries streams within it.
#ifndef GPUSHARE_DRIVER_RELAXED_CAPTURE_H_
#define GPUSHARE_DRIVER_RELAXED_CAPTURE_H_

#include "driver/driver.h"

namespace gpushare::driver {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& driver) : driver_(driver) {
    exchanged_ = driver_.ExchangeThreadCaptureMode(&mode_) == Result::kSuccess;
  }
  ~RelaxedCapture() {
    if (exchanged_) static_cast<void>(driver_.ExchangeThreadCaptureMode(&mode_));
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_;
  int mode_ = Driver::kRelaxedCapture;
  bool exchanged_ = false;
};

}  // namespace gpushare::driver

#endif  // GPUSHARE_DRIVER_RELAXED_CAPTURE_H_
