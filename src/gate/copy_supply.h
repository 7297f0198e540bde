// SPDX-License-Identifier: Apache-2.0
// A budget of bytes to and from the host that comes from outside, because other processes share the same copy limit, or copy
// over the same link.
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
  kUsedUp,     // nothing is left, or there is a debt
  kSuspended,  // no copy may begin, even without a limit
};

enum class LinkState : uint8_t {
  kFree,    // no other process of the same or a higher priority is there
  kShared,  // others are there, but do not copy
  kBound,   // others copy too: TakeLink() may let a copy wait
};

// All gates of an engine share this budget and its debt. The debt outlives the gate that made it, and the engine.
class CopySupply {
 public:
  virtual ~CopySupply() = default;

  // Whether there is a limit at all.
  virtual bool LimitsCopies(CopyDirection direction) const = 0;
  // Whether another process of a higher priority uses the GPU.
  virtual bool OthersGoFirst() const { return false; }
  // Who uses the link to the host. Unless it is free, copies go in pieces, for each of which TakeLink() is asked.
  virtual LinkState Link(CopyDirection /*direction*/) const { return LinkState::kFree; }
  // How many bytes of pieces each tenant may have in flight beside others. 0: as many as it does by itself.
  virtual uint64_t LinkWindow(CopyDirection /*direction*/) const { return 0; }
  // The functions below are called under the engine's lock. They must not take a lock that is held across a call of the
  // engine, must not wait, and must not call back.
  virtual CopyState Copies(CopyDirection direction, Time now) = 0;
  // `bytes` are copied, however few were left. A negative number takes back bytes that were not copied after all.
  virtual void ChargeCopy(CopyDirection direction, int64_t bytes) = 0;
  // A copy waits until there is budget again. Returns when to look again at the latest; Engine::Supplied() may tell the
  // engine earlier.
  virtual Time AwaitCopies(CopyDirection direction, Time now) = 0;
  // Whether `bytes` may be given to the device now. If so they count as given, and LinkDone() follows; if not, the caller asks
  // again soon. `force`: they are given in any case, since they have waited for too long.
  virtual bool TakeLink(CopyDirection /*direction*/, uint64_t /*bytes*/, bool /*force*/,
                        Time /*now*/) {
    return true;
  }
  // Bytes that TakeLink() let go have been copied, or will not be.
  virtual void LinkDone(CopyDirection /*direction*/, uint64_t /*bytes*/) {}
  // No copy waits any more.
  virtual void NobodyAwaitsCopies(CopyDirection direction) = 0;
};

}  // namespace gpushare::gate

#endif  // GPUSHARE_GATE_COPY_SUPPLY_H_
