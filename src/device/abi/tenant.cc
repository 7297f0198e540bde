// SPDX-License-Identifier: Apache-2.0
// The C ABI: tenants and scopes.
#include "device/process/tenant.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
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
    const std::shared_ptr<Tenant> parent = Handles::Share(known.parent);
    if (known.parent != nullptr && parent == nullptr) return BadHandle(known.parent);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Tenant> made, owner->CreateTenant(known, parent));
    return NewHandle(tenant, std::move(made));
  });
}

gpushare_status gpushare_tenant_destroy(gpushare_tenant tenant) {
  const gpushare_status code = Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(who, tenant);
    const std::vector<std::string> children = who->children();
    if (children.empty()) return absl::OkStatus();
    constexpr size_t kNamed = 8;
    std::vector<std::string> named;
    for (size_t i = 0; i < std::min(children.size(), kNamed); ++i) {
      named.push_back(Quoted(children[i]));
    }
    const size_t more = children.size() - named.size();
    return absl::FailedPreconditionError(absl::StrCat(
        "tenant ", Quoted(who->name()), " is the parent of ", absl::StrJoin(named, ", "),
        more == 0 ? "" : absl::StrCat(" and ", more, " more"),
        "; destroy these first, and their virtual devices, which keep them"));
  });
  return code == GPUSHARE_OK ? Destroy(tenant) : code;
}

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
