// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's own interface (gpushare/testing/sim.h), for tests.
#include <unistd.h>

#include <memory>
#include <string>

#include "amount.h"
#include "gpushare/testing/sim.h"
#include "object.h"
#include "runtime.h"
#include "stream.h"
#include "virtual_device.h"
#include "wait.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// A simulated driver is never unloaded, so its functions outlive the runtime.
struct Simulation {
  decltype(&gpushare_sim_reset) reset;
  decltype(&gpushare_sim_clock_is_virtual) clock_is_virtual;
  decltype(&gpushare_sim_now) now;
  decltype(&gpushare_sim_thread_enter) thread_enter;
  decltype(&gpushare_sim_thread_leave) thread_leave;
  decltype(&gpushare_sim_external_begin) external_begin;
  decltype(&gpushare_sim_external_end) external_end;
  decltype(&gpushare_sim_spend) spend;
  decltype(&gpushare_sim_set_account) set_account;
  decltype(&gpushare_sim_account_truth) account_truth;
  decltype(&gpushare_sim_device_busy) device_busy;
  decltype(&gpushare_sim_calls) calls;
  decltype(&gpushare_sim_memory_used) memory_used;
  decltype(&gpushare_sim_inject) inject;
};

std::shared_ptr<Simulation> SimulationOf(const py::object& runtime) {
  const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
  if (!of->simulated) {
    Throw("FailedPreconditionError",
          "the runtime's GPUs are real ones; Runtime(\"sim\") has simulated ones");
  }
  auto simulation = std::make_shared<Simulation>();
  const auto find = [&]<typename Function>(const char* name, Function** function) {
    *function = of->Symbol<Function>(name);
    if (*function == nullptr) {
      Throw("FailedPreconditionError", std::string("the simulated driver does not export ") + name);
    }
  };
  find("gpushare_sim_reset", &simulation->reset);
  find("gpushare_sim_clock_is_virtual", &simulation->clock_is_virtual);
  find("gpushare_sim_now", &simulation->now);
  find("gpushare_sim_thread_enter", &simulation->thread_enter);
  find("gpushare_sim_thread_leave", &simulation->thread_leave);
  find("gpushare_sim_external_begin", &simulation->external_begin);
  find("gpushare_sim_external_end", &simulation->external_end);
  find("gpushare_sim_spend", &simulation->spend);
  find("gpushare_sim_set_account", &simulation->set_account);
  find("gpushare_sim_account_truth", &simulation->account_truth);
  find("gpushare_sim_device_busy", &simulation->device_busy);
  find("gpushare_sim_calls", &simulation->calls);
  find("gpushare_sim_memory_used", &simulation->memory_used);
  find("gpushare_sim_inject", &simulation->inject);
  return simulation;
}

void EnterClock(const Simulation& self, const std::string& name) {
  if (Unlocked([&] { return self.thread_enter(name.c_str()); }) != 0) {
    Throw("FailedPreconditionError", "the calling thread belongs to the clock already");
  }
  on_virtual_clock = self.clock_is_virtual() != 0;
}

void LeaveClock(const Simulation& self) {
  if (Unlocked([&] { return self.thread_leave(); }) != 0) {
    Throw("FailedPreconditionError", "the calling thread does not belong to the clock");
  }
  on_virtual_clock = false;
}

// Encloses code that blocks in a way that the virtual clock cannot see.
struct Outside {
  std::shared_ptr<Simulation> simulation;
  bool entered = false;
};

// A handle that outlives the reset would be destroyed in the next simulation, together with that simulation's context. So
// Reset() waits for calls of other threads.
void Reset(const Simulation& self) {
  constexpr int kMostTries = 10'000;
  const auto in_use = [] { return live_handles.load(std::memory_order_acquire) != 0; };
  for (int i = 0; in_use() && i < kMostTries; ++i) {
    Unlocked([] { return usleep(1000); });
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  if (in_use() || Unlocked([&] { return self.reset(); }) != 0) {
    Throw("FailedPreconditionError",
          "the simulated GPU cannot be reset while it is in use: by another thread, or by memory "
          "that an Allocator's C functions gave out");
  }
}

void Inject(const Simulation& self, const py::object& fault) {
  const std::string text = TextFrom(fault, "fault");
  char error[512] = "";
  if (Unlocked([&] { return self.inject(text.c_str(), error, sizeof(error)); }) != 0) {
    ThrowInvalid(std::string("fault: ") + error);
  }
}

py::dict Truth(const Simulation& self, uint32_t account, int device) {
  gpushare_sim_truth truth = {};
  if (Unlocked([&] { return self.account_truth(device, account, &truth); }) != 0) {
    ThrowInvalid("device: there is no simulated GPU " + std::to_string(device));
  }
  py::dict d;
  d["used"] = truth.used_ns / 1e9;
  d["work"] = truth.work_ns / 1e9;
  d["kernels"] = truth.kernels;
  d["queued"] = truth.queued;
  d["h2d_bytes"] = truth.h2d_bytes;
  d["d2h_bytes"] = truth.d2h_bytes;
  d["d2d_bytes"] = truth.d2d_bytes;
  return d;
}

}  // namespace

void BindSimulation(py::module_& m) {
  py::class_<Outside>(m, "_Outside")
      .def("__enter__",
           [](Outside& self) {
             self.entered = on_virtual_clock;
             if (!self.entered) return;
             on_virtual_clock = false;
             Unlocked([&] {
               self.simulation->external_begin();
               return 0;
             });
           })
      .def("__exit__", [](Outside& self, const py::args&) {
        if (!self.entered) return;
        Unlocked([&] {
          self.simulation->external_end();
          return 0;
        });
        on_virtual_clock = true;
      });

  py::class_<Simulation, std::shared_ptr<Simulation>>(
      m, "Simulation",
      "Simulation(runtime)\n--\n\nWhat only a simulated GPU offers: its clock, the true "
      "use of the device, faults. Outlives the\nruntime.\n\nRaises:\n    "
      "FailedPreconditionError (RuntimeError): the runtime's GPUs are real.")
      .def(py::init(&SimulationOf), py::arg("runtime"), "__init__(self, runtime)\n--\n\n")
      .def_property_readonly(
          "virtual", [](const Simulation& self) { return self.clock_is_virtual() != 0; },
          "Whether time is virtual.")
      .def(
          "now", [](const Simulation& self) { return static_cast<double>(self.now()) / 1e9; },
          "now(self)\n--\n\nSeconds of the simulated GPU's clock; the virtual one starts at 1.")
      .def("enter", &EnterClock, py::arg("name") = "python",
           "enter(self, name=\"python\")\n--\n\nRegisters the calling thread with the virtual "
           "clock until leave(): time passes only in gpushare's calls,\nspend() and waits, and "
           "one registered thread runs at a time.")
      .def("leave", &LeaveClock, "leave(self)\n--\n\nEnds enter(), on the same thread.")
      .def(
          "outside", [](const std::shared_ptr<Simulation>& self) { return Outside{self}; },
          "outside(self)\n--\n\nA context manager for a registered thread that blocks in a way "
          "that the virtual clock cannot see:\njoining a thread, waiting for a future.")
      .def(
          "spend",
          [](const Simulation& self, const py::object& seconds) {
            const int64_t ns = DurationFrom(seconds, "seconds");
            Unlocked([&] {
              self.spend(static_cast<uint64_t>(ns));
              return 0;
            });
          },
          py::arg("seconds"),
          "spend(self, seconds)\n--\n\nLets the calling thread compute for this long on the "
          "virtual clock: seconds or text.")
      .def(
          "set_account",
          [](const Simulation& self, const py::object& stream, uint32_t account) {
            CUstream_st* const native = NativeStream(stream, "stream");
            if (Unlocked([&] { return self.set_account(native, account); }) != 0) {
              ThrowInvalid("stream: the simulated driver does not know it");
            }
          },
          py::arg("stream"), py::arg("account"),
          "set_account(self, stream, account)\n--\n\nPuts a stream's work on an account of "
          "truth(); streams start on account 0.")
      .def("truth", &Truth, py::arg("account") = 0, py::arg("device") = 0,
           "truth(self, account=0, device=0)\n--\n\nWhat the device did for an account, as a "
           "dict: used and work in seconds, kernels and queued commands,\nh2d_bytes, d2h_bytes, "
           "d2d_bytes.")
      .def(
          "busy",
          [](const Simulation& self, int device) {
            double busy = 0, sm = 0;
            if (Unlocked([&] { return self.device_busy(device, &busy, &sm); }) != 0) {
              ThrowInvalid("device: there is no simulated GPU " + std::to_string(device));
            }
            return busy / 1e9;
          },
          py::arg("device") = 0,
          "busy(self, device=0)\n--\n\nSeconds in which at least one kernel was resident.")
      .def(
          "calls",
          [](const Simulation& self, const py::object& name) {
            const uint64_t calls = self.calls(TextFrom(name, "name").c_str());
            if (calls == UINT64_MAX) {
              ThrowInvalid("name: the driver has no entry point of this name");
            }
            return calls;
          },
          py::arg("name"),
          "calls(self, name)\n--\n\nHow often a driver function was called, e.g. "
          "\"cuEventRecord\".")
      .def(
          "memory_used",
          [](const Simulation& self, int device) { return self.memory_used(device); },
          py::arg("device") = 0,
          "memory_used(self, device=0)\n--\n\nBytes of device memory in use.")
      .def("inject", &Inject, py::arg("fault"),
           "inject(self, fault)\n--\n\n"
           "Makes the driver fail: \"oom after=3\", \"illegal_address kernel=NAME\", \"hang "
           "kernel=NAME\",\n\"error call=NAME code=719\", \"slow call=NAME host=1ms\", \"clear\".")
      .def("reset", &Reset,
           "reset(self)\n--\n\nReturns to the state before the first use: no contexts, no "
           "memory, no faults. Nothing may use the\nsimulated GPU any more; Runtime.close_all() "
           "takes care of that.");
}

}  // namespace gpushare::python
