// SPDX-License-Identifier: Apache-2.0
// Bytes to and from the host that come from outside: other processes copy by the same limit.
#ifndef GPUSHARE_GATE_COPY_SUPPLY_H_
#define GPUSHARE_GATE_COPY_SUPPLY_H_

#include <cstdint>

#include "base/time.h"

namespace gpushare::gate {

enum class CopyDirection : uint8_t { kHostToDevice, kDeviceToHost };

class CopySupply {
 public:
  virtual ~CopySupply() = default;

  // Whether there is a limit at all.
  virtual bool LimitsCopies(CopyDirection direction) const = 0;
  // The two below under the engine's lock: they take no lock that is held across a call of the engine, do not wait, and
  // do not call back.
  // The bytes that have come since it was last asked.
  virtual uint64_t TakeCopyBytes(CopyDirection direction, Time now) = 0;
  // A copy waits until so many have come. When to look for them, at the latest; the engine hears of it before
  // (Engine::Supplied).
  virtual Time WantCopyBytes(CopyDirection direction, uint64_t bytes, Time now) = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_COPY_SUPPLY_H_
