// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: physical allocations, reserved addresses, and the mappings between them. They belong to the
// process and not to a context, so they outlive every context.
#ifndef GPUSHARE_SIM_MEMORY_VIRTUAL_MEMORY_H_
#define GPUSHARE_SIM_MEMORY_VIRTUAL_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/handles.h"
#include "sim/memory/multicast.h"
#include "sim/memory/storage.h"

namespace gpushare::sim {

class Device;
struct Context;

// Physical memory. It is charged to its device from its creation until it has no reference, mapping or exported descriptor.
struct Allocation {
  uint64_t handle = 0;
  uint64_t id = 0;
  Device* device = nullptr;  // for a multicast object: the first device of its team
  uint64_t size = 0;
  uint64_t charged = 0;
  Storage storage;
  std::unique_ptr<MulticastTeam> team;  // for a multicast object, which has no bytes of its own
  bool external = false;                // memory of an outside exporter
  uint32_t references = 1;              // held by programs: from creation, import and retention
  uint32_t mappings = 0;
  bool stranded = false;  // no reference and no mapping is left, but perhaps a descriptor
  // As given at creation, for cuMemGetAllocationPropertiesFromHandle.
  uint32_t handle_types = 0;
  uint16_t usage = 0;
  uint8_t compression = 0, rdma = 0;
  // One socket for each exported descriptor. The descriptor is the other end, and carries the file with the bytes. The socket
  // tells when no process has the descriptor any more.
  std::vector<int> exports;
  // For external memory the exporter's file; for exported memory the file with the bytes.
  int descriptor = -1;
  uint64_t shared = 0;  // its number among the device's processes; 0: only this process has it
  // For external memory: the context that imported it.
  const Context* context = nullptr;

  ~Allocation();
};

struct Reservation {
  Storage addresses;
  uint64_t address() const { return addresses.address(); }
  uint64_t size() const { return addresses.size(); }
};

struct Mapping {
  uint64_t address = 0, size = 0;
  Allocation* allocation = nullptr;
  uint64_t offset = 0;
  uint64_t readable = 0, writable = 0;  // one bit per device
  bool sync_memops = false;
  bool buffer = false;  // for external memory: cuMemFree ends it
};

class VirtualMemory {
 public:
  static constexpr uint64_t kGranularity = 2 << 20;

  // Null when the device or the machine has no room for it.
  Allocation* Create(Device* device, uint64_t size);
  // The allocation with the handle, if some reference still holds it, else null.
  Allocation* Find(uint64_t handle) const { return FindHeld(handle, /*external=*/false); }
  void Release(Allocation* allocation);

  // A file descriptor, owned by the caller, that stands for the allocation. -1 if the machine has none left.
  static int Export(Allocation* allocation);
  // Finds the live allocation that the descriptor stands for, and adds a reference. An allocation of another process becomes a
  // new one here. A CUresult.
  int Import(int descriptor, Allocation** allocation);
  // Called in a forked child: from here on it only reads what it shares with other processes.
  void KeepToItself();
  // Gives up allocations that were kept only by descriptors that are closed by now. There is no notification of that, so call
  // this before reading what is used, or when room is needed.
  void Collect();

  // 0 when the machine has no such range.
  uint64_t Reserve(uint64_t size, uint64_t alignment, uint64_t hint);
  // False unless the range is a whole reservation without mappings.
  bool FreeReservation(uint64_t address, uint64_t size);
  const Reservation* FindReservation(uint64_t address) const;

  // External memory: the bytes of a file that stands for the exporter, which is charged once however often a context imports
  // it. Takes over the descriptor. Null when there is no room.
  Allocation* ImportFile(Context* context, int descriptor, uint64_t size);
  // The same for memory that another process is charged with.
  Allocation* ImportShared(Context* context, int descriptor, uint64_t size);
  // Frees what the context imported, with its buffers, when the context ends.
  void FreeExternalOf(const Context* context);
  Allocation* FindExternal(uint64_t handle) const { return FindHeld(handle, /*external=*/true); }
  // Maps a part of it where the device may read and write. 0 if the machine has no addresses left.
  uint64_t MapBuffer(Allocation* allocation, uint64_t offset, uint64_t size);
  // False unless `address` came from MapBuffer() and is live.
  bool FreeBuffer(uint64_t address);

  Allocation* CreateMulticast(uint64_t size, unsigned devices);
  // Waits until the team is complete. A CUresult: the object may have been destroyed meanwhile.
  int WaitForTeam(Allocation* object);
  static bool IsUnbound(const Allocation& object, const Device* device, uint64_t offset,
                        uint64_t size);
  // Memory bound to a multicast object counts as mapped.
  void DropMapping(Allocation* allocation);

  // False unless the range lies in one reservation and nothing is mapped there.
  bool Map(uint64_t address, uint64_t size, Allocation* allocation, uint64_t offset);
  // Whether the range consists of whole mappings without a gap.
  bool IsWhole(uint64_t address, uint64_t size) const;
  void Unmap(uint64_t address, uint64_t size);
  // Calls `f` for every mapping of a range for which IsWhole() is true.
  template <typename F>
  void ForEach(uint64_t address, uint64_t size, F&& f) {
    for (auto at = mappings_.find(address); size > 0; ++at) {
      size -= at->second.size;
      f(at->second);
    }
  }
  // The mapping that contains the address, else null.
  Mapping* FindMapping(uint64_t address);
  // Whether every byte of the range is mapped.
  bool IsMapped(uint64_t address, uint64_t size);

  bool empty() const { return reservations_.empty(); }
  void Clear();

 private:
  Allocation* FindHeld(uint64_t handle, bool external) const;
  Allocation* Import(Context* context, int descriptor, uint64_t size, uint64_t charged);
  void DeleteIfUnused(Allocation* allocation);
  void Drop(std::map<uint64_t, Mapping>::iterator at);

  HandleTable<Allocation, HandleTag::kAllocation> allocations_;
  std::map<uint64_t, Reservation> reservations_;
  std::map<uint64_t, Mapping> mappings_;
  uint64_t stranded_ = 0;  // allocations kept only by descriptors
};

inline bool Granular(uint64_t value) { return value % VirtualMemory::kGranularity == 0; }

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_VIRTUAL_MEMORY_H_
