// SPDX-License-Identifier: Apache-2.0
#include "device/stream/stream_end.h"

namespace gpushare::device {

std::shared_ptr<StreamEnd> StreamEnd::Of(const driver::Driver& driver, driver::Stream stream) {
  driver::Event event = nullptr;
  switch (driver.QueryStream(stream)) {
    case driver::Result::kSuccess:
      break;
    case driver::Result::kNotReady:
      if (driver.CreateEvent(&event, /*timing=*/false) != driver::Result::kSuccess) return nullptr;
      if (driver.RecordEvent(event, stream) != driver::Result::kSuccess) {
        static_cast<void>(driver.DestroyEvent(event));
        return nullptr;
      }
      break;
    default:
      return nullptr;  // of a lost context, for one
  }
  return std::shared_ptr<StreamEnd>(new StreamEnd(driver, event));
}

StreamEnd::~StreamEnd() {
  if (event_ != nullptr) static_cast<void>(driver_.DestroyEvent(event_));
}

bool StreamEnd::Over() {
  if (over_.load(std::memory_order_acquire)) return true;
  // A lost context answers errors: nothing runs there any more.
  if (driver_.QueryEvent(event_) == driver::Result::kNotReady) return false;
  over_.store(true, std::memory_order_release);
  return true;
}

}  // namespace gpushare::device
