// SPDX-License-Identifier: Apache-2.0
#include "tenant.h"

#include <utility>
#include <vector>

#include "amount.h"
#include "runtime.h"
#include "spec.h"

namespace gpushare::python {
namespace py = pybind11;

namespace {

// The context variable behind gpushare.tenant_scope; never destroyed.
PyObject* ContextVariable() {
  static PyObject* const variable = PyContextVar_New("gpushare_tenant", Py_None);
  if (variable == nullptr) throw py::error_already_set();
  return variable;
}

uint64_t Enter(const Tenant& tenant) {
  uint64_t scope = 0;
  Check(gpushare_scope_enter(tenant.handle.Use()->get(), &scope));
  return scope;
}

}  // namespace

ContextTenant::ContextTenant() {
  PyObject* value = nullptr;
  if (PyContextVar_Get(ContextVariable(), nullptr, &value) != 0) throw py::error_already_set();
  const auto tenant = py::reinterpret_steal<py::object>(value);
  if (!tenant || tenant.is_none()) return;
  const auto& wanted = py::cast<const Tenant&>(tenant);
  gpushare_tenant current = nullptr;
  Check(gpushare_scope_current(&current));
  if (current != wanted.handle.Use()->get()) scope_ = Enter(wanted);
}

ContextTenant::~ContextTenant() {
  if (scope_ != 0) static_cast<void>(gpushare_scope_leave(scope_));
}

std::shared_ptr<Tenant> NewTenant(const std::shared_ptr<Family>& family, gpushare_runtime runtime,
                                  const std::string& name, int priority, const py::dict& labels,
                                  const std::shared_ptr<Tenant>& parent) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [key, value] : labels) {
    texts.emplace_back(TextFrom(key, "labels"), TextFrom(value, "labels"));
  }
  std::vector<gpushare_label> c_labels;
  for (const auto& [key, value] : texts) c_labels.push_back({key.c_str(), value.c_str()});
  gpushare_tenant_options options = {};
  options.struct_size = sizeof(options);
  options.name = name.c_str();
  options.priority = priority;
  options.labels = c_labels.data();
  options.label_count = c_labels.size();
  std::shared_ptr<const void> parents_handle;
  if (parent != nullptr) {
    const auto use = parent->handle.Use();
    options.parent = use->get();
    parents_handle = use;
  }
  gpushare_tenant handle = nullptr;
  Check(gpushare_tenant_create(runtime, &options, &handle));
  std::shared_ptr<Tenant> tenant = Born<Tenant>(family);
  tenant->parent = parent;
  tenant->parents_handle = std::move(parents_handle);
  tenant->handle.Reset(handle);
  tenant->name = name;
  return tenant;
}

void BindTenant(py::module_& m) {
  auto cls = py::class_<Tenant, std::shared_ptr<Tenant>>(
      m, "Tenant",
      "Tenant(runtime, name, *, priority=None, labels={}, parent=None)\n--\n\nA user of "
      "shared GPUs, with at most one virtual device on each.\n\nArgs:\n    name: 1 to 63 "
      "bytes of UTF-8, unique in the runtime.\n    priority: \"high\", \"normal\" or "
      "\"low\", for virtual devices without a priority in their spec.\n    labels: a dict "
      "of str to str.\n    parent: a Tenant. Virtual devices of the new tenant lie within "
      "the parent's on the same GPU: allocations are\n        charged to both quotas, and "
      "siblings divide the parent's time by their weights. The parent is closed\n        "
      "after its children.\n\nRaises:\n    AlreadyExistsError (ValueError): the name is "
      "taken.\n    UnimplementedError (NotImplementedError): the parent has a "
      "parent.\n\nExample:\n    team = gpushare.Tenant(runtime, \"team\")\n    whole = "
      "gpu.virtual_device(team, memory=\"8 GiB\", compute=\"50%\")\n    user = "
      "gpushare.Tenant(runtime, \"user\", parent=team)\n    part = "
      "gpu.virtual_device(user, memory=\"2 GiB\", weight=2)");
  cls.def(py::init([](const py::object& runtime, const py::object& name, const py::object& priority,
                      const py::object& labels, const py::object& parent) {
            const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
            if (!PyDict_Check(labels.ptr())) ThrowType("labels", labels, "a dict of str to str");
            return NewTenant(
                of->family, of->handle.Use()->get(), TextFrom(name, "name"),
                PriorityFrom(priority, "priority"), labels,
                parent.is_none() ? nullptr : Given<Tenant>(parent, "parent", "a gpushare.Tenant"));
          }),
          py::arg("runtime"), py::arg("name"), py::kw_only(), py::arg("priority") = py::none(),
          py::arg("labels") = py::dict(), py::arg("parent") = py::none(),
          "__init__(self, runtime, name, *, priority=None, labels={}, parent=None)\n--\n\n")
      .def_static(
          "default",
          [](const py::object& runtime) {
            const auto of = Given<Runtime>(runtime, "runtime", "gpushare.Runtime");
            gpushare_tenant handle = nullptr;
            Check(gpushare_runtime_default_tenant(of->handle.Use()->get(), &handle));
            auto tenant = Born<Tenant>(of->family);
            tenant->handle.Reset(handle);
            tenant->name = "default";
            return tenant;
          },
          py::arg("runtime"),
          "default(runtime)\n--\n\nThe tenant for work that belongs to no other tenant.")
      .def_property_readonly(
          "name", [](const Tenant& self) { return self.name; }, "Its name.")
      .def_property_readonly(
          "parent", [](const Tenant& self) { return self.parent; }, "The tenant's parent, or None.")
      .def(
          "label",
          [](const Tenant& self, const py::object& key) {
            const char* value = nullptr;
            Check(gpushare_tenant_label(self.handle.Use()->get(), TextFrom(key, "key").c_str(),
                                        &value));
            return std::string(value);
          },
          py::arg("key"),
          "label(self, key)\n--\n\nThe value of a label. Raises NotFoundError (LookupError).")
      .def("__repr__", [](const Tenant& self) {
        return "<gpushare.Tenant '" + self.name + (self.handle.closed() ? "' closed>" : "'>");
      });
  AddLifetime(cls, "close(self)\n--\n\nGives up the name. The tenant's virtual devices stay open.");

  // For gpushare.tenant_scope, which documents it.
  m.attr("_tenant_var") = py::reinterpret_borrow<py::object>(ContextVariable());
  m.def("_scope_enter", [](const Tenant& tenant) { return Enter(tenant); });
  m.def("_scope_leave", [](uint64_t scope) { Check(gpushare_scope_leave(scope)); });
}

}  // namespace gpushare::python
