// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "amount.h"
#include "call.h"
#include "clock_thread.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// The generation of the process that first had a runtime: its forked children cannot have one.
std::atomic<uint32_t> used_generation{UINT32_MAX};

// All runtimes, oldest first. Only used with the interpreter's lock.
std::vector<std::weak_ptr<Runtime>>& Runtimes() {
  static auto& all = *new std::vector<std::weak_ptr<Runtime>>;
  return all;
}

std::string OptionalText(py::handle value, const char* field) {
  return value.is_none() ? std::string() : TextFrom(value, field);
}

std::string PathFrom(const py::object& value, const char* field) {
  return py::hasattr(value, "__fspath__") ? TextFrom(value.attr("__fspath__")(), field)
                                          : OptionalText(value, field);
}

std::shared_ptr<Runtime> Create(const py::object& driver, const py::object& simulation,
                                const py::object& memory_reserve, const py::object& broker,
                                const py::object& broker_tenant, const py::object& broker_spec) {
  const uint32_t used = used_generation.load();
  if (used != UINT32_MAX && used != ForkGeneration()) {
    Throw("ForkedError",
          "this process was forked from one that uses gpushare, and CUDA does not survive fork(): "
          "start processes with multiprocessing's 'spawn' or 'forkserver' method");
  }
  const std::string path = PathFrom(driver, "driver");
  const std::string text = OptionalText(simulation, "simulation");
  gpushare_runtime_options options = {};
  options.struct_size = sizeof(options);
  options.driver = path.c_str();
  options.simulation = text.empty() ? nullptr : text.c_str();
  if (!memory_reserve.is_none()) {
    options.memory_reserve = SizeFrom(memory_reserve, "memory_reserve");
    options.no_memory_reserve = options.memory_reserve == 0;
  }
  const std::string socket = PathFrom(broker, "broker");
  const std::string tenant = OptionalText(broker_tenant, "broker_tenant");
  const std::string spec =
      broker_spec.is_none() ? std::string() : py::cast<std::string>(py::str(broker_spec));
  if (!broker.is_none()) options.broker = socket.c_str();
  if (!broker_tenant.is_none()) options.broker_tenant = tenant.c_str();
  if (!broker_spec.is_none()) options.broker_spec = spec.c_str();
  gpushare_runtime handle = nullptr;
  const gpushare_status code = Unlocked([&] { return gpushare_runtime_create(&options, &handle); });
  if (code == GPUSHARE_INVALID_ARGUMENT) {
    const Failure failure = Failure::Last(code);
    // The library's message is for callers of the simulator's C functions.
    if (failure.message.find("configured after cuInit()") != std::string::npos) {
      Throw("FailedPreconditionError",
            "simulation: the simulated GPU is in use already, by a simulated_gpu() or another "
            "Runtime('sim'), and there is one at a time in a process: leave that block before, or "
            "call close_all() of that runtime and then Simulation(runtime).reset()");
    }
    failure.Throw();
  }
  Check(code);
  used_generation.store(ForkGeneration());
  const auto family = std::make_shared<Family>();
  std::shared_ptr<Runtime> runtime = Born<Runtime>(family);
  runtime->handle.Reset(handle);
  gpushare_runtime_info info = {};
  info.struct_size = sizeof(info);
  Check(gpushare_runtime_get_info(handle, &info));
  runtime->simulated = info.simulated != 0;
  std::erase_if(Runtimes(), [](const auto& weak) { return weak.expired(); });
  Runtimes().push_back(runtime);
  return runtime;
}

gpushare_runtime_info Info(const Runtime& self) {
  gpushare_runtime_info info = {};
  info.struct_size = sizeof(info);
  const auto use = self.handle.Use();
  Check(gpushare_runtime_get_info(use->get(), &info));
  return info;
}

double Now(const Runtime& self) {
  int64_t ns = 0;
  const auto use = self.handle.Use();
  Check(gpushare_runtime_now(use->get(), &ns));
  return static_cast<double>(ns) / 1e9;
}

void Sleep(const Runtime& self, const py::object& seconds) {
  const int64_t duration = DurationFrom(seconds, "seconds");
  const auto use = self.handle.Use();
  int64_t now = 0;
  Check(gpushare_runtime_now(use->get(), &now));
  const int64_t end = duration > INT64_MAX - now ? INT64_MAX : now + duration;
  while (now < end) {
    const int64_t next = end - now > kLookNs ? now + kLookNs : end;
    Check(Unlocked([&] { return gpushare_runtime_sleep_until(use->get(), next); }));
    now = next;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

}  // namespace

void BindRuntime(py::module_& m) {
  BindClockThread(m);
  m.def("_runtimes", [] {
    py::list open;
    for (const std::weak_ptr<Runtime>& weak : Runtimes()) {
      const std::shared_ptr<Runtime> runtime = weak.lock();
      if (runtime != nullptr && !runtime->handle.closed()) open.append(runtime);
    }
    return open;
  });
  auto cls = py::class_<Runtime, std::shared_ptr<Runtime>>(
      m, "Runtime",
      "Runtime(driver=None, *, simulation=None, memory_reserve=None, broker=None, "
      "broker_tenant=None, broker_spec=None)\n--\n\n"
      "The driver, its GPUs and its clock. One a process is the rule.\n\n"
      "Args:\n"
      "    driver: path or name of the driver, or \"sim\" for the simulated GPU. None: the "
      "environment's\n        GPUSHARE_DRIVER, else libcuda.so.1.\n"
      "    simulation: configuration of the simulated GPU, e.g. \"memory=16GiB,clock=wall\"; "
      "docs/simulator.md.\n"
      "    memory_reserve: device memory of each GPU that is never promised to a tenant: bytes "
      "(int) or\n        text. None: the larger of 256 MiB and 1 %.\n"
      "    broker: socket of the node's broker, which divides each GPU among this process and "
      "others; what\n        the virtual devices of this runtime have together is what this "
      "process's tenant is granted\n        there. None: GPUSHARE_BROKER, when set; \"none\": "
      "none, whatever the environment says.\n"
      "    broker_tenant: which tenant this process is to the broker. None: GPUSHARE_TENANT.\n"
      "    broker_spec: the share that it asks for, where the broker lets its tenants ask. None: "
      "GPUSHARE_SPEC.\n\n"
      "Closing it while GPUs or tenants live is allowed: they keep what they need.\n\n"
      "Raises:\n"
      "    FailedPreconditionError (RuntimeError): `simulation` given, and the simulated GPU is in "
      "use already.\n"
      "    UnavailableError (ConnectionError): no driver; the message says how to get the "
      "simulated "
      "GPU.\n        Or a broker that is asked for is not there.\n"
      "    NotFoundError (LookupError), PermissionDeniedError (PermissionError): the broker knows "
      "no "
      "such\n        tenant, or not for this user.\n"
      "    ForkedError (RuntimeError): the process was forked from one that uses gpushare.");
  cls.def(py::init(&Create), py::arg("driver") = py::none(), py::kw_only(),
          py::arg("simulation") = py::none(), py::arg("memory_reserve") = py::none(),
          py::arg("broker") = py::none(), py::arg("broker_tenant") = py::none(),
          py::arg("broker_spec") = py::none(),
          "__init__(self, driver=None, *, simulation=None, memory_reserve=None, broker=None, "
          "broker_tenant=None, broker_spec=None)\n--\n\n");
  AddLifetime(cls,
              "close(self)\n--\n\nGives up this hold on the driver. GPUs and tenants stay open.");
  cls.def(
         "close_all", [](const Runtime& self) { self.family->CloseAll(); },
         "close_all(self)\n--\n\nCloses everything that was made from this runtime, youngest "
         "first, and the runtime.")
      .def_property_readonly(
          "gpu_count", [](const Runtime& self) { return Info(self).gpu_count; },
          "How many GPUs the driver has.")
      .def_property_readonly(
          "broker_tenant",
          [](const Runtime& self) { return std::string(Info(self).broker_tenant); },
          "The name of the tenant that this process is for its broker; \"\" without a broker.")
      .def_property_readonly(
          "driver_path", [](const Runtime& self) { return std::string(Info(self).driver_path); },
          "The driver that was loaded.")
      .def_property_readonly(
          "driver_version", [](const Runtime& self) { return Info(self).driver_version; },
          "13000 is CUDA 13.0.")
      .def_property_readonly(
          "simulated", [](const Runtime& self) { return self.simulated; },
          "Whether the GPUs are simulated.")
      .def("now", &Now,
           "now(self)\n--\n\nSeconds on the clock of deadlines and statistics, since an "
           "unspecified epoch: the simulated GPU's\nvirtual clock, else CLOCK_MONOTONIC.")
      .def("sleep", &Sleep, py::arg("seconds"),
           "sleep(self, seconds)\n--\n\nSleeps on that clock: seconds, a timedelta or text such "
           "as \"20ms\".")
      .def(
          "start_thread",
          [](const Runtime& self, py::function body, const std::string& name) {
            return ClockThread::Start(self, name, std::move(body));
          },
          py::arg("body"), py::kw_only(), py::arg("name") = "python",
          "start_thread(self, body, *, name=\"python\")\n--\n\nRuns `body()` on a new "
          "ClockThread.")
      .def(
          "snapshot",
          [](const py::object& self) {
            return Call(py::module_::import("gpushare.snapshot").attr("Snapshot").attr("take"),
                        py::make_tuple(self));
          },
          "snapshot(self)\n--\n\nEvery counter of every virtual device at one instant: a "
          "gpushare.Snapshot.")
      .def("__repr__", [](const Runtime& self) {
        if (self.handle.closed()) return std::string("<gpushare.Runtime closed>");
        return "<gpushare.Runtime of '" + std::string(Info(self).driver_path) + "'>";
      });
}

}  // namespace gpushare::python
