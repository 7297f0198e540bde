// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_BOOKS_RELAXED_H_
#define GPUSHARE_BOOKS_RELAXED_H_

#include <cuda.h>

#include "driver/table.h"

namespace gpushare::books {

// Sets the thread's capture mode to relaxed, so that the books' own calls are legal while a thread of the program captures.
class Relaxed {
 public:
  explicit Relaxed(const driver::Table& driver) : driver_(driver) { Exchange(); }
  ~Relaxed() { Exchange(); }
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed&) = delete;

 private:
  void Exchange() { driver_.ThreadExchangeStreamCaptureMode(&mode_); }

  const driver::Table& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_RELAXED_H_
