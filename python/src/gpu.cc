// SPDX-License-Identifier: Apache-2.0
#include "gpu.h"

#include <iterator>
#include <optional>

#include "amount.h"
#include "buffer.h"
#include "call.h"
#include "kernel.h"
#include "spec.h"
#include "stream.h"
#include "tenant.h"
#include "virtual_device.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

std::string NameFrom(py::handle name) {
  if (PyUnicode_Check(name.ptr())) return TextFrom(name, "name");
  if (!IsWhole(name)) ThrowType("name", name, "an ordinal (int), a UUID or a PCI id (str)");
  return std::to_string(WholeFrom(name, "name", INT32_MAX, "an ordinal of 0 to 2147483647"));
}

gpushare_gpu_probe EmptyProbe() {
  gpushare_gpu_probe probe = {};
  probe.struct_size = sizeof(probe);
  return probe;
}

py::object ToPython(const gpushare_gpu_probe& p) {
  constexpr const char* kStates[] = {"healthy", "busy", "absent", "failed"};
  py::dict d;
  d["state"] = kStates[p.state & 3];
  d["reason"] = p.reason;
  d["ordinal"] = p.ordinal;
  d["name"] = p.name;
  d["uuid"] = p.uuid;
  d["pci_id"] = p.pci_id;
  d["sm_count"] = p.sm_count;
  d["compute_capability"] = py::make_tuple(p.compute_major, p.compute_minor);
  d["mig"] = p.mig != 0;
  d["mps"] = p.mps != 0;
  d["mps_percentage"] = p.mps_percentage;
  d["memory_total"] = p.memory_total;
  d["memory_free"] = p.memory_free;
  d["mps_memory_limit"] = p.mps_memory_limit;
  d["dmem_limit"] = p.dmem_limit;
  d["memory_promised"] = p.memory_promised;
  d["guarantees_promised"] = p.guarantees_promised;
  return Call(py::module_::import("gpushare.probe").attr("GpuProbe"), py::tuple(), d);
}

struct SchedulerKey {
  const char* name;
  void (*set)(gpushare_scheduler_options&, py::handle);
  py::object (*get)(const gpushare_scheduler_options&);
};

py::object Seconds(int64_t ns) { return py::float_(static_cast<double>(ns) / 1e9); }

#define GPUSHARE_DURATION(name)                                                                      \
  {                                                                                                  \
#name,                                                                                           \
        [](gpushare_scheduler_options & o,                                                           \
           py::handle                                                                                \
               v) { o.name##_ns = DurationFrom(v, #name); },                                         \
                                                          [](const gpushare_scheduler_options&       \
                                                                 o) { return Seconds(o.name##_ns); } \
  }
#define GPUSHARE_COUNT(name)                                                     \
  {                                                                              \
#name,                                                                         \
   [](gpushare_scheduler_options& o, py::handle v) {                              \
     o.name = static_cast<int32_t>(std::min<uint64_t>(WholeFrom(v, #name), INT32_MAX)); \
   },                                                                             \
   [](const gpushare_scheduler_options& o) -> py::object { return py::int_(o.name); } \
  }
#define GPUSHARE_PART(name)                                                                      \
  {                                                                                              \
#name,                                                                                       \
        [](gpushare_scheduler_options & o,                                                       \
           py::handle                                                                            \
               v) { o.name = ShareFrom(v, #name); },                                             \
                                                  [](const gpushare_scheduler_options& o)        \
                                                       -> py::                                   \
                                                           object { return py::float_(o.name); } \
  }

// In the order of the bits GPUSHARE_SCHEDULER_*.
constexpr SchedulerKey kSchedulerKeys[] = {
    GPUSHARE_COUNT(min_commands),
    GPUSHARE_DURATION(window),
    GPUSHARE_DURATION(grant),
    GPUSHARE_DURATION(anticipation),
    GPUSHARE_DURATION(spin),
    GPUSHARE_PART(idle_budget),
    GPUSHARE_PART(low_band_floor),
    GPUSHARE_DURATION(high_grace),
    GPUSHARE_COUNT(high_band_min_commands),
    GPUSHARE_DURATION(high_band_window),
};

static_assert(GPUSHARE_SCHEDULER_MIN_COMMANDS == 1u << 0 &&
              GPUSHARE_SCHEDULER_IDLE_BUDGET == 1u << 5 &&
              GPUSHARE_SCHEDULER_HIGH_BAND_WINDOW == 1u << (std::size(kSchedulerKeys) - 1));

template <typename Function>
void Find(const Runtime& runtime, const char* name, Function** function) {
  *function = runtime.Symbol<Function>(name);
}

std::shared_ptr<Gpu> Open(const py::object& runtime, const py::object& name,
                          const py::kwargs& scheduler) {
  const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
  const std::string text = NameFrom(name);
  gpushare_scheduler_options options = {};
  options.struct_size = sizeof(options);
  for (const auto& [key, value] : scheduler) {
    const std::string given = TextFrom(key, "keyword");
    const SchedulerKey* found = nullptr;
    std::string known;
    for (const SchedulerKey& candidate : kSchedulerKeys) {
      if (given == candidate.name) found = &candidate;
      known += (known.empty() ? "" : ", ") + std::string(candidate.name);
    }
    if (found == nullptr) {
      throw py::type_error("there is no scheduler option '" + given + "'; there are " + known);
    }
    found->set(options, value);
    // For the library, 0 means "not given" unless this bit says that 0 is meant.
    if (py::cast<double>(found->get(options)) == 0) {
      options.zero |= 1u << (found - kSchedulerKeys);
    }
  }
  const auto use = of->handle.Use();
  gpushare_gpu handle = nullptr;
  Check(Unlocked([&] {
    return gpushare_gpu_open(use->get(), text.c_str(), scheduler.empty() ? nullptr : &options,
                             &handle);
  }));
  const auto gpu = Born<Gpu>(of->family);
  gpu->handle.Reset(handle);
  gpu->runtime = of;
  gpushare_gpu_probe probe = EmptyProbe();
  Check(Unlocked([&] { return gpushare_gpu_get_probe(handle, &probe); }));
  gpu->ordinal = probe.ordinal;
  gpu->name = probe.name;
  Find(*of, "cuFuncGetParamInfo", &gpu->calls.param_info);
  Find(*of, "cuEventRecord", &gpu->calls.event_record);
  Find(*of, "cuStreamSynchronize", &gpu->calls.stream_synchronize);
  Find(*of, "cuStreamWaitEvent", &gpu->calls.stream_wait_event);
  Find(*of, "cuStreamGetDevice", &gpu->calls.stream_device);
  Find(*of, "cuStreamIsCapturing", &gpu->calls.stream_capturing);
  return gpu;
}

}  // namespace

void BindGpu(py::module_& m) {
  auto cls = py::class_<Gpu, std::shared_ptr<Gpu>>(
      m, "Gpu",
      "Gpu(runtime, name=0, **scheduler)\n--\n\nA physical GPU or a MIG instance. All "
      "openings of a GPU in a runtime share one engine.\n\nArgs:\n    name: ordinal (int "
      "or str), UUID or PCI id.\n    scheduler: how launches are arbitrated; only the "
      "first opening applies it. window, grant, anticipation,\n        spin, high_grace, "
      "high_band_window: seconds or text; min_commands, high_band_min_commands: "
      "int;\n        idle_budget, low_band_floor: fractions of 1.\n\nRaises:\n    "
      "NotFoundError (LookupError): no such GPU; the message lists the existing ones.");
  cls.def(py::init(&Open), py::arg("runtime"), py::arg("name") = 0,
          "__init__(self, runtime, name=0, **scheduler)\n--\n\n");
  AddLifetime(cls,
              "close(self)\n--\n\nGives up this hold on the GPU. Its virtual devices stay open.");
  cls.def_property_readonly(
         "runtime", [](const Gpu& self) { return self.runtime; },
         "The runtime in which it was opened.")
      .def_property_readonly(
          "ordinal", [](const Gpu& self) { return self.ordinal; },
          "The driver's number for the GPU.")
      .def_property_readonly(
          "name", [](const Gpu& self) { return self.name; }, "The driver's name for the GPU.")
      .def_property_readonly(
          "scheduler",
          [](const Gpu& self) {
            gpushare_scheduler_options options = {};
            options.struct_size = sizeof(options);
            Check(gpushare_gpu_get_scheduler(self.handle.Use()->get(), &options));
            py::dict d;
            for (const SchedulerKey& key : kSchedulerKeys) {
              d[key.name] = key.get(options);
            }
            return d;
          },
          "The scheduler's options in force, a dict; durations in seconds.")
      .def_property_readonly(
          "room",
          [](const Gpu& self) {
            gpushare_room room = {};
            room.struct_size = sizeof(room);
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_gpu_get_room(use->get(), &room); }));
            py::dict d;
            d["memory_total"] = room.memory_total;
            d["memory_left"] = room.memory_left;
            d["guarantee_left"] = room.guarantee_left;
            d["virtual_devices"] = room.virtual_devices;
            return d;
          },
          "What the GPU can still promise, as a dict: memory_total (without the reserve) and "
          "memory_left in bytes,\nguarantee_left as a fraction of 1, virtual_devices.")
      .def_property_readonly(
          "overhead",
          [](const Gpu& self) {
            gpushare_overhead found = {};
            found.struct_size = sizeof(found);
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_gpu_get_overhead(use->get(), &found); }));
            py::dict d;
            d["by_driver"] = found.by_driver;
            d["charged"] = found.charged;
            d["overhead"] = found.overhead;
            d["reserve"] = found.reserve;
            return d;
          },
          "The GPU memory that the process uses, as a dict of bytes: by_driver, everything "
          "that it holds; charged, the\npart charged to virtual devices; overhead, the rest "
          "(contexts, modules, libraries); reserve, what is never\npromised. Raises "
          "UnavailableError where NVML does not report it.")
      .def(
          "probe",
          [](const Gpu& self) {
            gpushare_gpu_probe probe = EmptyProbe();
            const auto use = self.handle.Use();
            Check(Unlocked([&] { return gpushare_gpu_get_probe(use->get(), &probe); }));
            return ToPython(probe);
          },
          "probe(self)\n--\n\nWhat is known about the GPU, as a gpushare.GpuProbe.")
      .def_static(
          "probe_name",
          [](const py::object& runtime, const py::object& name) {
            const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
            const std::string text = NameFrom(name);
            gpushare_gpu_probe probe = EmptyProbe();
            const auto use = of->handle.Use();
            Check(
                Unlocked([&] { return gpushare_runtime_probe(use->get(), text.c_str(), &probe); }));
            return ToPython(probe);
          },
          py::arg("runtime"), py::arg("name") = 0,
          "probe_name(runtime, name=0)\n--\n\nThe same for a GPU that need not exist: then "
          "`state` and `reason` say so.")
      .def(
          "virtual_device",
          [](const py::object& self, const py::object& tenant, const py::object& spec,
             const py::kwargs& fields) { return NewVirtualDevice(self, tenant, spec, fields); },
          py::arg("tenant"), py::arg("spec") = py::none(),
          "virtual_device(self, tenant, spec=None, **fields)\n--\n\nCreates a share of this "
          "GPU: VirtualDevice(self, tenant, spec, **fields). For a str, creates a tenant of "
          "that name.")
      .def(
          "alloc",
          [](const std::shared_ptr<Gpu>& self, const py::object& nbytes) {
            return AllocateFor(self, SizeFrom(nbytes, "nbytes", kSomeBytes));
          },
          py::arg("nbytes"),
          "alloc(self, nbytes)\n--\n\nAllocates a Buffer of bytes (int or text) for the tenant "
          "for which the caller works: the tenant of the\ntenant_scope, else the tenant "
          "\"default\".")
      .def(
          "resolve",
          [](const std::shared_ptr<Gpu>& self, const py::object& stream) {
            const auto use = self->handle.Use();
            CUstream_st* const native = stream.is_none() ? nullptr : NativeStream(stream, "stream");
            const ContextTenant tenant;
            gpushare_vdev vdev = nullptr;
            Check(
                Unlocked([&] { return gpushare_gpu_resolve(use->get(), nullptr, native, &vdev); }));
            return Adopt(self, vdev);
          },
          py::arg("stream") = py::none(),
          "resolve(self, stream=None)\n--\n\nReturns the VirtualDevice to which work of the "
          "caller on `stream` belongs: the one to which the stream is\nbound, else that of the "
          "tenant_scope, else the context's, else that of the tenant \"default\".")
      .def(
          "load",
          [](const std::shared_ptr<Gpu>& self, const py::object& image) {
            return LoadModule(self, image);
          },
          py::arg("image"),
          "load(self, image)\n--\n\nLoads PTX (str or bytes), a cubin or a fatbin. Returns a "
          "Module.\n\nRaises:\n    InvalidArgumentError (ValueError): the image is invalid.")
      .def("__repr__",
           [](const py::object& object) -> std::string {
             const auto& self = py::cast<const Gpu&>(object);
             if (self.handle.closed()) {
               return "<gpushare.Gpu " + std::to_string(self.ordinal) + " '" + self.name +
                      "' closed>";
             }
             return py::cast<std::string>(
                 py::module_::import("gpushare._show").attr("gpu_line")(object));
           })
      .def("_repr_html_", [](const py::object& object) {
        return py::module_::import("gpushare._show").attr("gpu_html")(object);
      });
}

}  // namespace gpushare::python
