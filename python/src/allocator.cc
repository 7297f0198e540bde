// SPDX-License-Identifier: Apache-2.0
#include "allocator.h"

#include <atomic>
#include <exception>
#include <functional>
#include <utility>

#include "amount.h"
#include "buffer.h"
#include "call.h"
#include "stream.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

void Memory::Close() {
  used_on.clear();
  const AllocatorHandle::Use_ allocator = std::move(allocator_);
  allocator_ = nullptr;
  const gpushare_device_ptr pointer = std::exchange(pointer_, 0);
  if (allocator == nullptr || pointer == 0 || allocator->inherited() || Finalizing()) return;
  UnlockedIfLocked([&] { static_cast<void>(gpushare_free(allocator->get(), pointer)); });
}

// ---- Asking the program to free something ----

namespace {

// One allocation by the calling thread; passes on the exception that its reclaim function raises.
class ReclaimScope {
 public:
  explicit ReclaimScope(bool raises) : raises_(raises), outer_(std::exchange(innermost, this)) {}
  ~ReclaimScope() { innermost = outer_; }
  ReclaimScope(const ReclaimScope&) = delete;
  ReclaimScope& operator=(const ReclaimScope&) = delete;

  // Keeps the current exception if this allocation will raise it later. False if not.
  static bool Keep() {
    if (innermost == nullptr || !innermost->raises_) return false;
    innermost->raised_ = std::current_exception();
    return true;
  }
  void Check() {
    if (raised_ != nullptr) std::rethrow_exception(std::exchange(raised_, nullptr));
  }

 private:
  static thread_local ReclaimScope* innermost;
  const bool raises_;
  ReclaimScope* const outer_;  // the allocation in the reclaim function of which this one happens
  std::exception_ptr raised_;
};

thread_local ReclaimScope* ReclaimScope::innermost = nullptr;

}  // namespace

struct Allocator::Reclaimer {
  py::function function;

  static int Call(void* context, uint64_t asked, uint64_t left) {
    auto& self = *static_cast<Reclaimer*>(context);
    if (Finalizing()) return 0;
    const AskedScope nobody;
    const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
    int freed = 0;
    try {
      freed = py::bool_(python::Call(self.function, py::make_tuple(asked, left))) ? 1 : 0;
    } catch (py::error_already_set& error) {
      freed = GPUSHARE_RECLAIM_STOP;
      if (!ReclaimScope::Keep()) error.discard_as_unraisable(self.function);
    }
    PyGILState_Release(gil);
    return freed;
  }
};

// ---- C functions ----

// The parameter of the C functions. Lives until the allocator is closed and all its memory is freed.
struct Allocator::CParameter {
  AllocatorHandle::Use_ owner;
  const gpushare_allocator handle;
  std::atomic<int64_t> users;  // live allocations, and 1 for the Allocator

  void Leave() {
    if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

// Null when the allocation does not fit: frameworks then free their caches and try again.
void* CMalloc(void* parameter, size_t bytes, int) {
  auto& self = *static_cast<Allocator::CParameter*>(parameter);
  gpushare_device_ptr pointer = 0;
  const ReclaimScope nobody(/*raises=*/false);
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

namespace {

int32_t StrategyFrom(const std::string& name) {
  constexpr const char* kNames[] = {"direct", "pool", "suballocating", "swappable"};
  for (int32_t i = 0; i < 4; ++i) {
    if (name == kNames[i]) return i;
  }
  ThrowInvalid("strategy: '" + name +
               "' given; 'direct', 'pool', 'suballocating' or 'swappable' wanted");
}

}  // namespace

std::shared_ptr<Allocator> Allocator::Create(const std::shared_ptr<VirtualDevice>& device,
                                             const py::object& reclaim,
                                             const std::string& strategy) {
  gpushare_allocator_options options = {};
  options.struct_size = sizeof(options);
  options.strategy = StrategyFrom(strategy);
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
  const auto of = device->handle.Use();
  Check(Unlocked([&] { return gpushare_allocator_create(of->get(), &options, &handle); }));
  std::shared_ptr<Allocator> allocator = Born<Allocator>(device->family);
  allocator->handle.Reset(handle);
  allocator->device_ = allocator->keeps_ = device;
  allocator->reclaimer_ = std::move(reclaimer);
  return allocator;
}

Allocator::~Allocator() { Close(); }

void Allocator::Close() {
  if (CParameter* const parameter = std::exchange(parameter_, nullptr)) parameter->Leave();
  handle.Close();
}

std::shared_ptr<Memory> Allocator::AllocateMemory(uint64_t bytes, const py::object& timeout,
                                                  const py::object& stream) {
  AllocatorHandle::Use_ use = handle.Use();
  gpushare_alloc_options options = {};
  options.struct_size = sizeof(options);
  options.set = GPUSHARE_ALLOC_TIMEOUT;
  options.timeout_ns = TimeoutFrom(timeout, "timeout");
  std::shared_ptr<Stream> on;
  StreamHandle::Use_ stream_use;
  if (!stream.is_none()) {
    on = Given<Stream>(stream, "stream",
                       "gpushare.Stream; device.stream(x) adopts one of another library");
    stream_use = on->handle.Use();
    options.stream = stream_use->get();
  }
  gpushare_device_ptr pointer = 0;
  std::shared_ptr<Memory> memory;
  {
    ReclaimScope reclaim(/*raises=*/true);
    SignalWatch signals(reclaimer_ == nullptr ? nullptr : std::function<void()>([&] {
      // The call keeps its place in the queue meanwhile, so memory freed here is given to it.
      const std::shared_ptr<VirtualDevice> of = device();
      uint64_t left = 0, total = 0;
      if (of == nullptr || of->handle.closed()) return;
      Check(gpushare_vdev_memory(of->handle.Use()->get(), &left, &total));
      static_cast<void>(python::Call(reclaimer_->function, py::make_tuple(bytes, left)));
    }));
    const gpushare_status code =
        Unlocked([&] { return gpushare_alloc_with(use->get(), bytes, &options, &pointer); });
    // Done first, so that the memory is freed if a handler raised just when the request was served.
    if (code == GPUSHARE_OK) memory = std::make_shared<Memory>(std::move(use), pointer, bytes);
    signals.Check();
    reclaim.Check();
    python::Check(code);
  }
  if (on != nullptr) on->Uses(*memory);
  family->Add(memory);
  return memory;
}

std::shared_ptr<Buffer> Allocator::Allocate(uint64_t bytes, const py::object& timeout,
                                            const py::object& stream) {
  return WholeBuffer(device(), AllocateMemory(bytes, timeout, stream));
}

void Allocator::Trim(const py::object& nbytes) {
  const uint64_t bytes = nbytes.is_none() ? UINT64_MAX : SizeFrom(nbytes, "nbytes");
  const AllocatorHandle::Use_ use = handle.Use();
  Check(Unlocked([&] { return gpushare_allocator_trim(use->get(), bytes); }));
}

py::object Allocator::Stats() const {
  gpushare_allocator_stats s = {};
  s.struct_size = sizeof(s);
  const AllocatorHandle::Use_ use = handle.Use();
  Check(Unlocked([&] { return gpushare_allocator_get_stats(use->get(), &s); }));
  py::dict d;
  d["reserved"] = s.reserved;
  d["live"] = s.live;
  d["peak_reserved"] = s.peak_reserved;
  d["peak_live"] = s.peak_live;
  d["largest_free"] = s.largest_free;
  d["set_apart"] = s.set_apart;
  d["segments"] = s.segments;
  d["allocations"] = s.allocations;
  d["waiting"] = s.waiting;
  d["served"] = s.served;
  d["hits"] = s.hits;
  return Call(py::module_::import("gpushare.snapshot").attr("PoolStats"), py::tuple(), d);
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
      "Allocates within the quota of one virtual device; made by "
      "VirtualDevice.allocator().\n\nWith `reclaim`, an allocation beyond the quota calls "
      "``reclaim(asked, left)`` (bytes) on the same\nthread, at most 16 times, and every "
      "50 ms while it waits (`timeout`). The function frees memory of the same\nvirtual "
      "device and returns whether to try again. The allocation raises the function's "
      "exceptions.\n\n`strategy` is 'direct' (each allocation is one of the driver's), "
      "'suballocating' (cut from segments, in the\norder of streams) or 'pool' (the "
      "driver's stream-ordered pool). With a pool, allocate with `stream`: the\nbuffer is "
      "freed in that stream's order. A pool may reuse memory allocated without a stream "
      "from the moment\nit is freed: before freeing it, wait for the work that uses it.");
  cls.def(
         "alloc",
         [](Allocator& self, const py::object& nbytes, const py::object& stream,
            const py::object& timeout) {
           return self.Allocate(SizeFrom(nbytes, "nbytes", kSomeBytes), timeout, stream);
         },
         py::arg("nbytes"), py::kw_only(), py::arg("stream") = py::none(), py::arg("timeout") = 0,
         "alloc(self, nbytes, *, stream=None, timeout=0)\n--\n\nLike VirtualDevice.alloc(). "
         "stream: the memory is for later work on this Stream.")
      .def(
          "empty",
          [](const std::shared_ptr<Allocator>& self, const py::object& shape,
             const py::object& dtype, const py::object& stream,
             const py::object& timeout) { return NewArray(self, shape, dtype, timeout, stream); },
          py::arg("shape"), py::arg("dtype") = "float32", py::kw_only(),
          py::arg("stream") = py::none(), py::arg("timeout") = 0,
          "empty(self, shape, dtype=\"float32\", *, stream=None, timeout=0)\n--\n\nLike "
          "VirtualDevice.empty().")
      .def(
          "cancel_waits",
          [](const Allocator& self) {
            const AllocatorHandle::Use_ use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_allocator_cancel_waits(use->get()); }));
          },
          "cancel_waits(self)\n--\n\nAllocations that are waiting for memory of this allocator "
          "raise a CancelledError within a millisecond, unless\nthey are served meanwhile. Any "
          "thread may call it.")
      .def("trim", &Allocator::Trim, py::arg("nbytes") = py::none(),
           "trim(self, nbytes=None)\n--\n\nReturns idle memory of the pool to the quota until "
           "`nbytes` of it are left (default: all of it).\n\nRaises:\n    "
           "FailedPreconditionError: the strategy 'direct' keeps no pool.")
      .def("stats", &Allocator::Stats,
           "stats(self)\n--\n\nThe present state of the pool, a "
           "gpushare.PoolStats.\n\nRaises:\n    FailedPreconditionError: the strategy 'direct' "
           "keeps no pool.")
      .def_property_readonly(
          "virtual_device", [](const Allocator& self) { return self.device(); },
          "The virtual device with the quota.")
      .def("c_functions", &Allocator::CFunctions,
           "c_functions(self)\n--\n\n(parameter, malloc, free): addresses of ``void* "
           "malloc(void* parameter, size_t bytes, int device)`` and\n``void free(void* "
           "parameter, void* pointer, int device)``, the form of cupy.cuda.CFunctionAllocator. "
           "They\ndo not take Python's lock; malloc returns null beyond the quota. They are "
           "valid until the allocator is closed\nand everything allocated by them is freed: "
           "keep a reference to the allocator.");
  AddLifetime(cls, "close(self)\n--\n\nMemory that is allocated stays valid.");
}

}  // namespace gpushare::python
