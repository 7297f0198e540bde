// SPDX-License-Identifier: Apache-2.0
// Chooses among several GPUs.
#include <memory>
#include <string>
#include <vector>

#include "amount.h"
#include "object.h"
#include "spec.h"
#include "virtual_device.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

int32_t PlacementFrom(const py::object& value) {
  const std::string name = TextFrom(value, "placement");
  if (name == "best-fit") return GPUSHARE_PLACE_BEST_FIT;
  if (name == "binpack") return GPUSHARE_PLACE_BINPACK;
  if (name == "spread") return GPUSHARE_PLACE_SPREAD;
  ThrowInvalid("placement: '" + name + "' given; best-fit, binpack, spread allowed");
}

std::shared_ptr<VirtualDevice> PlaceTenant(const py::object& gpus, const py::object& tenant,
                                           const py::object& spec, const py::object& placement,
                                           const py::kwargs& fields) {
  if (!py::isinstance<py::iterable>(gpus)) ThrowType("gpus", gpus, "a sequence of GPUs");
  std::vector<std::shared_ptr<Gpu>> all;
  std::vector<Owned<gpushare_gpu, gpushare_gpu_close>::Use_> uses;
  std::vector<gpushare_gpu> handles;
  for (const py::handle given : gpus) {
    all.push_back(Given<Gpu>(given, "gpus", "gpushare.Gpu"));
    uses.push_back(all.back()->handle.Use());
    handles.push_back(uses.back()->get());
  }
  if (all.empty()) ThrowInvalid("gpus: none given to choose from");
  const int32_t how = PlacementFrom(placement);
  const gpushare_spec limits = SpecFrom(spec, fields);
  const std::shared_ptr<Tenant> whose = TenantFrom(tenant, *all[0]);
  const auto use = whose->handle.Use();
  gpushare_vdev made = nullptr;
  size_t index = 0;
  Check(Unlocked([&] {
    return gpushare_vdev_place(handles.data(), handles.size(), use->get(), &limits, how, &made,
                               &index);
  }));
  const std::shared_ptr<VirtualDevice> device = Adopt(all[index], made);
  device->tenant = whose;
  return device;
}

}  // namespace

void BindPlacement(py::module_& m) {
  m.def("place", &PlaceTenant, py::arg("gpus"), py::arg("tenant"), py::arg("spec") = py::none(),
        py::kw_only(), py::arg("placement") = "best-fit",
        "place(gpus, tenant, spec=None, *, placement=\"best-fit\", **fields)\n--\n\n"
        "Creates a virtual device on one of several GPUs; its `gpu` tells on which.\n\n"
        "Args:\n"
        "    gpus: Gpu objects of one runtime. Equals are taken in the order given.\n"
        "    tenant, spec, fields: as of VirtualDevice().\n"
        "    placement: \"best-fit\" (where least is left over of what is asked), \"binpack\" (on "
        "the fullest,\n        so that others stay empty), \"spread\" (on the emptiest).\n\n"
        "Raises:\n"
        "    QuotaExceededError (MemoryError), ResourceExhaustedError: none has room; the message "
        "says of each\n        why, `left` is the most there is.\n"
        "    AlreadyExistsError (ValueError): the tenant is on each of them.");
}

}  // namespace gpushare::python
