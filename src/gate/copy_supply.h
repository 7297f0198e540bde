// SPDX-License-Identifier: Apache-2.0
// Bytes to and from the host that come from outside: other processes copy by the same limit.
#ifndef GPUSHARE_GATE_COPY_SUPPLY_H_
#define GPUSHARE_GATE_COPY_SUPPLY_H_

#include <cstdint>

#include "base/time.h"

namespace gpushare::gate {

enum class CopyDirection : uint8_t { kHostToDevice, kDeviceToHost };

// Whether a copy may begin.
enum class CopyState : uint8_t {
  kUnlimited,
  kOpen,
  kUsedUp,     // nothing is left, or less: a debt
  kSuspended,  // nor may one that has no limit
};

// All gates of an engine share what has come, and a debt is everybody's: it outlives the gate that made it, and the
// engine.
class CopySupply {
 public:
  virtual ~CopySupply() = default;

  // Whether there is a limit at all.
  virtual bool LimitsCopies(CopyDirection direction) const = 0;
  // Whether somebody of a higher priority is on the GPU, in another process.
  virtual bool OthersGoFirst() const { return false; }
  // Those below under the engine's lock: they take no lock that is held across a call of the engine, do not wait, and
  // do not call back.
  virtual CopyState Copies(CopyDirection direction, Time now) = 0;
  // So many bytes cross, however few were left; less than 0: they did not after all.
  virtual void ChargeCopy(CopyDirection direction, int64_t bytes) = 0;
  // Somebody waits until there is something again. When to look, at the latest; the engine hears of it before
  // (Engine::Supplied).
  virtual Time AwaitCopies(CopyDirection direction, Time now) = 0;
  // And nobody any more.
  virtual void NobodyAwaitsCopies(CopyDirection direction) = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_COPY_SUPPLY_H_
