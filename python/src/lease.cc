// SPDX-License-Identifier: Apache-2.0
#include "lease.h"

#include <algorithm>
#include <climits>

#include "amount.h"
#include "async_with.h"
#include "gpu.h"
#include "gpushare/testing/sim.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// What the call needs, held so that closing an object meanwhile does no harm.
struct Terms {
  explicit Terms(const Lease& lease) : device(lease.device->handle.Use()), options(lease.options) {
    for (const std::shared_ptr<Stream>& stream : lease.streams) {
      uses.push_back(stream->handle.Use());
      handles.push_back(uses.back()->get());
    }
    options.streams = handles.data();
    options.stream_count = handles.size();
  }
  const Owned<gpushare_vdev, gpushare_vdev_destroy>::Use_ device;
  std::vector<StreamHandle::Use_> uses;
  std::vector<gpushare_stream> handles;
  gpushare_lease_options options;
};

// Longer than any lease is held: its maximum is a second by default.
constexpr int64_t kLeapNs = 10'000'000'000;

// Virtual time passes whenever all threads known to the clock wait, whatever other threads do meanwhile. So the clock may leap
// by minutes while another thread holds a lease.
void WarnOfLeap(const Lease& lease) {
  const Runtime& runtime = *lease.device->gpu->runtime;
  if (!runtime.simulated || runtime.handle.closed() || lease.held_ns <= lease.options.maximum_ns) {
    return;
  }
  const auto is_virtual =
      runtime.Symbol<decltype(gpushare_sim_clock_is_virtual)>("gpushare_sim_clock_is_virtual");
  if (is_virtual == nullptr || is_virtual() == 0) return;
  const int seconds = static_cast<int>(std::min<int64_t>(lease.held_ns / 1'000'000'000, INT_MAX));
  if (PyErr_WarnFormat(
          PyExc_RuntimeWarning, 1,
          "this lease was held for %d s of the simulated GPU's virtual clock, on a thread that the "
          "clock does not know: it passes by what that thread does, and times mean little. Start "
          "the thread with Runtime.start_thread(), or take the wall clock: GPUSHARE_SIM=clock=wall",
          seconds) != 0) {
    throw py::error_already_set();
  }
}

PyObject* Enter(PyObject* self, PyObject* const*, Py_ssize_t) {
  return Translated([&]() -> PyObject* {
    Self<Lease>(self).Acquire();
    return Py_NewRef(self);
  });
}

PyObject* Exit(PyObject* self, PyObject* const*, Py_ssize_t) {
  return Translated([&]() -> PyObject* {
    Self<Lease>(self).Release();
    Py_RETURN_NONE;
  });
}

PyCFunction AsFunction(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef enter_method = {"__enter__", AsFunction(&Enter), METH_FASTCALL,
                            "__enter__($self)\n--\n\nacquire()."};
PyMethodDef exit_method = {"__exit__", AsFunction(&Exit), METH_FASTCALL,
                           "__exit__($self, /, *args)\n--\n\nrelease()."};

}  // namespace

void Lease::Acquire() {
  const Acquiring one(*this);
  const Terms terms(*this);
  gpushare_lease lease = nullptr;
  WaitInterruptibly(
      [&] { return gpushare_lease_acquire(terms.device->get(), &terms.options, &lease); });
  handle.Reset(lease);
}

void Lease::AcquireForNobody(int64_t timeout_ns, const CallOff& call_off) {
  const Acquiring one(*this);
  const Terms terms(*this);
  gpushare_lease_options asked = terms.options;
  asked.timeout_ns = timeout_ns;
  asked.any_thread = 1;
  gpushare_lease lease = nullptr;
  Check(Unlocked([&] {
    const CallOffWatch watch(call_off.set);
    return gpushare_lease_acquire(terms.device->get(), &asked, &lease);
  }));
  handle.Reset(lease);
}

void Lease::Release() {
  if (handle.closed()) {
    Throw("FailedPreconditionError", "this lease is not held; it has been released");
  }
  gpushare_lease_result result = {};
  result.struct_size = sizeof(result);
  const LeaseHandle::Use_ use = handle.Use();
  handle.Close();
  Check(Unlocked([&] { return gpushare_lease_release(use->get(), &result); }));
  overrun = result.overrun != 0;
  held_ns = result.held_ns;
  if (held_ns > kLeapNs && !on_virtual_clock) [[unlikely]]
    WarnOfLeap(*this);
}

bool SetTerm(const std::string& name, py::handle value, gpushare_lease_options* options) {
  if (name == "hint") {
    options->hint_ns = DurationFrom(value, "hint");
    if (options->hint_ns == 0) ThrowInvalid("hint: 0 s given, above 0 wanted");
  } else if (name == "maximum") {
    options->maximum_ns = DurationFrom(value, "maximum");
    if (options->maximum_ns == 0) ThrowInvalid("maximum: 0 s given, above 0 wanted");
  } else if (name == "exclusive") {
    if (!PyBool_Check(value.ptr())) ThrowType("exclusive", value, "bool");
    options->exclusive = value.ptr() == Py_True ? 1 : 0;
  } else if (name == "timeout") {
    options->timeout_ns = TimeoutFrom(value, "timeout");
  } else {
    return false;
  }
  return true;
}

std::vector<std::shared_ptr<Stream>> StreamsFrom(const std::shared_ptr<VirtualDevice>& device,
                                                 py::handle value) {
  if (!py::isinstance<py::iterable>(value)) ThrowType("streams", value, "a sequence of streams");
  std::vector<std::shared_ptr<Stream>> streams;
  for (const py::handle stream : value) {
    streams.push_back(py::isinstance<Stream>(stream)
                          ? py::cast<std::shared_ptr<Stream>>(stream)
                          : NewStream(device, py::reinterpret_borrow<py::object>(stream)));
  }
  return streams;
}

std::shared_ptr<Lease> NewLease(const std::shared_ptr<VirtualDevice>& device,
                                const py::kwargs& options) {
  static_cast<void>(device->handle.Use());
  auto lease = Born<Lease>(device->family);
  lease->device = device;
  lease->options.struct_size = sizeof(lease->options);
  lease->options.timeout_ns = GPUSHARE_FOREVER;
  for (const auto& [key, value] : options) {
    const std::string name = TextFrom(key, "keyword");
    if (name == "streams") {
      lease->streams = StreamsFrom(device, value);
    } else if (!SetTerm(name, value, &lease->options)) {
      throw py::type_error("lease() has no keyword '" + name +
                           "'; there are hint, maximum, exclusive, timeout, streams");
    }
  }
  return lease;
}

void BindLease(py::module_& m) {
  py::class_<CallOff, std::shared_ptr<CallOff>>(m, "_CallOff",
                                                "Ends a wait of another thread within 50 ms.")
      .def(py::init<>())
      .def(
          "set", [](CallOff& self) { self.set = true; }, "set(self)\n--\n\n")
      .def_property_readonly(
          "is_set", [](const CallOff& self) { return self.set.load(); },
          "Whether set() was called.");

  auto cls = py::class_<Lease, std::shared_ptr<Lease>>(
      m, "Lease",
      "Lease(device, *, hint=1e-4, maximum=1.0, exclusive=False, timeout=None, "
      "streams=())\n--\n\nA permit for code that launches on its own: an inference engine, "
      "a cuBLAS call. ``with lease:`` waits\nfor the virtual device's turn; ``async with "
      "lease:`` does so without blocking the event loop. A lease can be\nused repeatedly, "
      "by one user at a time.\n\nArgs:\n    hint: device time expected: seconds or text "
      "such as \"2ms\".\n    maximum: a longer hold becomes a debt of the virtual "
      "device.\n    exclusive: no commands of others run while it is held.\n    timeout: "
      "for acquiring; None for ever, 0 does not wait.\n    streams: the streams of the "
      "work, on which it is measured. Streams of other libraries are bound as long "
      "as\n        the lease object lives.\n\nOn a thread that holds a lease of the same "
      "virtual device, another lease has no effect; a lease of another\nvirtual device on "
      "the same GPU raises FailedPreconditionError. Leases of ``async with`` belong to no "
      "thread.");
  cls.def(py::init([](const py::object& device, const py::kwargs& options) {
            return NewLease(Given<VirtualDevice>(device, "device", "gpushare.VirtualDevice"),
                            options);
          }),
          py::arg("device"),
          "__init__(self, device, *, hint=1e-4, maximum=1.0, exclusive=False, timeout=None, "
          "streams=())\n--\n\n")
      .def("acquire", &Lease::Acquire,
           "acquire(self)\n--\n\nWaits for the permit; Ctrl-C ends the wait.\n\nRaises:\n    "
           "DeadlineExceededError (TimeoutError): the timeout passed.\n    "
           "FailedPreconditionError (RuntimeError): it is held, or the thread holds a lease of "
           "another virtual device.")
      .def("release", &Lease::Release,
           "release(self)\n--\n\nReleases the lease. Any thread may call it; it does not wait.")
      .def_property_readonly(
          "held", [](const Lease& self) { return !self.handle.closed(); },
          "Whether it is held now.")
      .def_property_readonly(
          "overrun", [](const Lease& self) { return self.overrun; },
          "Whether it was held longer than the maximum in its last use.")
      .def_property_readonly(
          "held_seconds", [](const Lease& self) { return static_cast<double>(self.held_ns) / 1e9; },
          "How long it was held in its last use, in seconds of the host.")
      .def_property_readonly(
          "virtual_device", [](const Lease& self) { return self.device; },
          "The virtual device for whose turn it waits.")
      .def("__repr__", [](const Lease& self) {
        return "<gpushare.Lease of '" + self.device->tenant_name +
               (self.handle.closed() ? "'>" : "', held>");
      });
  DefineAsyncWith(cls);
  AddFastMethod(cls, &enter_method);
  AddFastMethod(cls, &exit_method);
}

}  // namespace gpushare::python
