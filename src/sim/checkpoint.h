// SPDX-License-Identifier: Apache-2.0
// Where this process stands between running and checkpointed, as cuCheckpointProcess*() tell and change it.
//
//   running --Lock--> locked --Checkpoint--> checkpointed --Restore--> locked --Unlock--> running
//
// Not running, its calls wait; checkpointed, it has nothing of its devices.
#ifndef GPUSHARE_SIM_CHECKPOINT_H_
#define GPUSHARE_SIM_CHECKPOINT_H_

#include <cstdint>

#include "sim/clock/clock.h"

namespace gpushare::sim {

struct Checkpoint {
  enum class State : uint8_t { kRunning, kLocked, kCheckpointed };  // as CUprocessState

  State state = State::kRunning;
  bool held = false;  // calls wait: it is not running, or about to be locked
  WaitList waiting;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CHECKPOINT_H_
