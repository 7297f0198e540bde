// SPDX-License-Identifier: Apache-2.0
// The C ABI: tenants and scopes.
#include "device/process/tenant.h"

#include "device/abi/c_abi.h"
#include "device/process/identity.h"
#include "device/process/runtime.h"
#include "spec/text.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_tenant_create(gpushare_runtime runtime,
                                       const gpushare_tenant_options* options,
                                       gpushare_tenant* tenant) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(tenant);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_tenant_options known, ReadStruct(options, "options"));
    if (known.parent != nullptr && Handles::Borrow(known.parent) == nullptr) {
      return BadHandle(known.parent);
    }
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Tenant> made, owner->CreateTenant(known));
    return NewHandle(tenant, std::move(made));
  });
}

gpushare_status gpushare_tenant_destroy(gpushare_tenant tenant) { return Destroy(tenant); }

gpushare_status gpushare_runtime_default_tenant(gpushare_runtime runtime, gpushare_tenant* tenant) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(tenant);
    return NewHandle(tenant, owner->default_tenant());
  });
}

gpushare_status gpushare_tenant_name(gpushare_tenant tenant, const char** name) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(who, tenant);
    GPUSHARE_NOT_NULL(name);
    *name = who->name().c_str();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_tenant_label(gpushare_tenant tenant, const char* key, const char** value) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(who, tenant);
    GPUSHARE_NOT_NULL(key);
    GPUSHARE_NOT_NULL(value);
    const std::string* label = who->label(key);
    if (label == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("tenant ", Quoted(who->name()), " has no label ", Quoted(key)));
    }
    *value = label->c_str();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_scope_enter(gpushare_tenant tenant, uint64_t* scope) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_NOT_NULL(scope);
    GPUSHARE_SHARE(who, tenant);
    *scope = EnterScope(who, tenant);
    return absl::OkStatus();
  });
}

gpushare_status gpushare_scope_leave(uint64_t scope) {
  return Guard([&] { return LeaveScope(scope); });
}

gpushare_status gpushare_scope_current(gpushare_tenant* tenant) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_NOT_NULL(tenant);
    const Scope* scope = CurrentScope();
    *tenant = scope == nullptr ? nullptr : scope->handle;
    return absl::OkStatus();
  });
}
