// SPDX-License-Identifier: Apache-2.0
// What lies at an address of the unified address space.
#ifndef GPUSHARE_SIM_MEMORY_ADDRESS_H_
#define GPUSHARE_SIM_MEMORY_ADDRESS_H_

#include <cstdint>

#include "sim/memory/managed.h"
#include "sim/memory/memory.h"
#include "sim/memory/virtual_memory.h"

namespace gpushare::sim {

class Device;

// What the driver knows of an address: at most one of these, and a reservation beside its mapping.
struct Known {
  Block* block = nullptr;
  Device* device = nullptr;         // of the block or the mapping
  ManagedRange* managed = nullptr;  // then the block is its
  Mapping* mapping = nullptr;
  const Reservation* reservation = nullptr;
  const HostRange* host = nullptr;
  explicit operator bool() const {
    return block != nullptr || reservation != nullptr || host != nullptr;
  }
};
Known Lookup(uint64_t address);

// The live block that holds the address, on any device; null: not device memory, or freed.
Block* FindBlock(uint64_t address, Device** device);
// A program may use it where device memory is wanted: some device's range, live or not, or reserved.
bool IsDeviceAddress(uint64_t address);
// Where its bytes are, for the direction of a copy.
bool LiesOnDevice(uint64_t address);
// Host memory that the driver does not know.
bool IsPageable(uint64_t address);
// Whether work may name the range: live and mapped, if it is device memory.
bool IsUsableRange(uint64_t address, uint64_t span);
// Synchronous work on it waits even where it need not.
bool SyncsMemops(uint64_t address);

enum class Access : uint8_t { kRead, kWrite };

// Bytes that follow each other.
struct Piece {
  enum class Kind : uint8_t {
    kBytes,
    kGone,     // freed since the work was submitted
    kNoAccess  // the device may not
  };
  Kind kind;
  uint8_t* bytes;
  uint64_t length;        // at most what was asked for
  uint32_t replicas = 1;  // of multicast memory: what is written goes to all of them
};
// What the device of this ordinal finds at an address when it wants `bytes` from there on.
Piece FindPiece(uint64_t address, uint64_t bytes, int device, Access access);
// The nth replica of multicast memory at an address where FindPiece() found bytes; n from 1 on.
uint8_t* FindReplica(uint64_t address, uint32_t nth);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_ADDRESS_H_
