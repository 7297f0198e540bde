// SPDX-License-Identifier: Apache-2.0
// One stream of one tenant, to which a player sends its commands, and the clock that it uses.
#ifndef GPUSHARE_PLAYER_PORT_H_
#define GPUSHARE_PLAYER_PORT_H_

#include "absl/status/status.h"
#include "base/time.h"
#include "player/program.h"

namespace gpushare::player {

// Threading: called from the playing thread only.
class Port {
 public:
  virtual ~Port() = default;
  virtual absl::Status Launch(const Step& step) = 0;  // may wait
  virtual absl::Status Synchronize() = 0;
  virtual Time Now() = 0;
  virtual void SleepUntil(Time when) = 0;
};

}  // namespace gpushare::player

#endif  // GPUSHARE_PLAYER_PORT_H_
