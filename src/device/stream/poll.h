// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_DEVICE_STREAM_POLL_H_
#define GPUSHARE_DEVICE_STREAM_POLL_H_

#include "base/time.h"

namespace gpushare::device {

// How often one who waits for the work of other streams asks whether it is over.
inline constexpr Nanos kPoll = Millis(1);

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_STREAM_POLL_H_
