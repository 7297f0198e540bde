// SPDX-License-Identifier: Apache-2.0
// For whom a call is made.
#ifndef GPUSHARE_WORK_PAYER_H_
#define GPUSHARE_WORK_PAYER_H_

#include <atomic>

#include "gate/engine.h"

namespace gpushare::work {

// The gates of one identity, by the driver's number of the device; null where nothing is held. One object per
// identity: it stays where it is. A gate may come while its streams are in use; Calls::Forget() is called before it
// goes, when `on` has it no more.
struct Gates {
  static constexpr int kDevices = 16;
  std::atomic<gate::Gate*> on[kDevices] = {};
};

struct Payer {
  const Gates* gates;
  // Others may be waiting for this work: held so long it passes, and is charged.
  Nanos longest_hold = gate::kNoBound;
};

}  // namespace gpushare::work

#endif  // GPUSHARE_WORK_PAYER_H_
