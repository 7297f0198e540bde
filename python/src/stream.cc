// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <algorithm>
#include <utility>

#include "allocator.h"
#include "amount.h"
#include "buffer.h"
#include "call.h"
#include "event.h"
#include "shape.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// A stream of another GPU would be adopted silently, and its work charged to the wrong GPU.
void CheckDevice(const Gpu& gpu, CUstream_st* native) {
  constexpr auto kPerThreadDefault = 2;  // handles up to this value are not streams of one device
  if (reinterpret_cast<uintptr_t>(native) <= kPerThreadDefault) return;
  int ordinal = 0;
  if (gpu.calls.stream_device == nullptr ||
      Unlocked([&] { return gpu.calls.stream_device(native, &ordinal); }) != 0 ||
      ordinal == gpu.ordinal) {
    return;
  }
  ThrowInvalid("adopt: the stream is on GPU " + std::to_string(ordinal) +
               ", the virtual device on GPU " + std::to_string(gpu.ordinal));
}

void Synchronize(Stream& self) {
  // Work that other threads give to the stream from here on may not be complete when this wait ends.
  InFlight before = std::exchange(self.in_flight, InFlight());
  try {
    RunInterruptibly([use = self.handle.Use()] { return gpushare_stream_synchronize(use->get()); });
  } catch (...) {
    self.in_flight.PutBack(std::move(before));
    throw;
  }
  LetGoOfFinished(*self.device->gpu);
}

std::shared_ptr<Graph> EndCapture(const Stream& self) {
  const StreamHandle::Use_ use = self.handle.Use();
  gpushare_graph handle = nullptr;
  Check(Unlocked([&] { return gpushare_stream_end_capture(use->get(), &handle); }));
  auto graph = Born<Graph>(self.family);
  graph->handle.Reset(handle);
  return graph;
}

void BeginCapture(const Stream& self) {
  const StreamHandle::Use_ use = self.handle.Use();
  Check(Unlocked([&] { return gpushare_stream_begin_capture(use->get()); }));
}

CUevent_st* NativeEvent(py::handle value) {
  if (py::isinstance<Event>(value)) {
    CUevent_st* native = nullptr;
    Check(gpushare_event_native(py::cast<const Event&>(value).handle.Use()->get(), &native));
    return native;
  }
  for (const char* name : {"ptr", "handle", "cuda_event"}) {
    if (py::hasattr(value, name)) {
      return reinterpret_cast<CUevent_st*>(WholeFrom(py::int_(value.attr(name)), "event"));
    }
  }
  if (!IsWhole(value)) ThrowType("event", value, "an Event, or a CUevent's address as int");
  return reinterpret_cast<CUevent_st*>(WholeFrom(value, "event"));
}

// ---- launch() ----

constexpr char kLaunchDoc[] =
    "launch($self, kernel, grid, block, /, *args, shared=0, timeout=None, "
    "cooperative=False)\n--\n\nLaunches a kernel. Waits until it is the tenant's turn, "
    "and while the virtual device is suspended.\nCtrl-C ends the wait.\n\nArgs:\n    "
    "grid, block: an int or a tuple of up to three.\n    args: the kernel's, in order: "
    "int, float and bool by the parameter's size; Buffers and objects with\n        "
    "__cuda_array_interface__ by their address; ctypes and numpy scalars by their bytes; "
    "None is null.\n    shared: dynamic shared memory, bytes or text.\n    timeout: how "
    "long to wait: seconds, text such as \"20ms\"; 0 does not wait.\n    cooperative: "
    "all blocks are resident at the same time; the kernel has the device to "
    "itself.\n\nRaises:\n    DeadlineExceededError (TimeoutError), CancelledError: the "
    "virtual device went away.\n    TypeError, OverflowError: an argument that does not "
    "fit the parameter; it is named.";

struct LaunchOptions {
  PyObject* shared = nullptr;
  int64_t timeout_ns = GPUSHARE_FOREVER;
  bool cooperative = false;
};

LaunchOptions OptionsFrom(PyObject* const* values, PyObject* names) {
  LaunchOptions options;
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const name = PyTuple_GET_ITEM(names, i);
    if (PyUnicode_CompareWithASCIIString(name, "shared") == 0) {
      options.shared = values[i];
    } else if (PyUnicode_CompareWithASCIIString(name, "timeout") == 0) {
      options.timeout_ns = TimeoutFrom(values[i], "timeout");
    } else if (PyUnicode_CompareWithASCIIString(name, "cooperative") == 0) {
      options.cooperative = PyObject_IsTrue(values[i]) == 1;
    } else {
      throw py::type_error("launch() has no keyword '" + std::string(py::str(name)) +
                           "'; there are shared, timeout, cooperative");
    }
  }
  return options;
}

PyObject* Launch(PyObject* self_object, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  return Translated([&]() -> PyObject* {
    auto& self = Self<Stream>(self_object);
    if (count < 3) {
      throw py::type_error("launch() takes a kernel, a grid and a block, " + std::to_string(count) +
                           " arguments given");
    }
    if (!py::isinstance<Kernel>(args[0])) ThrowType("kernel", args[0], "gpushare.Kernel");
    const auto& kernel = Self<Kernel>(args[0]);
    CUfunc_st* const function = kernel.Use();
    LaunchOptions options;
    if (names != nullptr) options = OptionsFrom(args + count, names);
    const gpushare_shape shape = ShapeFrom(args[1], args[2], options.shared);
    const StreamHandle::Use_ use = self.handle.Use();
    Arguments arguments(kernel, args + 3, static_cast<size_t>(count - 3), self);
    // Kept until the stream is known to have finished with it.
    std::vector<ModuleHandle::Use_>& modules = self.in_flight.modules;
    if (kernel.module != nullptr &&
        std::find(modules.begin(), modules.end(), kernel.module) == modules.end()) {
      modules.push_back(kernel.module);
    }
    auto* const launch =
        options.cooperative ? &gpushare_stream_launch_cooperative : &gpushare_stream_launch;
    WaitInterruptibly([&] {
      return launch(use->get(), function, &shape, arguments.pointers(), options.timeout_ns);
    });
    Py_RETURN_NONE;
  });
}

PyMethodDef launch_method = {"launch",
                             reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Launch)),
                             METH_FASTCALL | METH_KEYWORDS, kLaunchDoc};

// An event behind all work of the stream. Null if the stream is idle, or if no event could be created and the stream was
// synchronised instead.
EventHandle::Use_ EndOf(gpushare_vdev device, const StreamHandle::Use_& stream) {
  return Unlocked([&]() -> EventHandle::Use_ {
    gpushare_event event = nullptr;
    if (gpushare_event_create(device, 0, &event) == GPUSHARE_OK) {
      auto made = std::make_shared<const EventHandle::Owner>(event);
      CUevent_st* native = nullptr;
      if (gpushare_event_native(event, &native) == GPUSHARE_OK &&
          gpushare_stream_record(stream->get(), native) == GPUSHARE_OK) {
        int done = 0;
        if (gpushare_event_query(event, &done) == GPUSHARE_OK && done == 0) return made;
        return nullptr;
      }
    }
    static_cast<void>(gpushare_stream_synchronize(stream->get()));
    return nullptr;
  });
}

}  // namespace

void Stream::Close() {
  const bool live = !handle.closed() && !handle.inherited() && !Finalizing();
  // What is in flight must stay, and users of the same memory must wait for it. The handle will not be there to find either.
  const bool known = !in_flight.empty() || (work != nullptr && work.use_count() > 1);
  InFlight kept = std::exchange(in_flight, InFlight());
  if (live && known) {
    const StreamHandle::Use_ last = handle.Use();
    handle.Close();
    const EventHandle::Use_ end = EndOf(share->get(), last);
    if (work.use_count() > 1) work->end = end;
    if (end != nullptr && !kept.empty()) device->gpu->ended.push_back({end, std::move(kept)});
    LetGoOfFinished(*device->gpu);
  }
  handle.Close();
  work = nullptr;
  share = nullptr;
  const py::object stream = std::move(adopted);
  adopted = py::none();
}

uintptr_t Stream::Pointer() const {
  CUstream_st* native = nullptr;
  Check(gpushare_stream_native(handle.Use()->get(), &native));
  return reinterpret_cast<uintptr_t>(native);
}

void Stream::YieldPoint() const {
  const StreamHandle::Use_ use = handle.Use();
  Check(Unlocked([&] { return gpushare_stream_yield(use->get()); }));
}

void Stream::Uses(Memory& memory) {
  if (work == nullptr) static_cast<void>(handle.Use());  // throws: the stream is closed
  std::vector<std::shared_ptr<StreamWork>>& streams = memory.used_on;
  if (!streams.empty() && streams.back() == work) [[likely]]
    return;
  // Drops closed streams that have no work left. Usually there are few streams, except in programs that create one each time.
  constexpr size_t kMany = 8;
  if (streams.size() >= kMany) {
    std::erase_if(streams, [](const std::shared_ptr<StreamWork>& other) {
      const std::shared_ptr<Stream> live = other->stream.lock();
      if (live != nullptr && !live->handle.closed()) return false;
      int done = 0;
      return other->end == nullptr ||
             (gpushare_event_query(other->end->get(), &done) == GPUSHARE_OK && done != 0);
    });
  }
  std::erase(streams, work);
  streams.push_back(work);
}

// The array interface obliges the consumer of an array to wait for the stream that it names.
void Stream::Uses(const DeviceMemory& memory) {
  if (memory.owner != nullptr) Uses(*memory.owner);
  if (!memory.has_stream) return;
  auto* const producer = reinterpret_cast<CUstream_st*>(memory.stream);
  const StreamHandle::Use_ use = handle.Use();
  const auto on = device->handle.Use();
  const DriverCalls& calls = device->gpu->calls;
  Check(Unlocked([&] {
    CUstream_st* mine = nullptr;
    const gpushare_status code = gpushare_stream_native(use->get(), &mine);
    if (code != GPUSHARE_OK || mine == producer) return code;
    return WithEvent(on->get(), [&](gpushare_event, CUevent_st* native) {
      if (calls.event_record != nullptr && calls.event_record(native, producer) == 0) {
        return gpushare_stream_wait(use->get(), native);
      }
      // The producer is of another context than the event, or gone. Wait for it here.
      if (calls.stream_synchronize != nullptr) {
        static_cast<void>(calls.stream_synchronize(producer));
      }
      return GPUSHARE_OK;
    });
  }));
}

void Stream::Before(const Stream& other) const {
  const StreamHandle::Use_ use = handle.Use(), later = other.handle.Use();
  const auto on = device->handle.Use();
  Check(Unlocked([&] {
    return WithEvent(on->get(), [&](gpushare_event, CUevent_st* native) {
      const gpushare_status code = gpushare_stream_record(use->get(), native);
      if (code != GPUSHARE_OK || gpushare_stream_wait(later->get(), native) == GPUSHARE_OK) {
        return code;
      }
      return gpushare_stream_synchronize(use->get());
    });
  }));
}

std::shared_ptr<Stream> NewStream(const std::shared_ptr<VirtualDevice>& device,
                                  const py::object& adopt) {
  const auto use = device->handle.Use();
  gpushare_stream handle = nullptr;
  if (adopt.is_none()) {
    Check(Unlocked([&] { return gpushare_stream_create(use->get(), &handle); }));
  } else {
    CUstream_st* const native = NativeStream(adopt, "adopt");
    CheckDevice(*device->gpu, native);
    Check(Unlocked([&] { return gpushare_stream_bind(use->get(), native, &handle); }));
  }
  auto stream = Born<Stream>(device->family);
  stream->handle.Reset(handle);
  stream->device = device;
  stream->share = use;
  stream->adopted = adopt;
  stream->work = std::make_shared<StreamWork>();
  stream->work->stream = stream;
  LetGoOfFinished(*device->gpu);
  std::erase_if(device->streams, [](const auto& weak) { return weak.expired(); });
  device->streams.push_back(stream);
  return stream;
}

CUstream_st* NativeStream(py::handle value, const char* field) {
  py::object address;
  if (py::isinstance<Stream>(value)) {
    return reinterpret_cast<CUstream_st*>(py::cast<const Stream&>(value).Pointer());
  }
  if (py::hasattr(value, "__cuda_stream__")) {
    py::object protocol = value.attr("__cuda_stream__");
    if (PyCallable_Check(protocol.ptr())) protocol = protocol();
    const py::tuple pair = protocol;
    if (pair.size() != 2 || !py::object(pair[0]).equal(py::int_(0))) {
      throw py::type_error(std::string(field) + ": __cuda_stream__ gave " +
                           std::string(py::str(pair)) + ", (0, address) wanted");
    }
    address = pair[1];
  } else if (py::hasattr(value, "cuda_stream")) {
    address = value.attr("cuda_stream");
  } else if (py::hasattr(value, "ptr")) {
    address = value.attr("ptr");
  } else if (IsWhole(value)) {
    address = py::reinterpret_borrow<py::object>(value);
  } else {
    ThrowType(field, value, "an object with __cuda_stream__, or a CUstream's address as int");
  }
  return reinterpret_cast<CUstream_st*>(WholeFrom(address, field));
}

namespace {

// Called on the driver's threads; `argument` is the function.
void CallOnDriversThread(void* argument, bool last) {
  if (Finalizing()) return;  // the function is leaked
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  auto* const function = static_cast<py::object*>(argument);
  try {
    python::Call(*function, py::tuple());
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(*function);
  }
  if (last) delete function;
  PyGILState_Release(gil);
}

void CallOnce(void* argument) { CallOnDriversThread(argument, /*last=*/true); }
// A graph calls it at every launch, and nobody reports when the graph is gone, so the function is leaked.
void CallAtEach(void* argument) { CallOnDriversThread(argument, /*last=*/false); }

void LaunchHost(const Stream& self, const py::object& function) {
  if (!PyCallable_Check(function.ptr())) ThrowType("function", function, "a callable");
  const StreamHandle::Use_ use = self.handle.Use();
  CUstream_st* native = nullptr;
  Check(gpushare_stream_native(use->get(), &native));
  auto owned = std::make_unique<py::object>(function);
  void* const argument = owned.get();
  Check(Unlocked([&] {
    int capturing = 0;
    auto* const ask = self.device->gpu->calls.stream_capturing;
    const bool once = ask != nullptr && ask(native, &capturing) == 0 && capturing == 0;
    return gpushare_stream_launch_host(use->get(), once ? &CallOnce : &CallAtEach, argument);
  }));
  static_cast<void>(owned.release());
}

}  // namespace

void BindStream(py::module_& m) {
  auto cls = py::class_<Stream, std::shared_ptr<Stream>>(
      m, "Stream",
      "Stream(device, adopt=None)\n--\n\nA CUDA stream whose launches, graphs and copies "
      "pass the gate of a virtual device.\n\nArgs:\n    adopt: None for a new stream, or a "
      "stream of another library: any object with ``__cuda_stream__``, a\n        "
      "torch.cuda.Stream, a cupy.cuda.Stream, or an address (0: the legacy default "
      "stream). It is kept\n        alive, and unbound by close().\n\nOther libraries can "
      "use it through ``__cuda_stream__``. Their launches on it are held and\ncharged when "
      "a lease covers it.\n\nRaises:\n    AlreadyExistsError (ValueError): the stream is "
      "bound already.\n    InvalidArgumentError (ValueError): the stream belongs to "
      "another GPU.");
  cls.def(py::init([](const py::object& device, const py::object& adopt) {
            return NewStream(Given<VirtualDevice>(device, "device", "gpushare.VirtualDevice"),
                             adopt);
          }),
          py::arg("device"), py::arg("adopt") = py::none(),
          "__init__(self, device, adopt=None)\n--\n\n");
  AddLifetime(cls, "close(self)\n--\n\nDoes not wait: work in flight continues.");
  cls.def(
         "__cuda_stream__", [](const Stream& self) { return py::make_tuple(0, self.Pointer()); },
         "__cuda_stream__(self)\n--\n\n(0, address): the protocol of cuda.core and others.")
      .def_property_readonly("ptr", &Stream::Pointer, "The CUstream's address.")
      .def_property_readonly("cuda_stream", &Stream::Pointer, "The same by PyTorch's name for it.")
      .def_property_readonly(
          "virtual_device", [](const Stream& self) { return self.device; }, "Whose it is.")
      .def(
          "launch_graph",
          [](const Stream& self, const py::object& graph, const py::object& timeout) {
            const auto given = Given<Graph>(graph, "graph", "gpushare.Graph");
            const GraphHandle::Use_ owner = given->handle.Use();
            const StreamHandle::Use_ use = self.handle.Use();
            CUgraphExec_st* native = nullptr;
            Check(gpushare_graph_native(owner->get(), &native));
            const int64_t timeout_ns = TimeoutFrom(timeout, "timeout");
            WaitInterruptibly(
                [&] { return gpushare_stream_launch_graph(use->get(), native, timeout_ns); });
          },
          py::arg("graph"), py::kw_only(), py::arg("timeout") = py::none(),
          "launch_graph(self, graph, *, timeout=None)\n--\n\nLaunches captured work as one "
          "command. Waits as launch() does.")
      .def("launch_host", &LaunchHost, py::arg("function"),
           "launch_host(self, function)\n--\n\nCalls ``function()`` on a thread of the driver "
           "when the stream reaches it; later work waits for its\nend. The function must not "
           "call the driver, and so neither this package nor PyTorch. Its exceptions go "
           "to\nsys.unraisablehook. It is neither held by the gate nor charged. In a capture it "
           "becomes part of the graph, and\nis kept for ever.")
      .def("synchronize", &Synchronize,
           "synchronize(self)\n--\n\nWaits for all work of the stream. Meanwhile the tenant's "
           "unused time goes to others. Ctrl-C ends\nthe wait, not the work.")
      .def("yield_point", &Stream::YieldPoint,
           "yield_point(self)\n--\n\nReturns granted time that was not used. Call it before "
           "long work on the host.")
      .def(
          "record",
          [](const Stream& self, const py::object& event) {
            const StreamHandle::Use_ use = self.handle.Use();
            CUevent_st* const native = NativeEvent(event);
            Check(Unlocked([&] { return gpushare_stream_record(use->get(), native); }));
          },
          py::arg("event"),
          "record(self, event)\n--\n\nRecords the event, which is done when all work so far is "
          "done.")
      .def(
          "wait",
          [](const Stream& self, const py::object& event) {
            const StreamHandle::Use_ use = self.handle.Use();
            CUevent_st* const native = NativeEvent(event);
            Check(Unlocked([&] { return gpushare_stream_wait(use->get(), native); }));
          },
          py::arg("event"),
          "wait(self, event)\n--\n\nMakes later work of the stream wait for the event. The "
          "caller does not wait.")
      .def("begin_capture", &BeginCapture,
           "begin_capture(self)\n--\n\nStarts a capture: until end_capture(), work goes into a "
           "graph and is neither held nor charged.")
      .def("end_capture", &EndCapture,
           "end_capture(self)\n--\n\nEnds the capture and returns the captured work as a Graph. "
           "Call it on the thread that began the capture.")
      .def("__repr__", [](const Stream& self) {
        return "<gpushare.Stream of '" + self.device->tenant_name +
               (self.handle.closed() ? "' closed>" : "'>");
      });
  AddCopies(cls);
  AddFastMethod(cls, &launch_method);
}

}  // namespace gpushare::python
