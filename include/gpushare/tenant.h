// SPDX-License-Identifier: Apache-2.0
// Tenants, and the attribution of work to them.
//
//   absl::StatusOr<Tenant> tenant = Tenant::Create(*runtime, {.name = "team-a"});
//   {
//     TenantScope scope(*tenant);                    // this thread works for team-a
//     TenantToken token = TenantScope::Current();    // a pool carries it to its workers:
//     pool.Run([token] { TenantScope inherited(token); Work(); });
//   }
//
// A call that does not name a tenant belongs to the first of these that exists: the virtual device to
// which the stream is bound, the thread's scope, the current context's virtual device, the tenant
// "default". (The thread's scope alone is not enough: autograd runs backward passes on its own
// threads, but on the streams of the forward pass.)
//
// Budgets inside budgets: tenants with a parent divide the parent's share.
//
//   absl::StatusOr<Tenant> team = Tenant::Create(*runtime, {.name = "team"});
//   absl::StatusOr<VirtualDevice> all = VirtualDevice::Create(*gpu, *team, "memory=16GiB,compute=50%");
//   absl::StatusOr<Tenant> user = Tenant::Create(*runtime, {.name = "user", .parent = &*team});
//   absl::StatusOr<VirtualDevice> one = VirtualDevice::Create(*gpu, *user, "memory=4GiB,weight=2");
//
// A child's allocations are charged to its own quota and to the parent's, and both limits apply. Weights count among siblings,
// which divide the time that the parent is entitled to; time that one leaves goes to its siblings first. The parent's
// guarantee, cap and copy rates apply to all of them together, including what the parent launches itself (as a child of
// weight 1). A child's guarantee comes out of its parent's, and its priority is the parent's or lower. Memory and shares in a
// child's spec are parts of the GPU, as in any spec. There is one level: a child cannot have children.
//
// Errors: AlreadyExists for a name that is taken; Unimplemented for a parent that has a parent itself. For a virtual device of
// a child: FailedPrecondition if the parent has none on that GPU, or one without a memory quota; InvalidArgument for a priority
// above the parent's; Unimplemented for an isolation other than shared and context, and for memory_cap (which the parent may
// have). Under a broker they divide what the process is granted. A parent's handle cannot be destroyed before its children's: declare it before them. (Otherwise it
// stays until the process ends.) The parent's virtual device stays while a child has one on that GPU. Threading: thread-safe; a
// scope belongs to its thread.
#ifndef GPUSHARE_TENANT_H_
#define GPUSHARE_TENANT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/internal/text.h"
#include "gpushare/runtime.h"
#include "gpushare/spec.h"

namespace gpushare {

class Tenant;

struct TenantOptions {
  std::string name;  // 1 to 63 bytes of UTF-8, unique in the runtime
  std::map<std::string, std::string> labels = {};
  std::optional<Priority> priority = std::nullopt;  // for virtual devices whose spec gives none
  const Tenant* parent = nullptr;                   // budgets inside budgets: see above
};

// An identity. Owns at most one virtual device per GPU, which keeps it alive.
class Tenant {
 public:
  static absl::StatusOr<Tenant> Create(const Runtime& runtime, const TenantOptions& options);
  // The tenant of all work that is not attributed to another.
  static absl::StatusOr<Tenant> Default(const Runtime& runtime) {
    gpushare_tenant tenant = nullptr;
    const gpushare_status code = gpushare_runtime_default_tenant(runtime.handle(), &tenant);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Tenant(tenant);
  }

  absl::StatusOr<std::string> name() const {
    const char* name = nullptr;
    const gpushare_status code = gpushare_tenant_name(handle_.get(), &name);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return std::string(name);
  }
  // NotFound: the tenant has no such label.
  absl::StatusOr<std::string> label(const std::string& key) const {
    const absl::Status text = internal::CheckText("tenant label", key);
    if (!text.ok()) return text;
    const char* value = nullptr;
    const gpushare_status code = gpushare_tenant_label(handle_.get(), key.c_str(), &value);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return std::string(value);
  }

  gpushare_tenant handle() const { return handle_.get(); }

 private:
  explicit Tenant(gpushare_tenant handle) : handle_(handle) {}
  internal::Handle<gpushare_tenant, gpushare_tenant_destroy> handle_;
};

// Names a tenant without owning it; may be copied. If the tenant is gone when a scope enters, or had been moved from when
// the token was made, TenantScope::status() returns an error.
class TenantToken {
 public:
  TenantToken() = default;
  explicit TenantToken(const Tenant& tenant) : tenant_(tenant.handle()), given_(true) {}
  explicit operator bool() const { return given_; }
  gpushare_tenant handle() const { return tenant_; }

 private:
  friend class TenantScope;
  explicit TenantToken(gpushare_tenant tenant) : tenant_(tenant), given_(tenant != nullptr) {}
  gpushare_tenant tenant_ = nullptr;
  bool given_ = false;  // false: the token names no tenant
};

// From construction to destruction, unattributed work of this thread belongs to the tenant. Scopes nest.
class TenantScope {
 public:
  explicit TenantScope(const Tenant& tenant) : TenantScope(TenantToken(tenant)) {}
  // A token that names no tenant changes nothing.
  explicit TenantScope(TenantToken token) {
    if (token) status_ = gpushare_scope_enter(token.handle(), &scope_);
  }
  ~TenantScope() {
    if (scope_ != 0) static_cast<void>(gpushare_scope_leave(scope_));
  }
  TenantScope(const TenantScope&) = delete;
  TenantScope& operator=(const TenantScope&) = delete;

  // InvalidArgument: the tenant was gone or moved from, and the thread works for the same tenant as before.
  absl::Status status() const {
    if (status_ == GPUSHARE_OK) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(status_),
                        "the tenant of this scope has been destroyed, or was moved from");
  }

  // The tenant for which the calling thread works.
  static TenantToken Current() {
    gpushare_tenant tenant = nullptr;
    static_cast<void>(gpushare_scope_current(&tenant));
    return TenantToken(tenant);
  }

 private:
  uint64_t scope_ = 0;
  gpushare_status status_ = GPUSHARE_OK;
};

inline absl::StatusOr<Tenant> Tenant::Create(const Runtime& runtime, const TenantOptions& options) {
  absl::Status text = internal::CheckText("tenant name", options.name);
  std::vector<gpushare_label> labels;
  for (const auto& [key, value] : options.labels) {
    text.Update(internal::CheckText("tenant labels: a key", key));
    text.Update(internal::CheckText("tenant labels: a value", value));
    labels.push_back({key.c_str(), value.c_str()});
  }
  if (!text.ok()) return text;
  if (options.parent != nullptr && options.parent->handle() == nullptr) {
    return internal::NullHandle("tenant");
  }
  gpushare_tenant_options c = {};
  c.struct_size = sizeof(c);
  c.priority = options.priority ? static_cast<int32_t>(*options.priority) : GPUSHARE_PRIORITY_UNSET;
  c.name = options.name.c_str();
  c.parent = options.parent == nullptr ? nullptr : options.parent->handle();
  c.labels = labels.data();
  c.label_count = labels.size();
  gpushare_tenant tenant = nullptr;
  const gpushare_status code = gpushare_tenant_create(runtime.handle(), &c, &tenant);
  if (code != GPUSHARE_OK) return internal::ToStatus(code);
  return Tenant(tenant);
}

}  // namespace gpushare

#endif  // GPUSHARE_TENANT_H_
