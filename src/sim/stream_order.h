// SPDX-License-Identifier: Apache-2.0
// Whether what a stream takes next comes after something in another stream.
#ifndef GPUSHARE_SIM_STREAM_ORDER_H_
#define GPUSHARE_SIM_STREAM_ORDER_H_

#include "sim/stream.h"

namespace gpushare::sim {

// True when the stream's next command cannot start before `command`, which has not completed: by
// events, by the default stream's rule, or because it is in the stream itself.
bool IsOrderedAfter(const Stream* stream, const Command* command);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_STREAM_ORDER_H_
