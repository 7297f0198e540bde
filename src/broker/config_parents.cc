// SPDX-License-Identifier: Apache-2.0
#include "broker/config_parents.h"

#include <cstddef>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "broker/tenant_spec.h"

namespace gpushare::broker {
namespace {

constexpr size_t kMostNamesInACircle = 8;

absl::StatusOr<spec::Limits> LimitsOn(const TenantConfig& tenant, const std::string& gpu,
                                      const spec::Limits* parent) {
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec spec, SpecOn(tenant, gpu));
  return LimitsOf(spec, parent, static_cast<uint64_t>(INT64_MAX));
}

class ParentsOfConfig {
 public:
  ParentsOfConfig(const yaml::Reader& in, const std::vector<TenantConfig>& tenants,
                  const std::vector<TenantLines>& lines)
      : in_(in), tenants_(tenants), lines_(lines) {
    for (size_t i = 0; i < tenants.size(); ++i) {
      places_[tenants[i].name] = i;
      if (!tenants[i].parent.empty()) children_[tenants[i].parent].push_back(i);
    }
  }

  // A tenant may be listed before its parent, so all have to be read before.
  absl::Status CheckNames() const {
    for (const auto& [name, family] : children_) {
      const TenantConfig* const parent = Find(name);
      for (const size_t i : family) {
        if (parent == nullptr) {
          return Wrong(i, absl::StrCat("there is no tenant ", Quoted(name),
                                       "; allowed: the name of another tenant of this file"));
        }
        if (parent->parent.empty()) continue;
        if (const std::string circle = CircleOf(tenants_[i]); !circle.empty()) {
          return Wrong(i, absl::StrCat("parents in a circle: ", circle,
                                       "; allowed: a tenant without a parent"));
        }
        const absl::Status deep = Wrong(
            i, absl::StrCat(Quoted(name), " has a parent itself, ", Quoted(parent->parent),
                            "; budgets inside budgets are one level deep: name a tenant without a "
                            "parent"));
        return absl::UnimplementedError(deep.message());
      }
    }
    return absl::OkStatus();
  }

  // On each GPU that one of the family names, and on any other.
  absl::Status CheckShares() const {
    for (const auto& [name, family] : children_) {
      const TenantConfig& parent = *Find(name);
      std::set<std::string> gpus = {""};
      for (const auto& [gpu, spec] : parent.on) gpus.insert(gpu);
      for (const size_t i : family) {
        for (const auto& [gpu, spec] : tenants_[i].on) gpus.insert(gpu);
      }
      for (const std::string& gpu : gpus) GPUSHARE_RETURN_IF_ERROR(CheckOn(gpu, parent, family));
    }
    return absl::OkStatus();
  }

 private:
  const TenantConfig* Find(const std::string& name) const {
    const auto at = places_.find(name);
    return at == places_.end() ? nullptr : &tenants_[at->second];
  }
  absl::Status Wrong(size_t child, const std::string& why) const {
    return in_.Error(lines_[child].parent, absl::StrCat("tenants[", child, "].parent"), why);
  }

  // The way up from a tenant if it comes back to it, as in "'a' in 'b' in 'a'"; else empty.
  std::string CircleOf(const TenantConfig& tenant) const {
    std::string way = Quoted(tenant.name);
    const TenantConfig* up = Find(tenant.parent);
    for (size_t steps = 0; up != nullptr && steps < kMostNamesInACircle; ++steps) {
      absl::StrAppend(&way, " in ", Quoted(up->name));
      if (up == &tenant) return way;
      up = Find(up->parent);
    }
    return "";
  }

  absl::Status CheckOn(const std::string& gpu, const TenantConfig& parent,
                       const std::vector<size_t>& family) const {
    GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits all, LimitsOn(parent, gpu, nullptr));
    double guaranteed = 0;
    for (const size_t i : family) {
      GPUSHARE_ASSIGN_OR_RETURN(const spec::Limits its, LimitsOn(tenants_[i], gpu, &all));
      const absl::Status within = CheckWithin(tenants_[i].name, its, parent.name, all, guaranteed);
      if (!within.ok()) {
        return in_.Error(
            lines_[i].tenant, absl::StrCat("tenants[", i, "]"),
            absl::StrCat(gpu.empty() ? "" : absl::StrCat("on ", gpu, ": "), within.message()));
      }
      guaranteed += its.compute.guarantee;
    }
    return absl::OkStatus();
  }

  const yaml::Reader& in_;
  const std::vector<TenantConfig>& tenants_;
  const std::vector<TenantLines>& lines_;
  std::map<std::string, size_t> places_;                 // of the tenants, by name
  std::map<std::string, std::vector<size_t>> children_;  // by parent
};

}  // namespace

absl::Status CheckParents(const yaml::Reader& in, const std::vector<TenantConfig>& tenants,
                          const std::vector<TenantLines>& lines) {
  const ParentsOfConfig parents(in, tenants, lines);
  GPUSHARE_RETURN_IF_ERROR(parents.CheckNames());
  return parents.CheckShares();
}

}  // namespace gpushare::broker
