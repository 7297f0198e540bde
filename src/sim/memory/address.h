// SPDX-License-Identifier: Apache-2.0
// What is at an address of the unified address space.
#ifndef GPUSHARE_SIM_MEMORY_ADDRESS_H_
#define GPUSHARE_SIM_MEMORY_ADDRESS_H_

#include <cstdint>

#include "sim/memory/managed.h"
#include "sim/memory/memory.h"
#include "sim/memory/virtual_memory.h"

namespace gpushare::sim {

class Device;

// What the driver knows of an address. At most one of block, reservation and host is set. A mapping comes with its reservation.
struct Known {
  Block* block = nullptr;
  Device* device = nullptr;         // of the block or the mapping
  ManagedRange* managed = nullptr;  // if set, the block belongs to it
  Mapping* mapping = nullptr;
  const Reservation* reservation = nullptr;
  const HostRange* host = nullptr;
  explicit operator bool() const {
    return block != nullptr || reservation != nullptr || host != nullptr;
  }
};
Known Lookup(uint64_t address);

// The live block that contains the address, on any device. Null for other memory, or if it was freed.
Block* FindBlock(uint64_t address, Device** device);
// Whether programs may use the address as device memory: it is in some device's range, live or not, or reserved.
bool IsDeviceAddress(uint64_t address);
// Whether its bytes are on a device, which decides the direction of a copy.
bool LiesOnDevice(uint64_t address);
// Whether it is host memory that the driver does not know.
bool IsPageable(uint64_t address);
// Whether work may use the range: if it is device memory, it must be live and mapped.
bool IsUsableRange(uint64_t address, uint64_t span);
// Whether synchronous work on it waits even where it need not.
bool SyncsMemops(uint64_t address);

enum class Access : uint8_t { kRead, kWrite };

// A contiguous run of bytes.
struct Piece {
  enum class Kind : uint8_t {
    kBytes,
    kGone,     // freed since the work was submitted
    kNoAccess  // the device may not access it
  };
  Kind kind;
  uint8_t* bytes;
  uint64_t length;        // at most the requested length
  uint32_t replicas = 1;  // for multicast memory: a write goes to all of them
};
// What the device with this ordinal finds at an address when it needs `bytes` from there on.
Piece FindPiece(uint64_t address, uint64_t bytes, int device, Access access);
// The nth replica of multicast memory at an address where FindPiece() found bytes; n counts from 1.
uint8_t* FindReplica(uint64_t address, uint32_t nth);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_ADDRESS_H_
