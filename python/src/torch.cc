// SPDX-License-Identifier: Apache-2.0
// The two C functions for torch.cuda.memory.CUDAPluggableAllocator, which have no parameter for a context.
//
// gpushare determines at each allocation for which tenant it is: by the stream's binding first, then by the thread's scope,
// then the context's, then the default tenant. PyTorch's autograd allocates for the backward pass on threads of its own, but on
// the streams of the forward pass, so this gives the right tenant.
//
// PyTorch calls them for whole segments of its cache. It holds the lock of that cache, with or without the interpreter's lock.
// So they never take the interpreter's lock: another thread may hold it and wait for the cache. Functions of on_reclaim() run
// on a separate thread, which is waited for up to 100 ms; a GPU that is closed with the last of its memory is closed on a
// separate thread too. They never throw.
#include <pybind11/pybind11.h>
#include <sys/types.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gpu.h"
#include "object.h"
#include "virtual_device.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

using GpuHandle = decltype(Gpu::handle);
using GpuUse = GpuHandle::Use_;

// A GPU that serves PyTorch's allocations, until its runtime's close_all().
struct Attachment final : Closable {
  Attachment(int at, GpuUse use) : ordinal(at), gpu(std::move(use)) {}
  void Close() override;
  const int ordinal;
  const GpuUse gpu;
};

constexpr size_t kRefusalsKept = 256;

struct State {
  const uint32_t born = ForkGeneration();
  std::mutex mu;
  std::unordered_map<int, std::shared_ptr<Attachment>> attached;  // by ordinal
  // Live allocations. Each keeps its GPU open, since PyTorch may free it when everything else is closed.
  std::unordered_map<void*, GpuUse> live;
  std::map<std::string, std::string> refusals;  // by tenant: the last message
};

// Never destroyed: PyTorch frees memory until the very end of the process. A forked child begins without attachments and
// allocations: those belong to the parent, and a thread of the parent may have held the lock.
State& TheState() {
  static std::atomic<State*> current{new State};
  State* state = current.load(std::memory_order_acquire);
  while (state->born != ForkGeneration()) {
    State* const mine = new State;
    if (current.compare_exchange_strong(state, mine)) return *mine;
    delete mine;
  }
  return *state;
}

void Attachment::Close() {
  State& state = TheState();
  std::shared_ptr<Attachment> last;  // destroyed after the lock is released
  const std::lock_guard lock(state.mu);
  const auto at = state.attached.find(ordinal);
  if (at == state.attached.end() || at->second.get() != this) return;
  last = std::move(at->second);
  state.attached.erase(at);
}

GpuUse Attached(int device) {
  State& state = TheState();
  const std::lock_guard lock(state.mu);
  const auto at = state.attached.find(device);
  return at == state.attached.end() ? nullptr : at->second->gpu;
}

struct InFramework {
  InFramework() { in_framework = true; }
  ~InFramework() { in_framework = false; }
  InFramework(const InFramework&) = delete;
  InFramework& operator=(const InFramework&) = delete;
};

// Releases the GPU. If this may be the last use, it happens on a separate thread, because closing the GPU takes the
// interpreter's lock.
void LetGoOfGpu(GpuUse gpu) {
  {
    State& state = TheState();
    const std::lock_guard lock(state.mu);
    for (const auto& [ordinal, attached] : state.attached) {
      if (attached->gpu != gpu) continue;
      gpu = nullptr;  // the attachment still holds it, and is only removed under the lock
      return;
    }
  }
  try {
    std::thread([last = std::move(gpu)]() mutable { last = nullptr; }).detach();
  } catch (const std::system_error&) {
  }
}

// A use of a GPU that ends with LetGoOfGpu().
class Held {
 public:
  explicit Held(GpuUse gpu) : gpu_(std::move(gpu)) {}
  ~Held() {
    if (gpu_ != nullptr) LetGoOfGpu(std::move(gpu_));
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  const GpuUse& operator*() const { return gpu_; }
  const GpuUse& operator->() const { return gpu_; }

 private:
  GpuUse gpu_;
};

void NoteRefusal() {
  gpushare_error_detail detail = {};
  detail.struct_size = sizeof(detail);
  const std::string message = gpushare_last_message();
  if (gpushare_last_detail(&detail) != GPUSHARE_OK || detail.tenant[0] == '\0') return;
  State& state = TheState();
  const std::lock_guard lock(state.mu);
  if (state.refusals.size() >= kRefusalsKept) state.refusals.erase(state.refusals.begin());
  state.refusals[detail.tenant] = message;
}

gpushare_device_ptr AllocateOn(gpushare_gpu gpu, uint64_t bytes, CUstream_st* stream) {
  gpushare_vdev vdev = nullptr;
  if (gpushare_gpu_resolve(gpu, nullptr, stream, &vdev) != GPUSHARE_OK) return 0;
  gpushare_device_ptr pointer = 0;
  gpushare_allocator allocator = nullptr;
  if (gpushare_allocator_create(vdev, nullptr, &allocator) == GPUSHARE_OK) {
    if (gpushare_alloc(allocator, bytes, &pointer) != GPUSHARE_OK) {
      pointer = 0;
      NoteRefusal();
    }
    static_cast<void>(gpushare_allocator_destroy(allocator));
  }
  static_cast<void>(gpushare_vdev_destroy(vdev));
  return pointer;
}

void* Allocate(ssize_t size, int device, CUstream_st* stream) {
  const Held gpu(Attached(device));
  if (size <= 0 || *gpu == nullptr || gpu->inherited()) return nullptr;
  const gpushare_device_ptr address = AllocateOn(gpu->get(), static_cast<uint64_t>(size), stream);
  if (address == 0) return nullptr;
  void* const pointer = reinterpret_cast<void*>(address);
  State& state = TheState();
  try {
    const std::lock_guard lock(state.mu);
    state.live[pointer] = *gpu;
  } catch (const std::bad_alloc&) {
    static_cast<void>(gpushare_gpu_free(gpu->get(), address));
    return nullptr;
  }
  return pointer;
}

void Free(void* pointer) {
  State& state = TheState();
  GpuUse gpu;
  {
    const std::lock_guard lock(state.mu);
    const auto at = state.live.find(pointer);
    if (at == state.live.end()) return;
    gpu = std::move(at->second);
    state.live.erase(at);
  }
  const Held last(std::move(gpu));
  static_cast<void>(gpushare_gpu_free(last->get(), reinterpret_cast<gpushare_device_ptr>(pointer)));
}

}  // namespace

extern "C" {

// `stream` is the calling thread's current stream. Returns null if the quota is exceeded. PyTorch then frees its cache, asks
// again, and raises torch.cuda.OutOfMemoryError.
__attribute__((visibility("default"))) void* gpushare_torch_alloc(ssize_t size, int device,
                                                                  CUstream_st* stream) noexcept {
  const InFramework inside;
  try {
    return Allocate(size, device, stream);
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Credits the tenant that allocated it. Does nothing for memory that a forked child has from its parent, and while the
// interpreter is finalizing: the driver frees everything a moment later.
__attribute__((visibility("default"))) void gpushare_torch_free(void* pointer, ssize_t, int,
                                                                CUstream_st*) noexcept {
  if (pointer == nullptr || Finalizing() || !Py_IsInitialized()) return;
  const InFramework inside;
  try {
    Free(pointer);
  } catch (const std::exception&) {
  }
}

}  // extern "C"

void BindTorch(py::module_& m) {
  m.def(
      "_torch_attach",
      [](const py::object& gpu) {
        const auto given = Given<Gpu>(gpu, "gpu", "gpushare.Gpu");
        const auto attachment = std::make_shared<Attachment>(given->ordinal, given->handle.Use());
        given->family->Add(attachment);
        State& state = TheState();
        std::shared_ptr<Attachment> before;  // destroyed after the lock is released
        const std::lock_guard lock(state.mu);
        before = std::exchange(state.attached[given->ordinal], attachment);
      },
      py::arg("gpu"),
      "_torch_attach(gpu)\n--\n\nMakes gpushare_torch_alloc() serve this GPU from now on.");
  m.def(
      "_torch_refusal",
      [](const std::string& tenant) -> py::object {
        State& state = TheState();
        std::string message;
        {
          const std::lock_guard lock(state.mu);
          const auto at = state.refusals.find(tenant);
          if (at == state.refusals.end()) return py::none();
          message = std::move(at->second);
          state.refusals.erase(at);
        }
        return py::str(message);
      },
      py::arg("tenant"),
      "_torch_refusal(tenant)\n--\n\nWhy gpushare_torch_alloc() last refused this tenant. "
      "Each reason is returned once.");
}

}  // namespace gpushare::python
