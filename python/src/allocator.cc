// SPDX-License-Identifier: Apache-2.0
#include "allocator.h"

#include <atomic>
#include <utility>

#include "amount.h"
#include "buffer.h"
#include "call.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

void Memory::Close() {
  const AllocatorHandle::Use_ allocator = std::move(allocator_);
  allocator_ = nullptr;
  const gpushare_device_ptr pointer = std::exchange(pointer_, 0);
  if (allocator == nullptr || pointer == 0 || allocator->inherited() || Finalizing()) return;
  UnlockedIfLocked([&] { static_cast<void>(gpushare_free(allocator->get(), pointer)); });
}

// ---- Asking the program to free something ----

struct Allocator::Reclaimer {
  py::function function;
  py::object exception;  // what it raised; that ends the allocation

  static int Call(void* context, uint64_t asked, uint64_t left) {
    auto& self = *static_cast<Reclaimer*>(context);
    if (Finalizing()) return 0;
    const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
    int freed = 0;
    try {
      freed = py::bool_(python::Call(self.function, py::make_tuple(asked, left))) ? 1 : 0;
    } catch (py::error_already_set& error) {
      self.exception = error.value();
    }
    PyGILState_Release(gil);
    return freed;
  }
};

// ---- C functions ----

// What the C functions are given; lives until the allocator is closed and all its memory is freed.
struct Allocator::CParameter {
  AllocatorHandle::Use_ owner;
  const gpushare_allocator handle;
  std::atomic<int64_t> users;  // live allocations, and 1 for the Allocator

  void Leave() {
    if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

// Null when it does not fit: frameworks free their caches and try again.
void* CMalloc(void* parameter, size_t bytes, int) {
  auto& self = *static_cast<Allocator::CParameter*>(parameter);
  gpushare_device_ptr pointer = 0;
  if (bytes == 0 || gpushare_alloc(self.handle, bytes, &pointer) != GPUSHARE_OK) return nullptr;
  self.users.fetch_add(1, std::memory_order_relaxed);
  return reinterpret_cast<void*>(pointer);
}

void CFree(void* parameter, void* pointer, int) {
  if (pointer == nullptr) return;
  auto& self = *static_cast<Allocator::CParameter*>(parameter);
  static_cast<void>(gpushare_free(self.handle, reinterpret_cast<gpushare_device_ptr>(pointer)));
  self.Leave();
}

// ---- The object ----

std::shared_ptr<Allocator> Allocator::CreateDefault(const std::shared_ptr<VirtualDevice>& device) {
  std::shared_ptr<Allocator> allocator = Create(device, py::none());
  allocator->keeps_ = nullptr;
  return allocator;
}

std::shared_ptr<Allocator> Allocator::Create(const std::shared_ptr<VirtualDevice>& device,
                                             const py::object& reclaim) {
  gpushare_allocator_options options = {};
  options.struct_size = sizeof(options);
  std::shared_ptr<Reclaimer> reclaimer;
  if (!reclaim.is_none()) {
    if (!PyCallable_Check(reclaim.ptr())) {
      ThrowType("reclaim", reclaim, "a function of (asked, left) in bytes");
    }
    reclaimer = std::make_shared<Reclaimer>();
    reclaimer->function = py::reinterpret_borrow<py::function>(reclaim);
    options.over_quota = GPUSHARE_OVER_QUOTA_RECLAIM;
    options.reclaim = &Reclaimer::Call;
    options.reclaim_context = reclaimer.get();
  }
  gpushare_allocator handle = nullptr;
  Check(gpushare_allocator_create(device->handle.Use()->get(), &options, &handle));
  std::shared_ptr<Allocator> allocator = Born<Allocator>(device->family);
  allocator->handle.Reset(handle);
  allocator->device_ = allocator->keeps_ = device;
  allocator->reclaimer_ = std::move(reclaimer);
  return allocator;
}

Allocator::~Allocator() { Close(); }

void Allocator::Close() {
  if (CParameter* const parameter = std::exchange(parameter_, nullptr)) parameter->Leave();
  waiting_ = nullptr;
  handle.Close();
}

std::shared_ptr<Memory> Allocator::AllocateMemory(uint64_t bytes, const py::object& timeout) {
  const int64_t wait = TimeoutFrom(timeout, "timeout");
  AllocatorHandle::Use_ use = handle.Use();
  gpushare_device_ptr pointer = 0;
  const gpushare_status code =
      Unlocked([&] { return gpushare_alloc(use->get(), bytes, &pointer); });
  if (code != GPUSHARE_OK) {
    const Failure failure = Failure::Last(code);
    if (reclaimer_ != nullptr && reclaimer_->exception) {
      const py::object exception = std::exchange(reclaimer_->exception, py::object());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
      throw py::error_already_set();
    }
    // What can never fit, or what the device itself refuses, is not waited for.
    const bool quota = code == GPUSHARE_RESOURCE_EXHAUSTED && failure.detail.driver_result == 0 &&
                       std::string(failure.detail.limit) == "memory";
    if (!quota || wait == 0) failure.Throw();
    if (waiting_ == nullptr) {
      gpushare_allocator_options options = {};
      options.struct_size = sizeof(options);
      options.over_quota = GPUSHARE_OVER_QUOTA_WAIT;
      options.timeout_ns = kSliceNs;
      gpushare_allocator made = nullptr;
      Check(gpushare_allocator_create(device()->handle.Use()->get(), &options, &made));
      waiting_ = std::make_shared<AllocatorHandle>("allocator", made);
    }
    use = waiting_->Use();
    WaitInSlices(wait, [&](int64_t) { return gpushare_alloc(use->get(), bytes, &pointer); });
  }
  auto memory = std::make_shared<Memory>(std::move(use), pointer, bytes);
  family->Add(memory);
  return memory;
}

std::shared_ptr<Buffer> Allocator::Allocate(uint64_t bytes, const py::object& timeout) {
  return WholeBuffer(device(), AllocateMemory(bytes, timeout));
}

py::tuple Allocator::CFunctions() {
  const AllocatorHandle::Use_& use = handle.Use();
  if (parameter_ == nullptr) parameter_ = new CParameter{use, use->get(), {1}};
  return py::make_tuple(reinterpret_cast<uintptr_t>(parameter_),
                        reinterpret_cast<uintptr_t>(&CMalloc), reinterpret_cast<uintptr_t>(&CFree));
}

std::shared_ptr<Buffer> AllocateFor(const std::shared_ptr<Gpu>& gpu, uint64_t bytes) {
  const auto use = gpu->handle.Use();
  gpushare_vdev vdev = nullptr;
  {
    const ContextTenant tenant;
    Check(Unlocked([&] { return gpushare_gpu_resolve(use->get(), nullptr, nullptr, &vdev); }));
  }
  const std::shared_ptr<VirtualDevice> device = Adopt(gpu, vdev);
  return Allocator::Create(device, py::none())->Allocate(bytes, py::int_(0));
}

void BindAllocator(py::module_& m) {
  auto cls = py::class_<Allocator, std::shared_ptr<Allocator>>(
      m, "Allocator",
      "Allocates within the quota of one virtual device; made by VirtualDevice.allocator().\n\n"
      "With `reclaim`, an allocation that is over the quota calls ``reclaim(asked, left)`` (bytes) "
      "on the same\nthread, at most 16 times: it frees memory of the same virtual device and "
      "returns whether to try again.\nWhat it raises, the allocation raises.");
  cls.def(
         "alloc",
         [](Allocator& self, const py::object& nbytes, const py::object& timeout) {
           return self.Allocate(SizeFrom(nbytes, "nbytes"), timeout);
         },
         py::arg("nbytes"), py::kw_only(), py::arg("timeout") = 0,
         "alloc(self, nbytes, *, timeout=0)\n--\n\nAs VirtualDevice.alloc().")
      .def_property_readonly(
          "virtual_device", [](const Allocator& self) { return self.device(); },
          "Whose quota it is.")
      .def(
          "c_functions", &Allocator::CFunctions,
          "c_functions(self)\n--\n\n"
          "(parameter, malloc, free): addresses of ``void* malloc(void* parameter, size_t bytes, "
          "int device)`` and\n``void free(void* parameter, void* pointer, int device)``, the form "
          "of cupy.cuda.CFunctionAllocator. They\ntake no lock of Python; malloc returns null over "
          "the quota. Valid until the allocator is closed and all\nthat they allocated is freed: "
          "keep the allocator as their owner.");
  AddLifetime(cls, "close(self)\n--\n\nMemory that was allocated stays.");
}

}  // namespace gpushare::python
