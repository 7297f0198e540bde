// SPDX-License-Identifier: Apache-2.0
// _core.Watchdog: the basis of gpushare.Watchdog.
#include <memory>
#include <utility>

#include "amount.h"
#include "call.h"
#include "gil.h"
#include "gpu.h"
#include "object.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// A watchdog of the library, and the function that its thread calls.
struct Watching {
  gpushare_watchdog watchdog = nullptr;
  py::object callback;
};

// Called with the interpreter's lock or without.
gpushare_status Stop(Watching* watching) {
  const gpushare_status code = gpushare_watchdog_stop(watching->watchdog);
  if (code != GPUSHARE_OK) return code;  // refused in its own callback: it goes on
  if (Finalizing()) return code;         // the function is leaked
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  delete watching;
  PyGILState_Release(gil);
  return code;
}

struct Watchdog : Object {
  Owned<Watching*, Stop> handle{"watchdog"};
  void Close() override;
};

thread_local const Watching* in_callback = nullptr;

void Watchdog::Close() {
  if (!handle.closed() && in_callback != nullptr && handle.Use()->get() == in_callback) {
    Throw("FailedPreconditionError",
          "this watchdog is closed from its own callback, for whose end it would wait");
  }
  handle.Close();
}

void Tell(void* context, const gpushare_incident* incident) {
  const auto* const watching = static_cast<const Watching*>(context);
  if (Finalizing()) return;
  const PyGILState_STATE gil = WithoutUnwinding([] { return PyGILState_Ensure(); });
  in_callback = watching;
  try {
    Call(watching->callback,
         py::make_tuple(incident->kind == GPUSHARE_INCIDENT_STUCK ? "stuck" : "fault",
                        incident->tenant, static_cast<double>(incident->late_ns) / 1e9,
                        incident->lease != 0, reinterpret_cast<uintptr_t>(incident->stream),
                        incident->driver_result));
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable(watching->callback);
  }
  in_callback = nullptr;
  PyGILState_Release(gil);
}

std::shared_ptr<Watchdog> StartWatchdog(const py::object& gpu, const py::object& callback,
                                        const py::object& limit) {
  const auto of = Given<Gpu>(gpu, "gpu", "gpushare.Gpu");
  if (PyCallable_Check(callback.ptr()) == 0) ThrowType("callback", callback, "a callable");
  auto watching = std::make_unique<Watching>();
  watching->callback = callback;
  gpushare_watchdog_options options = {};
  options.struct_size = sizeof(options);
  options.limit_ns = DurationFrom(limit, "limit");
  if (options.limit_ns == 0) options.limit_ns = -1;  // 0 is to be refused; in C it is the default
  options.callback = &Tell;
  options.context = watching.get();
  const auto use = of->handle.Use();
  Check(
      Unlocked([&] { return gpushare_watchdog_start(use->get(), &options, &watching->watchdog); }));
  std::shared_ptr<Watchdog> watchdog = Born<Watchdog>(of->family);
  watchdog->handle.Reset(watching.release());
  return watchdog;
}

}  // namespace

void BindWatchdog(py::module_& m) {
  auto cls = py::class_<Watchdog, std::shared_ptr<Watchdog>>(
      m, "Watchdog",
      "Watchdog(gpu, callback, limit)\n--\n\nReports work that does not end, as used by "
      "gpushare.Watchdog.");
  cls.def(py::init(&StartWatchdog), py::arg("gpu"), py::arg("callback"), py::arg("limit"),
          "__init__(self, gpu, callback, limit)\n--\n\n");
  AddLifetime(cls, "close(self)\n--\n\nStops it, after a running callback has ended.");
}

}  // namespace gpushare::python
