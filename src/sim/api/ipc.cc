// SPDX-License-Identifier: Apache-2.0
// Handles by which one process gives its memory and its events to another. They work between processes that share the device
// (`shared`); without that there is no other process to give them to.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

constexpr uint64_t kMemoryMagic = 0x6d656d6f72790001, kEventMagic = 0x6576656e74000001;

// The content of a handle. It may come from any process by any way, so every field may be wrong.
struct MemoryHandle {
  uint64_t magic, incarnation;  // of the process that allocated the memory
  int32_t pid, descriptor;      // `descriptor`: the file with the bytes
  uint64_t offset, size, id;
  uint64_t unused[2];
};
static_assert(sizeof(MemoryHandle) == sizeof(CUipcMemHandle));

struct EventHandle {
  uint64_t magic, incarnation, number, index;
  uint64_t unused[4];
};
static_assert(sizeof(EventHandle) == sizeof(CUipcEventHandle));

// Memory of other processes that is open here: one entry per context, however often it is opened.
struct Opened {
  uint64_t incarnation, id, offset, size, context;
  uint64_t address, allocation;
  uint32_t references;
};

std::vector<Opened>& AllOpened() {
  static std::vector<Opened> opened;
  return opened;
}

// Whether the memory is still mapped: a reset removes everything.
bool IsMapped(const Opened& one) {
  const Mapping* const mapping = state().virtual_memory.FindMapping(one.address);
  return mapping != nullptr && mapping->buffer && mapping->address == one.address &&
         mapping->allocation->handle == one.allocation;
}

// The file with the exporter's bytes, with a size that cannot change; -1 if there is none.
int OpenArena(const MemoryHandle& from, uint64_t* size) {
  uint64_t end;
  if (from.pid <= 0 || from.descriptor < 0 ||
      __builtin_add_overflow(from.offset, from.size, &end)) {
    return -1;
  }
  const std::string path =
      "/proc/" + std::to_string(from.pid) + "/fd/" + std::to_string(from.descriptor);
  // Check before opening it: closing a descriptor of the shared device's file would drop its locks.
  const int found_at = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (found_at < 0) return -1;
  struct stat found;
  int file = -1;
  if (fstat(found_at, &found) == 0 && S_ISREG(found.st_mode) && !state().shared->IsFile(found)) {
    const std::string again = "/proc/self/fd/" + std::to_string(found_at);
    file = open(again.c_str(), O_RDWR | O_CLOEXEC);
  }
  close(found_at);
  if (file < 0) return -1;
  constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(file, F_GET_SEALS);
  if (fstat(file, &found) != 0 || seals < 0 || (seals & kSealed) != kSealed ||
      end > static_cast<uint64_t>(found.st_size)) {
    close(file);
    return -1;
  }
  *size = static_cast<uint64_t>(found.st_size);
  return file;
}

CUresult GetMemory(CUipcMemHandle* handle, CUdeviceptr pointer) {
  State& s = state();
  if (s.shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const auto gpu = static_cast<uint32_t>(context->device->which);
  const SharedDevice::Arena& arena = s.shared->arena(gpu);
  if (arena.file < 0) return CUDA_ERROR_NOT_SUPPORTED;
  DeviceMemory& memory = context->device->memory;
  const Block* const block = handle == nullptr ? nullptr : memory.FindStart(pointer);
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = reinterpret_cast<uint64_t>(memory.Bytes(pointer));
  const MemoryHandle to = {.magic = kMemoryMagic,
                           .incarnation = s.shared->incarnation(),
                           .pid = getpid(),
                           .descriptor = arena.file,
                           .offset = bytes - arena.address,
                           .size = block->size,
                           .id = block->id * kGpus + gpu,
                           .unused = {}};
  std::memcpy(handle, &to, sizeof(to));
  return CUDA_SUCCESS;
}

CUresult OpenMemory(CUdeviceptr* pointer, const CUipcMemHandle& handle, unsigned flags) {
  State& s = state();
  if (s.shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (pointer == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  MemoryHandle from;
  std::memcpy(&from, &handle, sizeof(from));
  if (from.magic != kMemoryMagic || from.size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (from.incarnation == s.shared->incarnation()) return CUDA_ERROR_INVALID_CONTEXT;
  std::vector<Opened>& opened = AllOpened();
  std::erase_if(opened, [](const Opened& one) { return !IsMapped(one); });
  for (Opened& one : opened) {
    if (one.incarnation != from.incarnation || one.id != from.id || one.offset != from.offset ||
        one.size != from.size || one.context != context->handle) {
      continue;
    }
    ++one.references;
    *pointer = one.address;
    return CUDA_SUCCESS;
  }
  if (!s.shared->IsAlive(from.incarnation)) return CUDA_ERROR_MAP_FAILED;
  uint64_t size = 0;
  const int file = OpenArena(from, &size);
  if (file < 0) return CUDA_ERROR_MAP_FAILED;
  Allocation* const allocation = s.virtual_memory.ImportShared(context, file, size);
  if (allocation == nullptr) {
    close(file);
    return CUDA_ERROR_MAP_FAILED;
  }
  const uint64_t address = s.virtual_memory.MapBuffer(allocation, from.offset, from.size);
  if (address == 0) {
    s.virtual_memory.Release(allocation);
    return CUDA_ERROR_MAP_FAILED;
  }
  opened.push_back({.incarnation = from.incarnation,
                    .id = from.id,
                    .offset = from.offset,
                    .size = from.size,
                    .context = context->handle,
                    .address = address,
                    .allocation = allocation->handle,
                    .references = 1});
  *pointer = address;
  return CUDA_SUCCESS;
}

CUresult CloseMemory(CUdeviceptr pointer) {
  State& s = state();
  if (s.shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  Context* context;
  CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  const auto find = [&] {
    std::vector<Opened>& opened = AllOpened();
    return std::find_if(opened.begin(), opened.end(),
                        [&](const Opened& one) { return one.address == pointer && IsMapped(one); });
  };
  auto found = find();
  if (found == AllOpened().end()) return CUDA_ERROR_INVALID_VALUE;
  if (found->references > 1) {
    --found->references;
    return CUDA_SUCCESS;
  }
  result = WaitForContext(context, "the work before cuIpcCloseMemHandle");
  if (result != CUDA_SUCCESS) return result;
  // Another thread may have opened or closed it while we waited.
  found = find();
  if (found == AllOpened().end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->references > 0) return CUDA_SUCCESS;
  Allocation* const allocation = s.virtual_memory.FindExternal(found->allocation);
  AllOpened().erase(found);
  s.virtual_memory.FreeBuffer(pointer);
  if (allocation != nullptr) s.virtual_memory.Release(allocation);
  return CUDA_SUCCESS;
}

CUresult GetEvent(CUipcEventHandle* handle, CUevent event_handle) {
  State& s = state();
  if (s.shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  const Event* const event = FindEvent(event_handle);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (event == nullptr || event->shared == Event::kNotShared) return CUDA_ERROR_INVALID_HANDLE;
  const EventHandle to = {.magic = kEventMagic,
                          .incarnation = s.shared->incarnation(),
                          .number = s.shared->events().Number(event->shared),
                          .index = event->shared,
                          .unused = {}};
  std::memcpy(handle, &to, sizeof(to));
  return CUDA_SUCCESS;
}

CUresult OpenEvent(CUevent* event_handle, const CUipcEventHandle& handle) {
  State& s = state();
  if (s.shared == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  if (event_handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  EventHandle from;
  std::memcpy(&from, &handle, sizeof(from));
  if (from.magic != kEventMagic || from.index >= kSharedEvents) return CUDA_ERROR_INVALID_HANDLE;
  if (from.incarnation == s.shared->incarnation()) return CUDA_ERROR_INVALID_CONTEXT;
  const auto index = static_cast<uint32_t>(from.index);
  if (!s.shared->events().Open(index, from.number)) return CUDA_ERROR_INVALID_HANDLE;
  auto* const event = new Event;
  event->handle = s.events.Add(event);
  event->context = context;
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  event->timing = false;
  event->shared = index;
  *event_handle = reinterpret_cast<CUevent>(event->handle);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuIpcGetMemHandle)(CUipcMemHandle* handle, CUdeviceptr pointer) {
  SIM_ENTER(cuIpcGetMemHandle, kCall);
  return GetMemory(handle, pointer);
}

SIM_API(cuIpcOpenMemHandle)(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIM_ENTER(cuIpcOpenMemHandle, kCall);
  return OpenMemory(pointer, handle, flags);
}

SIM_API(cuIpcOpenMemHandle_v2)(CUdeviceptr* pointer, CUipcMemHandle handle, unsigned flags) {
  SIM_ENTER(cuIpcOpenMemHandle_v2, kCall);
  return OpenMemory(pointer, handle, flags);
}

SIM_API(cuIpcCloseMemHandle)(CUdeviceptr pointer) {
  SIM_ENTER(cuIpcCloseMemHandle, kCall);
  return CloseMemory(pointer);
}

SIM_API(cuIpcGetEventHandle)(CUipcEventHandle* handle, CUevent event) {
  SIM_ENTER(cuIpcGetEventHandle, kCall);
  return GetEvent(handle, event);
}

SIM_API(cuIpcOpenEventHandle)(CUevent* event, CUipcEventHandle handle) {
  SIM_ENTER(cuIpcOpenEventHandle, kCall);
  return OpenEvent(event, handle);
}
