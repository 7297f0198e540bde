// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_PYTHON_TENANT_H_
#define GPUSHARE_PYTHON_TENANT_H_

#include <memory>
#include <string>

#include "object.h"

namespace gpushare::python {

struct Tenant : Object {
  using Handle = Owned<gpushare_tenant, gpushare_tenant_destroy>;

  std::shared_ptr<Tenant> parent;              // null: none
  std::shared_ptr<const void> parents_handle;  // which is destroyed after this one's
  Handle handle{"tenant"};
  std::string name;

  void Close() override {
    handle.Close();
    parents_handle.reset();
  }
};

std::shared_ptr<Tenant> NewTenant(const std::shared_ptr<Family>& family, gpushare_runtime runtime,
                                  const std::string& name, int priority,
                                  const pybind11::dict& labels,
                                  const std::shared_ptr<Tenant>& parent = nullptr);

// While it exists, the calling thread works for the tenant of the current context (gpushare.tenant_scope), if there is one and
// the thread does not work for it already.
class ContextTenant {
 public:
  ContextTenant();
  ~ContextTenant();
  ContextTenant(const ContextTenant&) = delete;
  ContextTenant& operator=(const ContextTenant&) = delete;

 private:
  uint64_t scope_ = 0;
};

}  // namespace gpushare::python

#endif  // GPUSHARE_PYTHON_TENANT_H_
