// SPDX-License-Identifier: Apache-2.0
#include "sim/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "sim/device.h"

namespace gpushare::sim {

Allocation::~Allocation() {
  if (descriptor >= 0) close(descriptor);
}

Allocation* VirtualMemory::Create(Device* device, uint64_t size) {
  if (!device->memory.Charge(size)) return nullptr;
  auto allocation = std::make_unique<Allocation>();
  if (!allocation->storage.Map(size)) {
    device->memory.Return(size);
    return nullptr;
  }
  allocation->device = device;
  allocation->size = size;
  allocation->id = device->memory.NextId();
  allocation->handle = allocations_.Add(allocation.get());
  return allocation.release();
}

Allocation* VirtualMemory::Find(uint64_t handle) const {
  Allocation* const allocation = allocations_.Find(handle);
  return allocation != nullptr && allocation->references > 0 ? allocation : nullptr;
}

void VirtualMemory::Release(Allocation* allocation) {
  --allocation->references;
  DeleteIfUnused(allocation);
}

void VirtualMemory::DeleteIfUnused(Allocation* allocation) {
  if (allocation->references > 0 || allocation->mappings > 0) return;
  allocations_.Remove(allocation->handle);
  allocation->device->memory.Return(allocation->size);
  delete allocation;
}

int VirtualMemory::Export(Allocation* allocation) {
  if (allocation->descriptor < 0) {
    // The file stays empty: which file it is tells what it stands for.
    allocation->descriptor = memfd_create("gpushare-sim-allocation", MFD_CLOEXEC);
    if (allocation->descriptor < 0) return -1;
  }
  return fcntl(allocation->descriptor, F_DUPFD_CLOEXEC, 0);
}

Allocation* VirtualMemory::Import(int descriptor) const {
  struct stat asked, known;
  if (fstat(descriptor, &asked) != 0) return nullptr;
  for (Allocation* allocation : allocations_.All()) {
    if (allocation->descriptor < 0 || fstat(allocation->descriptor, &known) != 0) continue;
    if (known.st_dev == asked.st_dev && known.st_ino == asked.st_ino) return allocation;
  }
  return nullptr;
}

uint64_t VirtualMemory::Reserve(uint64_t size, uint64_t alignment, uint64_t hint) {
  Storage addresses;
  if (!addresses.Reserve(size, alignment, hint)) return 0;
  const uint64_t address = addresses.address();
  reservations_.emplace(address, Reservation{std::move(addresses)});
  return address;
}

bool VirtualMemory::FreeReservation(uint64_t address, uint64_t size) {
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size() != size) return false;
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first - address < size) return false;
  reservations_.erase(found);
  return true;
}

const Reservation* VirtualMemory::FindReservation(uint64_t address) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return nullptr;
  const Reservation& reservation = (--after)->second;
  return address - reservation.address() < reservation.size() ? &reservation : nullptr;
}

bool VirtualMemory::Map(uint64_t address, uint64_t size, Allocation* allocation, uint64_t offset) {
  const Reservation* const reservation = FindReservation(address);
  if (reservation == nullptr || size > reservation->size() - (address - reservation->address()) ||
      FindMapping(address) != nullptr) {
    return false;
  }
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < size) return false;
  mappings_.emplace(
      address,
      Mapping{.address = address, .size = size, .allocation = allocation, .offset = offset});
  ++allocation->mappings;
  return true;
}

bool VirtualMemory::IsWhole(uint64_t address, uint64_t size) const {
  if (size == 0) return false;
  for (auto at = mappings_.find(address); size > 0; ++at) {
    if (at == mappings_.end() || at->first != address || at->second.size > size) return false;
    address += at->second.size;
    size -= at->second.size;
  }
  return true;
}

void VirtualMemory::Drop(std::map<uint64_t, Mapping>::iterator at) {
  Allocation* const allocation = at->second.allocation;
  mappings_.erase(at);
  --allocation->mappings;
  DeleteIfUnused(allocation);
}

void VirtualMemory::Unmap(uint64_t address, uint64_t size) {
  for (auto at = mappings_.find(address); size > 0;) {
    size -= at->second.size;
    Drop(at++);
  }
}

Mapping* VirtualMemory::FindMapping(uint64_t address) {
  auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return nullptr;
  Mapping& mapping = (--after)->second;
  return address - mapping.address < mapping.size ? &mapping : nullptr;
}

bool VirtualMemory::IsMapped(uint64_t address, uint64_t size) {
  while (size > 0) {
    const Mapping* const mapping = FindMapping(address);
    if (mapping == nullptr) return false;
    const uint64_t left = mapping->size - (address - mapping->address);
    if (left >= size) return true;
    address += left;
    size -= left;
  }
  return true;
}

void VirtualMemory::Clear() {
  while (!mappings_.empty()) Drop(mappings_.begin());
  reservations_.clear();
  for (Allocation* allocation : allocations_.All()) {
    allocation->references = 0;
    DeleteIfUnused(allocation);
  }
}

}  // namespace gpushare::sim
