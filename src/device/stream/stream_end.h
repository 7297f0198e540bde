// SPDX-License-Identifier: Apache-2.0
// Whether all is over that a stream was given which is gone by now.
//
//   const std::shared_ptr<StreamEnd> end = StreamEnd::Of(driver, native);   // then it is destroyed
//   if (end != nullptr && end->Over()) ...
//
// Made before the stream is destroyed, and shared by all who have to know. A stream that is idle costs one
// query; behind the work of others an event is recorded, which is asked later. No call waits in the driver.
//
// Threading: thread-safe; the GPU's context must be current.
#ifndef GPUSHARE_DEVICE_STREAM_STREAM_END_H_
#define GPUSHARE_DEVICE_STREAM_STREAM_END_H_

#include <atomic>
#include <memory>

#include "driver/driver.h"

namespace gpushare::device {

class StreamEnd {
 public:
  // Null: the driver does not tell. The stream must not be capturing.
  static std::shared_ptr<StreamEnd> Of(const driver::Driver& driver, driver::Stream stream);
  ~StreamEnd();
  StreamEnd(const StreamEnd&) = delete;
  StreamEnd& operator=(const StreamEnd&) = delete;

  // Queries, which the driver may refuse a thread that captures, until it is over once.
  bool Over();
  // What is submitted to `stream` from now on comes after it.
  driver::Result HoldBack(driver::Stream stream) const {
    return driver_.StreamWaitEvent(stream, event_);
  }

 private:
  StreamEnd(const driver::Driver& driver, driver::Event event)
      : driver_(driver), event_(event), over_(event == nullptr) {}

  const driver::Driver& driver_;
  const driver::Event event_;  // null: it was over when this was made
  std::atomic<bool> over_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_STREAM_STREAM_END_H_
