// SPDX-License-Identifier: Apache-2.0
// Within the scope the calling thread's calls are legal while another thread captures in the global mode, and
// break no capture of its own: memory is taken and given back, and streams are asked, whoever captures.
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
