// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: physical allocations, reserved addresses, and the mappings of one to the
// other. It belongs to the process and not to a context, so a context's end takes nothing of it away.
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

// Physical memory. It is charged to its device from its creation until no reference, mapping or exported
// descriptor is left.
struct Allocation {
  uint64_t handle = 0;
  uint64_t id = 0;
  Device* device = nullptr;  // of a multicast object: the first of its team
  uint64_t size = 0;
  uint64_t charged = 0;
  Storage storage;
  std::unique_ptr<MulticastTeam> team;  // of a multicast object, which has no bytes of its own
  bool external = false;                // the memory of an exporter outside
  uint32_t references = 1;              // of programs: by creation, import and retention
  uint32_t mappings = 0;
  bool stranded = false;  // neither is left, but a descriptor may be
  // As created, for cuMemGetAllocationPropertiesFromHandle.
  uint32_t handle_types = 0;
  uint16_t usage = 0;
  uint8_t compression = 0, rdma = 0;
  // A socket for each descriptor that was given out, which is the other end and has the file with the bytes: this one
  // tells when nobody has that any more.
  std::vector<int> exports;
  // Of external memory the exporter's file; of what was exported that with the bytes.
  int descriptor = -1;
  uint64_t shared = 0;  // its number among the processes of the device; 0: it is this one's alone
  // Of external memory: whose import it is.
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
  uint64_t readable = 0, writable = 0;  // by the device of that bit
  bool sync_memops = false;
  bool buffer = false;  // of external memory: cuMemFree ends it
};

class VirtualMemory {
 public:
  static constexpr uint64_t kGranularity = 2 << 20;

  // Null: the device has no room for it, or the machine has not.
  Allocation* Create(Device* device, uint64_t size);
  // The allocation of a handle that some reference still holds, else null.
  Allocation* Find(uint64_t handle) const { return FindHeld(handle, /*external=*/false); }
  void Release(Allocation* allocation);

  // A file descriptor of the caller's that stands for the allocation; -1: the machine has none left.
  static int Export(Allocation* allocation);
  // The live allocation that the descriptor stands for, with a reference more; of another process, one that is new here.
  // A CUresult.
  int Import(int descriptor, Allocation** allocation);
  // In a forked child: what it has in common with other processes it only reads from here on.
  void KeepToItself();
  // Gives up what only descriptors kept that are closed by now. Nobody tells when, so whoever wants to know what
  // is used, or needs room, calls it before.
  void Collect();

  // 0: the machine has no such range.
  uint64_t Reserve(uint64_t size, uint64_t alignment, uint64_t hint);
  // False unless it is a whole reservation without mappings.
  bool FreeReservation(uint64_t address, uint64_t size);
  const Reservation* FindReservation(uint64_t address) const;

  // External memory: the bytes of a file that stands for the exporter, which is charged once however
  // often a context imports it. Takes over the descriptor. Null: no room.
  Allocation* ImportFile(Context* context, int descriptor, uint64_t size);
  // The same, of memory that another process is charged with.
  Allocation* ImportShared(Context* context, int descriptor, uint64_t size);
  // The context ends: what it imported, with its buffers.
  void FreeExternalOf(const Context* context);
  Allocation* FindExternal(uint64_t handle) const { return FindHeld(handle, /*external=*/true); }
  // Addresses for a part of it, which the device may read and write; 0: the machine has none.
  uint64_t MapBuffer(Allocation* allocation, uint64_t offset, uint64_t size);
  // False unless `address` is what a MapBuffer() gave and is live.
  bool FreeBuffer(uint64_t address);

  Allocation* CreateMulticast(uint64_t size, unsigned devices);
  // Waits until the team is complete. A CUresult: the object may be gone by then.
  int WaitForTeam(Allocation* object);
  static bool IsUnbound(const Allocation& object, const Device* device, uint64_t offset,
                        uint64_t size);
  // What is bound to a multicast object counts as mapped.
  void DropMapping(Allocation* allocation);

  // False unless the range lies in one reservation and nothing is mapped there.
  bool Map(uint64_t address, uint64_t size, Allocation* allocation, uint64_t offset);
  // Whether the range consists of whole mappings without a gap.
  bool IsWhole(uint64_t address, uint64_t size) const;
  void Unmap(uint64_t address, uint64_t size);
  // Every mapping of a range that is whole.
  template <typename F>
  void ForEach(uint64_t address, uint64_t size, F&& f) {
    for (auto at = mappings_.find(address); size > 0; ++at) {
      size -= at->second.size;
      f(at->second);
    }
  }
  // The mapping that holds the address, else null.
  Mapping* FindMapping(uint64_t address);
  // Whether each byte of the range is mapped.
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
  uint64_t stranded_ = 0;  // allocations that only descriptors keep
};

inline bool Granular(uint64_t value) { return value % VirtualMemory::kGranularity == 0; }

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_VIRTUAL_MEMORY_H_
