// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/virtual_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "sim/memory/range_map.h"
#include "sim/processes/device.h"
#include "sim/state.h"

namespace gpushare::sim {

namespace {

bool IsSameFile(int one, int other) {
  struct stat a, b;
  return one >= 0 && fstat(one, &a) == 0 && fstat(other, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

// Whether some process still has a descriptor of the allocation.
bool IsExported(Allocation* allocation) {
  std::erase_if(allocation->exports, [](int socket) {
    pollfd end{.fd = socket, .events = 0, .revents = 0};
    const bool closed = poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
    if (closed) close(socket);
    return closed;
  });
  return !allocation->exports.empty();
}

}  // namespace

Allocation::~Allocation() {
  if (descriptor >= 0) close(descriptor);
  for (const int socket : exports) close(socket);
}

Allocation* VirtualMemory::Create(Device* device, uint64_t size) {
  Collect();
  if (!device->memory.Charge(size)) return nullptr;
  auto allocation = std::make_unique<Allocation>();
  if (!allocation->storage.Map(size)) {
    device->memory.Return(size);
    return nullptr;
  }
  allocation->device = device;
  allocation->size = allocation->charged = size;
  allocation->id = device->memory.NextId();
  allocation->handle = allocations_.Add(allocation.get());
  return allocation.release();
}

Allocation* VirtualMemory::FindHeld(uint64_t handle, bool external) const {
  Allocation* const allocation = allocations_.Find(handle);
  if (allocation == nullptr || allocation->references == 0) return nullptr;
  return allocation->external == external ? allocation : nullptr;
}

void VirtualMemory::Release(Allocation* allocation) {
  --allocation->references;
  // The team can no longer be completed.
  if (allocation->team != nullptr && allocation->references == 0) {
    state().clock.WakeAll(allocation->team->complete, 0);
  }
  DeleteIfUnused(allocation);
}

void VirtualMemory::DeleteIfUnused(Allocation* allocation) {
  const bool was_stranded = std::exchange(allocation->stranded, false);
  if (was_stranded) --stranded_;
  if (allocation->references > 0 || allocation->mappings > 0) return;
  if (IsExported(allocation)) {
    allocation->stranded = true;
    ++stranded_;
    return;
  }
  allocations_.Remove(allocation->handle);
  if (allocation->shared != 0 && state().shared != nullptr) {
    state().shared->DropMemory(allocation->shared);
  }
  if (allocation->charged > 0) allocation->device->memory.Return(allocation->charged);
  if (allocation->team != nullptr) {
    for (const MulticastTeam::Binding& binding : allocation->team->bindings) {
      DropMapping(binding.memory);
    }
  }
  delete allocation;
}

void VirtualMemory::DropMapping(Allocation* allocation) {
  --allocation->mappings;
  DeleteIfUnused(allocation);
}

namespace {

// The message that goes with the file. It may come from any process by any way, so every field may be wrong.
struct Given {
  static constexpr uint64_t kMagic = 0x76696d656d000001;
  uint64_t magic, number, size;
  uint64_t file_device, file_number;  // identify the file that the device's processes share
  uint32_t gpu, handle_types;
};

// A file with the allocation's bytes, with a size that cannot change. -1 if the machine has no more.
int NewFile(Allocation* allocation) {
  const int file = memfd_create("gpushare-sim-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(allocation->size)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
      allocation->storage.MoveToFile(file)) {
    return file;
  }
  close(file);
  return -1;
}

bool Send(int socket, const Given& given, int file) {
  iovec part{.iov_base = const_cast<Given*>(&given), .iov_len = sizeof(given)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &file, sizeof(file));
  return sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(given));
}

// Reads the message of an exported descriptor without removing it. Returns the file; -1 if the descriptor is not one of ours.
int Look(int descriptor, Given* given) {
  iovec part{.iov_base = given, .iov_len = sizeof(*given)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t size = recvmsg(descriptor, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  int file = -1;
  for (cmsghdr* header = size < 0 ? nullptr : CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    std::memcpy(&file, CMSG_DATA(header), sizeof(file));
  }
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  struct stat found;
  if (size == static_cast<ssize_t>(sizeof(*given)) && given->magic == Given::kMagic && file >= 0 &&
      fstat(file, &found) == 0 && (fcntl(file, F_GET_SEALS) & kSealed) == kSealed &&
      given->size > 0 && Granular(given->size) &&
      given->size == static_cast<uint64_t>(found.st_size)) {
    return file;
  }
  if (file >= 0) close(file);
  return -1;
}

}  // namespace

int VirtualMemory::Export(Allocation* allocation) {
  if (allocation->descriptor < 0) {
    allocation->descriptor = NewFile(allocation);
    if (allocation->descriptor < 0) return -1;
  }
  SharedDevice* const shared = state().shared;
  const auto gpu = static_cast<uint32_t>(allocation->device->which);
  if (allocation->shared == 0 && shared != nullptr) {
    allocation->shared = shared->GiveMemory(gpu, allocation->size);
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  struct stat common {};
  if (shared != nullptr) shared->LookAtFile(&common);
  const Given given = {.magic = Given::kMagic,
                       .number = allocation->shared,
                       .size = allocation->size,
                       .file_device = common.st_dev,
                       .file_number = common.st_ino,
                       .gpu = gpu,
                       .handle_types = allocation->handle_types};
  if (!Send(ends[1], given, allocation->descriptor)) {
    close(ends[0]);
    close(ends[1]);
    return -1;
  }
  allocation->exports.push_back(ends[1]);
  return ends[0];
}

int VirtualMemory::Import(int descriptor, Allocation** imported) {
  Given given;
  const int file = Look(descriptor, &given);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  for (Allocation* allocation : allocations_.All()) {
    if (allocation->external || !IsSameFile(allocation->descriptor, file)) continue;
    close(file);
    ++allocation->references;
    *imported = allocation;
    return CUDA_SUCCESS;
  }
  State& s = state();
  const auto device = std::find_if(s.devices.begin(), s.devices.end(), [&](const auto& one) {
    return static_cast<uint32_t>(one->which) == given.gpu;
  });
  struct stat common {};
  common.st_dev = given.file_device;
  common.st_ino = given.file_number;
  // From a process that does not share the device with this one.
  if (s.shared == nullptr || !s.shared->IsFile(common) || given.number == 0 ||
      device == s.devices.end()) {
    close(file);
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto allocation = std::make_unique<Allocation>();
  allocation->descriptor = file;
  if (!s.shared->HoldMemory(given.number, given.gpu, given.size)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!allocation->storage.MapFile(file, given.size)) {
    s.shared->DropMemory(given.number);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  allocation->shared = given.number;
  allocation->device = device->get();
  allocation->size = given.size;
  allocation->handle_types = given.handle_types;
  allocation->id = (*device)->memory.NextId();
  allocation->handle = allocations_.Add(allocation.get());
  *imported = allocation.release();
  return CUDA_SUCCESS;
}

void VirtualMemory::KeepToItself() {
  for (Allocation* allocation : allocations_.All()) {
    if (allocation->external || allocation->descriptor < 0) continue;
    allocation->storage.KeepFromFile(allocation->descriptor);
    allocation->shared = 0;
  }
}

void VirtualMemory::Collect() {
  if (stranded_ == 0) return;
  for (Allocation* allocation : allocations_.All()) {
    if (allocation->stranded) DeleteIfUnused(allocation);
  }
}

Allocation* VirtualMemory::ImportFile(Context* context, int descriptor, uint64_t size) {
  return Import(context, descriptor, size, size);
}

Allocation* VirtualMemory::ImportShared(Context* context, int descriptor, uint64_t size) {
  return Import(context, descriptor, size, 0);
}

void VirtualMemory::FreeExternalOf(const Context* context) {
  for (auto at = mappings_.begin(); at != mappings_.end();) {
    const auto next = std::next(at);
    if (at->second.buffer && at->second.allocation->context == context) FreeBuffer(at->first);
    at = next;
  }
  for (Allocation* allocation : allocations_.All()) {
    if (!allocation->external || allocation->context != context) continue;
    allocation->references = 0;
    DeleteIfUnused(allocation);
  }
}

Allocation* VirtualMemory::Import(Context* context, int descriptor, uint64_t size,
                                  uint64_t charged) {
  Device* const device = context->device;
  for (Allocation* allocation : allocations_.All()) {
    if (!allocation->external || allocation->context != context || allocation->size != size ||
        !IsSameFile(allocation->descriptor, descriptor)) {
      continue;
    }
    ++allocation->references;
    close(descriptor);
    return allocation;
  }
  if (!device->memory.Charge(charged)) return nullptr;
  auto allocation = std::make_unique<Allocation>();
  if (!allocation->storage.MapFile(descriptor, size)) {
    device->memory.Return(charged);
    return nullptr;
  }
  allocation->external = true;
  allocation->descriptor = descriptor;
  allocation->context = context;
  allocation->device = device;
  allocation->size = size;
  allocation->charged = charged;
  allocation->id = device->memory.NextId();
  allocation->handle = allocations_.Add(allocation.get());
  return allocation.release();
}

uint64_t VirtualMemory::MapBuffer(Allocation* allocation, uint64_t offset, uint64_t size) {
  const uint64_t rounded = (size + kGranularity - 1) & ~(kGranularity - 1);
  const uint64_t address = Reserve(rounded, kGranularity, 0);
  if (address == 0) return 0;
  const uint64_t device = uint64_t{1} << allocation->device->ordinal;
  mappings_.emplace(address, Mapping{.address = address,
                                     .size = size,
                                     .allocation = allocation,
                                     .offset = offset,
                                     .readable = device,
                                     .writable = device,
                                     .buffer = true});
  ++allocation->mappings;
  return address;
}

bool VirtualMemory::FreeBuffer(uint64_t address) {
  const auto found = mappings_.find(address);
  if (found == mappings_.end() || !found->second.buffer) return false;
  Drop(found);
  reservations_.erase(address);
  return true;
}

Allocation* VirtualMemory::CreateMulticast(uint64_t size, unsigned devices) {
  auto* const object = new Allocation;
  object->size = size;
  object->team = std::make_unique<MulticastTeam>();
  object->team->wanted = devices;
  object->handle = allocations_.Add(object);
  return object;
}

int VirtualMemory::WaitForTeam(Allocation* object) {
  if (object->team->devices.size() == object->team->wanted) return 0;
  ++object->mappings;  // keeps it alive while we wait
  state().clock.Wait(object->team->complete, "the other devices of a multicast object");
  const bool released =
      object->references == 0 || object->team->devices.size() < object->team->wanted;
  DropMapping(object);
  constexpr int kInvalidValue = 1;  // CUDA_ERROR_INVALID_VALUE
  return released ? kInvalidValue : 0;
}

bool VirtualMemory::IsUnbound(const Allocation& object, const Device* device, uint64_t offset,
                              uint64_t size) {
  for (const MulticastTeam::Binding& binding : object.team->bindings) {
    if (binding.memory->device == device && binding.offset < offset + size &&
        offset < binding.offset + binding.size) {
      return false;
    }
  }
  return true;
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
  const auto at = LastAtOrBefore(reservations_, address);
  if (at == reservations_.end()) return nullptr;
  const Reservation& reservation = at->second;
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
    if (at == mappings_.end() || at->first != address || at->second.size > size ||
        at->second.buffer) {
      return false;
    }
    address += at->second.size;
    size -= at->second.size;
  }
  return true;
}

void VirtualMemory::Drop(std::map<uint64_t, Mapping>::iterator at) {
  Allocation* const allocation = at->second.allocation;
  mappings_.erase(at);
  DropMapping(allocation);
}

void VirtualMemory::Unmap(uint64_t address, uint64_t size) {
  for (auto at = mappings_.find(address); size > 0;) {
    size -= at->second.size;
    Drop(at++);
  }
}

Mapping* VirtualMemory::FindMapping(uint64_t address) {
  const auto at = LastAtOrBefore(mappings_, address);
  if (at == mappings_.end()) return nullptr;
  Mapping& mapping = at->second;
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
  // Multicast objects first: they hold the memory bound to them.
  std::vector<uint64_t> objects;
  for (const Allocation* one : allocations_.All()) {
    if (one->team != nullptr) objects.push_back(one->handle);
  }
  for (const uint64_t handle : objects) {
    Allocation* const object = allocations_.Find(handle);
    object->references = 0;
    DeleteIfUnused(object);
  }
  for (Allocation* allocation : allocations_.All()) {
    allocation->references = 0;
    for (const int socket : allocation->exports) close(socket);
    allocation->exports.clear();
    DeleteIfUnused(allocation);
  }
}

}  // namespace gpushare::sim
