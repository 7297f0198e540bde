// SPDX-License-Identifier: Apache-2.0
#include "virtual_device.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "allocator.h"
#include "amount.h"
#include "buffer.h"
#include "call.h"
#include "kernel.h"
#include "lease.h"
#include "snapshot.h"
#include "spec.h"
#include "stream.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

py::tuple MemoryOf(const VirtualDevice& self) {
  uint64_t free_bytes = 0, total = 0;
  Check(gpushare_vdev_memory(self.handle.Use()->get(), &free_bytes, &total));
  return py::make_tuple(free_bytes, total);
}

// Shared with the threads that call it. Created and destroyed with the interpreter's lock.
struct Asked {
  py::object function;
};
using SharedAsked = std::shared_ptr<Asked>;

// Call with the interpreter's lock, on any thread.
int CallAsked(const Asked& asked, uint64_t bytes) {
  try {
    return py::bool_(python::Call(asked.function, py::make_tuple(bytes))) ? 1 : 0;
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(asked.function);
    return 0;
  }
}

// Calls the function on a separate thread, for a caller that must not take the interpreter's lock. Waits for the answer only
// for a limited time, because a thread with that lock may be waiting for the caller.
int AskElsewhere(const SharedAsked& asked, uint64_t bytes) {
  constexpr auto kLongest = std::chrono::milliseconds(100);
  struct Answer {
    std::mutex mutex;
    std::condition_variable given;
    int freed = -1;
  };
  const auto answer = std::make_shared<Answer>();
  const bool waits = PyGILState_Check() == 0 && !on_virtual_clock;
  try {
    std::thread([asked = SharedAsked(asked), answer, bytes]() mutable {
      if (Finalizing()) {
        static_cast<void>(new SharedAsked(std::move(asked)));
        return;
      }
      const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
      const int freed = CallAsked(*asked, bytes);
      asked = nullptr;
      PyGILState_Release(gil);
      const std::lock_guard lock(answer->mutex);
      answer->freed = freed;
      answer->given.notify_one();
    }).detach();
  } catch (const std::system_error&) {
    return 0;
  }
  if (!waits) return 0;
  std::unique_lock lock(answer->mutex);
  answer->given.wait_for(lock, kLongest, [&] { return answer->freed >= 0; });
  return std::max(answer->freed, 0);
}

int Ask(void* context, uint64_t bytes) {
  if (Finalizing()) return 0;
  const SharedAsked asked = *static_cast<const SharedAsked*>(context);
  if (in_framework) return AskElsewhere(asked, bytes);
  const AskedScope nobody;
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  const int freed = CallAsked(*asked, bytes);
  PyGILState_Release(gil);
  return freed;
}

void LetGo(void* context) {
  const auto let_go = [asked = static_cast<SharedAsked*>(context)] {
    if (Finalizing()) return;  // the function is leaked
    const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
    delete asked;
    PyGILState_Release(gil);
  };
  if (!in_framework) return let_go();
  try {
    std::thread(let_go).detach();
  } catch (const std::system_error&) {  // the function is leaked
  }
}

void OnReclaim(const VirtualDevice& self, const py::object& function) {
  const auto use = self.handle.Use();
  if (function.is_none()) {
    Check(
        Unlocked([&] { return gpushare_vdev_set_reclaim(use->get(), nullptr, nullptr, nullptr); }));
    return;
  }
  if (!PyCallable_Check(function.ptr())) {
    ThrowType("function", function, "a function of the number of bytes, or None");
  }
  auto asked = std::make_unique<SharedAsked>(std::make_shared<Asked>(Asked{function}));
  void* const context = asked.get();
  Check(Unlocked([&] { return gpushare_vdev_set_reclaim(use->get(), &Ask, context, &LetGo); }));
  static_cast<void>(asked.release());
}

void YieldPoint(VirtualDevice& self) {
  static_cast<void>(self.handle.Use());
  for (const std::weak_ptr<Stream>& weak : self.streams) {
    const std::shared_ptr<Stream> stream = weak.lock();
    if (stream == nullptr || stream->handle.closed()) continue;
    stream->YieldPoint();  // returns what was granted to the whole virtual device
    return;
  }
}

}  // namespace

std::shared_ptr<Allocator> VirtualDevice::DefaultAllocator() {
  if (allocator == nullptr) allocator = Allocator::CreateDefault(shared_from_this());
  return allocator;
}

void VirtualDevice::Close() {
  const std::shared_ptr<Allocator> last = std::move(allocator);
  allocator = nullptr;
  handle.Close();
}

std::shared_ptr<Tenant> TenantFrom(const py::object& tenant, const Gpu& gpu) {
  if (!PyUnicode_Check(tenant.ptr())) {
    return Given<Tenant>(tenant, "tenant", "gpushare.Tenant or a name for a new one");
  }
  return NewTenant(gpu.family, gpu.runtime->handle.Use()->get(), TextFrom(tenant, "tenant"),
                   GPUSHARE_PRIORITY_UNSET, py::dict());
}

std::shared_ptr<VirtualDevice> NewVirtualDevice(const py::object& gpu, const py::object& tenant,
                                                const py::object& spec, const py::kwargs& fields) {
  const auto on = Given<Gpu>(gpu, "gpu", "gpushare.Gpu");
  const gpushare_spec limits = SpecFrom(spec, fields);
  const auto use = on->handle.Use();
  const std::shared_ptr<Tenant> whose = TenantFrom(tenant, *on);
  const auto tenant_use = whose->handle.Use();
  gpushare_vdev handle = nullptr;
  Check(Unlocked(
      [&] { return gpushare_vdev_create(use->get(), tenant_use->get(), &limits, &handle); }));
  const std::shared_ptr<VirtualDevice> device = Adopt(on, handle);
  device->tenant = whose;
  device->tenant_name = whose->name;
  return device;
}

std::shared_ptr<VirtualDevice> Adopt(const std::shared_ptr<Gpu>& gpu, gpushare_vdev handle) {
  auto device = Born<VirtualDevice>(gpu->family);
  device->handle.Reset(handle);
  device->gpu = gpu;
  gpushare_vdev_stats stats = {};
  stats.struct_size = sizeof(stats);
  Check(Unlocked([&] { return gpushare_vdev_get_stats(handle, &stats); }));
  device->tenant_name = stats.tenant;
  return device;
}

void BindVirtualDevice(py::module_& m) {
  auto cls = py::class_<VirtualDevice, std::shared_ptr<VirtualDevice>>(
      m, "VirtualDevice",
      "VirtualDevice(gpu, tenant, spec=None, **fields)\n--\n\nOne share of one GPU: a "
      "memory quota, a compute share, copy bandwidth and a priority.\n\nArgs:\n    tenant: "
      "a Tenant, or the name of a new one.\n    spec: text such as "
      "\"memory=8GiB,compute=30%\", or a VirtualDeviceSpec.\n    fields: the same as "
      "keywords, which take precedence: memory=\"8 GB\", compute=0.3, "
      "priority=\"high\".\n\nStreams and allocators keep the share alive: it ends when the "
      "last of them is closed.\n\nRaises:\n    QuotaExceededError (MemoryError), "
      "ResourceExhaustedError: the quotas or guarantees together would\n        exceed the "
      "device; the message says what would fit.\n    AlreadyExistsError (ValueError): the "
      "tenant has a virtual device on this GPU.\n    InvalidArgumentError (ValueError), "
      "TypeError: an invalid field, which the message names.");
  cls.def(py::init(&NewVirtualDevice), py::arg("gpu"), py::arg("tenant"),
          py::arg("spec") = py::none(), "__init__(self, gpu, tenant, spec=None, **fields)\n--\n\n");
  AddLifetime(cls,
              "close(self)\n--\n\nGives up this hold on the share. Memory that is allocated stays "
              "until it is freed.");
  cls.def_property_readonly(
         "gpu", [](const VirtualDevice& self) { return self.gpu; },
         "The GPU of which it is a share.")
      .def_property_readonly(
          "tenant", [](const VirtualDevice& self) { return self.tenant; },
          "The tenant to which it belongs; None for a device found by Gpu.resolve().")
      .def_property_readonly(
          "tenant_name", [](const VirtualDevice& self) { return self.tenant_name; },
          "The tenant's name.")
      .def_property_readonly(
          "spec",
          [](const VirtualDevice& self) {
            Spec spec;
            spec.c.struct_size = sizeof(spec.c);
            Check(gpushare_vdev_get_spec(self.handle.Use()->get(), &spec.c));
            return spec;
          },
          "The spec in force: as given, and changed by resize() since.")
      .def_property_readonly("memory", &MemoryOf,
                             "(free, total) bytes of its quota, as the tenant should see them.")
      .def(
          "resize",
          [](const VirtualDevice& self, const py::object& spec, const py::kwargs& fields) {
            const gpushare_spec limits = ChangeFrom(spec, fields);
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_vdev_resize(use->get(), &limits); }));
          },
          py::arg("spec") = py::none(),
          "resize(self, spec=None, **fields)\n--\n\n"
          "Changes limits at once; what is not given keeps its value. A quota below what is in "
          "use takes nothing\naway: allocations are refused until use has fallen below it.\n\n"
          "Raises:\n    QuotaExceededError (MemoryError), ResourceExhaustedError, "
          "InvalidArgumentError (ValueError).")
      .def(
          "suspend",
          [](const VirtualDevice& self) {
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_vdev_suspend(use->get()); }));
          },
          "suspend(self)\n--\n\nHolds launches, leases and copies until resume(); what the device "
          "has been given runs on.\n\n"
          "Memory of allocator(strategy=\"swappable\") is copied to the host then, and given back "
          "to "
          "the device and the\nquota; that waits for what runs, 5 s at most. Nobody may use it "
          "until "
          "resume().\n\n"
          "Raises:\n    FailedPreconditionError: the calling thread holds a lease of it. "
          "DeadlineExceededError: its work goes on.\n    It is suspended all the same, and some of "
          "that memory stays on the device.")
      .def(
          "resume",
          [](const VirtualDevice& self) {
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_vdev_resume(use->get()); }));
          },
          "resume(self)\n--\n\nEnds suspend(); swappable memory comes back first, at the same "
          "addresses.\n\n"
          "Raises:\n    QuotaExceededError (MemoryError), DeadlineExceededError (TimeoutError): "
          "there "
          "is no room for it. It stays\n    suspended, and that memory the host's.")
      .def(
          "stats",
          [](const VirtualDevice& self) {
            gpushare_vdev_stats stats = {};
            stats.struct_size = sizeof(stats);
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_vdev_get_stats(use->get(), &stats); }));
            return ToPython(stats);
          },
          "stats(self)\n--\n\nIts present counters, a gpushare.VirtualDeviceStats.")
      .def(
          "alloc",
          [](const std::shared_ptr<VirtualDevice>& self, const py::object& nbytes,
             const py::object& timeout) {
            return self->DefaultAllocator()->Allocate(SizeFrom(nbytes, "nbytes", kSomeBytes),
                                                      timeout);
          },
          py::arg("nbytes"), py::kw_only(), py::arg("timeout") = 0,
          "alloc(self, nbytes, *, timeout=0)\n--\n\n"
          "Device memory within the quota: a Buffer of shape (nbytes,) and dtype uint8.\n\n"
          "Args:\n"
          "    nbytes: int, or text such as \"1 GiB\".\n"
          "    timeout: how long to wait for room: seconds, text such as \"20ms\", None for "
          "ever.\n\n"
          "Raises:\n"
          "    QuotaExceededError (MemoryError): over the quota; `asked`, `left`, `total` are "
          "bytes.\n"
          "    DeviceOutOfMemoryError (MemoryError): within it, but the device is full.\n"
          "    DeadlineExceededError (TimeoutError): no room before the timeout.")
      .def(
          "empty",
          [](const std::shared_ptr<VirtualDevice>& self, const py::object& shape,
             const py::object& dtype, const py::object& timeout) {
            return NewArray(self->DefaultAllocator(), shape, dtype, timeout);
          },
          py::arg("shape"), py::arg("dtype") = "float32", py::kw_only(), py::arg("timeout") = 0,
          "empty(self, shape, dtype=\"float32\", *, timeout=0)\n--\n\nLike alloc(), for an "
          "array in C order: `shape` is an int or a tuple of ints, `dtype` a name "
          "(\"float16\",\n\"bfloat16\", \"int64\", ...), a typestring (\"<f4\") or a numpy "
          "dtype.")
      .def(
          "allocator",
          [](const std::shared_ptr<VirtualDevice>& self, const py::object& strategy,
             const py::object& reclaim) {
            return Allocator::Create(self, reclaim, TextFrom(strategy, "strategy"));
          },
          py::kw_only(), py::arg("strategy") = "direct", py::arg("reclaim") = py::none(),
          "allocator(self, *, strategy=\"direct\", reclaim=None)\n--\n\nCreates a separate "
          "Allocator; see there.")
      .def("on_reclaim", &OnReclaim, py::arg("function"),
           "on_reclaim(self, function)\n--\n\nCalls ``function(nbytes)`` when others want back "
           "memory borrowed beyond `memory` (`memory_cap`). The function\nfrees memory of this "
           "virtual device and returns whether it did; then it may be called again, at most\n16 "
           "times for one allocation. It runs on the threads that want the memory. Its "
           "exceptions go to\nsys.unraisablehook and count as False. None removes the function.")
      .def(
          "stream",
          [](const std::shared_ptr<VirtualDevice>& self, const py::object& adopt) {
            return NewStream(self, adopt);
          },
          py::arg("adopt") = py::none(),
          "stream(self, adopt=None)\n--\n\nStream(self, adopt): a new stream, or a stream of "
          "another library.")
      .def(
          "load",
          [](const VirtualDevice& self, const py::object& image) {
            return LoadModuleOn(self, image);
          },
          py::arg("image"),
          "load(self, image)\n--\n\nGpu.load() in this virtual device's context: with isolation "
          "\"context\" its streams take no other kernels.")
      .def(
          "lease",
          [](const std::shared_ptr<VirtualDevice>& self, const py::kwargs& options) {
            return NewLease(self, options);
          },
          "lease(self, *, hint=1e-4, maximum=1.0, exclusive=False, timeout=None, streams=())\n"
          "--\n\nLease(self, ...): a permit for code that launches on its own.")
      .def("yield_point", &YieldPoint,
           "yield_point(self)\n--\n\nReturns granted time that was not used. Call it before "
           "long work on the host.")
      .def("__repr__",
           [](const py::object& object) -> std::string {
             const auto& self = py::cast<const VirtualDevice&>(object);
             if (self.handle.closed()) {
               return "<gpushare.VirtualDevice of '" + self.tenant_name + "' on GPU " +
                      std::to_string(self.gpu->ordinal) + " closed>";
             }
             return py::cast<std::string>(
                 py::module_::import("gpushare._show").attr("virtual_device_line")(object));
           })
      .def("_repr_html_", [](const py::object& object) {
        return py::module_::import("gpushare._show").attr("virtual_device_html")(object);
      });
}

}  // namespace gpushare::python
