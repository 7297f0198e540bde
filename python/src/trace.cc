// SPDX-License-Identifier: Apache-2.0
// _core.Trace: the basis of gpushare.trace().
#include <iterator>
#include <string>
#include <vector>

#include "amount.h"
#include "object.h"
#include "runtime.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

struct Trace : Object {
  Owned<gpushare_trace, gpushare_trace_destroy> handle{"trace"};
  void Close() override { handle.Close(); }
};

std::shared_ptr<Trace> Start(const py::object& runtime, const py::object& capacity) {
  const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
  gpushare_trace_options options = {};
  options.struct_size = sizeof(options);
  const uint64_t events = WholeFrom(capacity, "capacity");
  if (events == 0 || events > UINT32_MAX) {
    ThrowInvalid("capacity: " + std::to_string(events) + " events given, 1 to 4194304 allowed");
  }
  options.capacity = static_cast<uint32_t>(events);
  const auto use = of->handle.Use();
  gpushare_trace handle = nullptr;
  Check(Unlocked([&] { return gpushare_trace_start(use->get(), &options, &handle); }));
  std::shared_ptr<Trace> trace = Born<Trace>(of->family);
  trace->handle.Reset(handle);
  return trace;
}

py::tuple ToPython(const gpushare_trace_event& e) {
  constexpr const char* kKinds[] = {"",          "wait",   "lease",  "device",
                                    "copy_wait", "memory", "denied", "suspend"};
  const bool time = e.kind == GPUSHARE_TRACE_WAIT || e.kind == GPUSHARE_TRACE_LEASE ||
                    e.kind == GPUSHARE_TRACE_DEVICE;
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  const auto has = [&](uint32_t flag) { return (e.flags & flag) != 0; };
  return py::make_tuple(
      e.kind < static_cast<int>(std::size(kKinds)) ? kKinds[e.kind] : "unknown", e.tenant, e.gpu,
      seconds(e.begin_ns), seconds(e.end_ns),
      time ? py::object(py::float_(seconds(e.value))) : py::object(py::int_(e.value)), e.other,
      e.commands, has(GPUSHARE_TRACE_GAVE_UP), has(GPUSHARE_TRACE_FOR_LEASE),
      has(GPUSHARE_TRACE_EXCLUSIVE), has(GPUSHARE_TRACE_OVERRUN), has(GPUSHARE_TRACE_OVERDUE),
      has(GPUSHARE_TRACE_DEVICE_FULL));
}

py::list Read(const Trace& self, size_t most) {
  const auto use = self.handle.Use();
  std::vector<gpushare_trace_event> events(most);
  if (most > 0) events[0].struct_size = sizeof(events[0]);
  size_t got = 0;
  Check(Unlocked([&] { return gpushare_trace_read(use->get(), events.data(), most, &got); }));
  py::list out;
  for (size_t i = 0; i < got; ++i) out.append(ToPython(events[i]));
  return out;
}

}  // namespace

void BindTrace(py::module_& m) {
  auto cls = py::class_<Trace, std::shared_ptr<Trace>>(
      m, "Trace",
      "Trace(runtime, capacity)\n--\n\nThe flight recorders of a runtime's GPUs, as used "
      "by gpushare.trace().");
  cls.def(py::init(&Start), py::arg("runtime"), py::arg("capacity"),
          "__init__(self, runtime, capacity)\n--\n\n");
  AddLifetime(cls, "close(self)\n--\n\nEnds the recording and discards events that were not read.");
  cls.def(
         "stop",
         [](const Trace& self) {
           const auto use = self.handle.Use();
           Check(Unlocked([&] { return gpushare_trace_stop(use->get()); }));
         },
         "stop(self)\n--\n\nEnds the recording. The recorded events can still be read.")
      .def("read", &Read, py::arg("most"),
           "read(self, most)\n--\n\nTakes up to `most` events, as tuples: the fields of "
           "gpushare.TraceEvent.")
      .def(
          "write",
          [](const Trace& self, const py::object& path) {
            const auto use = self.handle.Use();
            const std::string name =
                py::cast<std::string>(py::module_::import("os").attr("fsencode")(path));
            Check(Unlocked([&] { return gpushare_trace_write(use->get(), name.c_str()); }));
          },
          py::arg("path"),
          "write(self, path)\n--\n\nTakes the events that were not read and writes them to a "
          "file.")
      .def_property_readonly(
          "lost",
          [](const Trace& self) {
            uint64_t lost = 0;
            const auto use = self.handle.Use();
            Check(gpushare_trace_lost(use->get(), &lost));
            return lost;
          },
          "Events that were overwritten before they were read.");
}

}  // namespace gpushare::python
