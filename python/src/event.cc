// SPDX-License-Identifier: Apache-2.0
#include "event.h"

#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

void BindEvent(py::module_& m) {
  auto event = py::class_<Event, std::shared_ptr<Event>>(
      m, "Event",
      "Event(device, *, timing=False)\n--\n\nA CUDA event, for Stream.record() and "
      "Stream.wait().");
  event
      .def(py::init([](const py::object& device, bool timing) {
             const auto on = Given<VirtualDevice>(device, "device", "gpushare.VirtualDevice");
             const auto use = on->handle.Use();
             gpushare_event handle = nullptr;
             Check(Unlocked([&] { return gpushare_event_create(use->get(), timing, &handle); }));
             auto made = Born<Event>(on->family);
             made->handle.Reset(handle);
             made->device = on;
             return made;
           }),
           py::arg("device"), py::kw_only(), py::arg("timing") = false,
           "__init__(self, device, *, timing=False)\n--\n\n")
      .def_property_readonly(
          "ptr",
          [](const Event& self) {
            CUevent_st* native = nullptr;
            Check(gpushare_event_native(self.handle.Use()->get(), &native));
            return reinterpret_cast<uintptr_t>(native);
          },
          "The CUevent's address.")
      .def_property_readonly(
          "done",
          [](const Event& self) {
            const EventHandle::Use_ use = self.handle.Use();
            int done = 0;
            Check(Unlocked([&] { return gpushare_event_query(use->get(), &done); }));
            return done != 0;
          },
          "Whether the work recorded before it is complete.")
      .def(
          "synchronize",
          [](const Event& self) {
            RunInterruptibly(
                [use = self.handle.Use()] { return gpushare_event_synchronize(use->get()); });
          },
          "synchronize(self)\n--\n\nWaits until the event is done.")
      .def(
          "since",
          [](const Event& self, const py::object& start) {
            const auto from = Given<Event>(start, "start", "gpushare.Event");
            const EventHandle::Use_ first = from->handle.Use(), second = self.handle.Use();
            int64_t ns = 0;
            Check(
                Unlocked([&] { return gpushare_event_elapsed(first->get(), second->get(), &ns); }));
            return static_cast<double>(ns) / 1e9;
          },
          py::arg("start"),
          "since(self, start)\n--\n\nSeconds from `start` to this event. Both events must have "
          "timing and be done.");
  AddLifetime(event, "close(self)\n--\n\nDestroys it.");

  auto graph = py::class_<Graph, std::shared_ptr<Graph>>(
      m, "Graph",
      "Captured work, ready for Stream.launch_graph(). For the gate it is one command.");
  graph.def_property_readonly(
      "ptr",
      [](const Graph& self) {
        CUgraphExec_st* native = nullptr;
        Check(gpushare_graph_native(self.handle.Use()->get(), &native));
        return reinterpret_cast<uintptr_t>(native);
      },
      "The CUgraphExec's address.");
  AddLifetime(graph, "close(self)\n--\n\nDestroys it.");
}

}  // namespace gpushare::python
