// SPDX-License-Identifier: Apache-2.0
// The state of this process between running and checkpointed, as cuCheckpointProcess*() report and change it.
//
//   running --Lock--> locked --Checkpoint--> checkpointed --Restore--> locked --Unlock--> running
//
// Calls wait in every state but running. A checkpointed process holds nothing on its devices.
#ifndef GPUSHARE_SIM_CHECKPOINT_H_
#define GPUSHARE_SIM_CHECKPOINT_H_

#include <cstdint>

#include "sim/clock/clock.h"

namespace gpushare::sim {

struct Checkpoint {
  enum class State : uint8_t { kRunning, kLocked, kCheckpointed };  // as CUprocessState

  State state = State::kRunning;
  bool held = false;  // calls wait: the process is not running, or is about to be locked
  WaitList waiting;
};

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CHECKPOINT_H_
