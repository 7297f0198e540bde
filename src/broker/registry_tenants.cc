// SPDX-License-Identifier: Apache-2.0
// Which tenant a process belongs to: one that admits its user, one that it makes, or that of its former session.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "broker/registry.h"
#include "broker/tenant_spec.h"
#include "spec/text.h"

namespace gpushare::broker {
namespace {

bool May(const TenantConfig& tenant, const Registry::Credentials& who) {
  if (tenant.uids.empty() && tenant.gids.empty()) return true;
  const auto in = [](const std::vector<uint32_t>& list, uint32_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  return in(tenant.uids, who.uid) || in(tenant.gids, who.gid) ||
         std::any_of(who.groups.begin(), who.groups.end(),
                     [&](uint32_t group) { return in(tenant.gids, group); });
}

// Whether this is the process itself, whichever user it has become since.
bool IsOf(const Registry::Credentials& process, const Registry::Credentials& who) {
  return process.pid != 0 && process.pid == who.pid && process.began != 0 &&
         process.began == who.began;
}

bool Differ(uint64_t image, uint64_t other) { return image != 0 && other != 0 && image != other; }

// As far as the file of remains can hold it.
uint64_t ImageIn(const ipc::Hello& hello) { return hello.image & uint64_t{INT64_MAX}; }

// Names in a message; of further names only the number is given.
constexpr size_t kNamesShown = 10;

}  // namespace

template <typename May>
std::string Registry::NamesOf(const May& may) const {
  std::string text;
  size_t found = 0;
  for (const auto& [name, tenant] : tenants_) {
    if (!may(*tenant) || found++ >= kNamesShown) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", Quoted(name));
  }
  if (found > kNamesShown) absl::StrAppend(&text, " and ", found - kNamesShown, " more");
  return text;
}

absl::Status Registry::NoTenant(const std::string& name) const {
  const std::string there = NamesOf([](const Tenant&) { return true; });
  return absl::NotFoundError(absl::StrCat("no tenant ", Quoted(name), "; there ",
                                          there.empty() ? "is none" : "are ", there));
}

// The lost session of this process, if any.
Registry::Session* Registry::FormerOf(const Credentials& who, const ipc::Hello& hello) {
  Session* unseen = nullptr;
  uint64_t least = 0;
  for (Session& session : sessions_) {
    const bool same = session.lost() && session.successor == nullptr &&
                      session.asked == hello.tenant && !Differ(session.image, ImageIn(hello));
    if (!same) continue;
    if (IsOf(session.who, who)) return &session;
    if (session.who.uid != who.uid) continue;
    if (session.who.pid != 0) {
      const bool known = session.who.began != 0 && who.began != 0;
      if (session.who.pid == who.pid && (!known || session.who.began == who.began)) return &session;
      continue;
    }
    if (session.program != hello.program) continue;
    // Processes that the broker cannot see may look alike. Taking the session with the smallest grant leaves enough for the
    // others in whatever order they come back.
    uint64_t granted = 0;
    for (const Place& place : session.places) granted += place.memory->granted;
    if (unseen == nullptr || granted < least) {
      unseen = &session;
      least = granted;
    }
  }
  return unseen;
}

bool Registry::Replaces(const Session& session, const Session& before) {
  return Differ(session.image, before.image) && IsOf(before.who, session.who);
}

absl::StatusOr<Registry::Tenant*> Registry::TenantFor(const Credentials& who,
                                                      const ipc::Hello& hello,
                                                      const Session* former) {
  if (former != nullptr) {
    Tenant& tenant = *former->tenant;
    // It may have changed its user since it was admitted, but it is still whom the tenant admits. Of groups only those that it has now are known.
    const bool itself = IsOf(former->who, who);
    const Credentials& admitted = itself ? former->who : who;
    // A tenant that is not listed any more stays for the processes that it has.
    const bool stays = tenant.owner == kNobody && itself;
    const bool may = May(tenant.config, admitted) || May(tenant.config, who);
    if (tenant.listed ? may : stays || tenant.owner == admitted.uid) {
      return &tenant;
    }
  }
  if (draining_) return absl::UnavailableError("the broker is being drained: nobody registers");
  std::string name = hello.tenant;
  bool numbered = false;
  if (name.empty()) {
    int found = 0;
    // Its user and its own group go first: users are in many groups, and what they are for may be anything.
    Credentials counts = who;
    counts.groups.clear();
    const auto is_named = [&counts](const Tenant& tenant) {
      const bool named = !tenant.config.uids.empty() || !tenant.config.gids.empty();
      return tenant.listed && named && May(tenant.config, counts);
    };
    const auto find = [&] {
      for (const auto& [known, tenant] : tenants_) {
        if (!is_named(*tenant)) continue;
        name = known;
        ++found;
      }
    };
    find();
    if (found == 0) {
      counts.groups = who.groups;
      find();
    }
    if (found > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the configuration names user ", who.uid, " for ", found, " tenants (",
                       NamesOf(is_named), "): say which with GPUSHARE_TENANT"));
    }
    if (found == 0 && !config_.unlisted) {
      return absl::PermissionDeniedError(absl::StrCat(
          "no tenant of the configuration is user ", who.uid,
          "'s: say which with GPUSHARE_TENANT, or add one, or allow 'unlisted' tenants"));
    }
    // Another tenant may have the name process-N already, so the next free number is used.
    for (uint64_t number = next_session_;
         found == 0 && (name.empty() || tenants_.count(name) != 0);) {
      name = absl::StrCat("process-", number++);
      numbered = true;
    }
  }
  if (const auto at = tenants_.find(name); at != tenants_.end()) {
    Tenant& tenant = *at->second;
    if (tenant.listed ? !May(tenant.config, who) : tenant.owner != who.uid) {
      return absl::PermissionDeniedError(
          absl::StrCat("user ", who.uid, " may not register as tenant '", name, "'"));
    }
    if (tenant.draining) {
      return absl::UnavailableError(absl::StrCat("tenant '", name, "' is being drained"));
    }
    if (!tenant.listed && tenant.sessions == 0) {
      // A dormant tenant is treated like a new one, but its debt and orders remain.
      GPUSHARE_RETURN_IF_ERROR(MayBeOwn(hello.spec));
      tenant.config.spec = hello.spec;
    }
    return &tenant;
  }
  if (!config_.unlisted) {
    // The message names only tenants that this user may be.
    const std::string own =
        NamesOf([&who](const Tenant& tenant) { return tenant.listed && May(tenant.config, who); });
    return absl::NotFoundError(absl::StrCat(
        "there is no tenant '", name, "': add it to the configuration, or allow 'unlisted' ones",
        own.empty() ? "" : absl::StrCat("; user ", who.uid, " may be ", own)));
  }
  GPUSHARE_RETURN_IF_ERROR(spec::ValidateTenantName(name));
  GPUSHARE_RETURN_IF_ERROR(MayBeOwn(hello.spec));
  auto made = std::make_unique<Tenant>();
  made->name = name;
  made->config.name = name;
  made->config.spec = hello.spec;
  made->owner = who.uid;
  made->numbered = numbered;
  return (tenants_[name] = std::move(made)).get();
}

absl::Status Registry::MayBeOwn(const std::string& spec) const {
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec parsed, spec::ParseSpec(spec));
  return CheckTenantSpec(parsed);
}

absl::Status Registry::AdmitHigh(const Gpu& gpu, const std::string& tenant,
                                 const spec::Limits& limits) const {
  if (limits.compute.band != sched::Band::kHigh) return absl::OkStatus();
  double guaranteed = 0;
  std::string to;
  for (const TenantConfig& listed : config_.tenants) {
    if (!listed.parent.empty()) continue;  // out of its parent's guarantee
    const absl::StatusOr<gpushare_spec> spec = SpecOn(listed, gpu.info.uuid);
    if (!spec.ok()) continue;
    const auto its = spec::ResolveSpec(*spec, GPUSHARE_PRIORITY_UNSET, gpu.capacity);
    if (!its.ok() || its->compute.guarantee <= 0 || its->compute.band == sched::Band::kHigh)
      continue;
    guaranteed += its->compute.guarantee;
    absl::StrAppend(&to, to.empty() ? "'" : ", '", listed.name, "'");
  }
  if (guaranteed <= 0) return absl::OkStatus();
  double caps = 0;  // of other unlisted tenants with high priority
  for (const auto& [name, share] : gpu.shares) {
    const bool counts = name != tenant && !share->tenant->listed && !share->dormant &&
                        share->limits.compute.band == sched::Band::kHigh;
    if (counts) caps += share->limits.compute.cap;
  }
  const double left = std::max(0.0, 1 - guaranteed - caps);
  if (limits.compute.cap <= left + kGuaranteeRounding) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "tenant '", tenant, "' on GPU ", gpu.info.uuid, ": priority=high with a cap of ",
      spec::FormatShare(limits.compute.cap), " asked, ",
      spec::FormatShare(std::round(left * 1e9) / 1e9), " left beside what is guaranteed to ", to,
      "; ask for a 'cap' of so much, or for no 'priority', or have it listed"));
}

absl::StatusOr<Registry::Session*> Registry::Register(const Credentials& who,
                                                      const ipc::Hello& hello) {
  Session* const former = FormerOf(who, hello);
  GPUSHARE_ASSIGN_OR_RETURN(Tenant* const tenant, TenantFor(who, hello, former));
  Session& session = sessions_.emplace_back();
  if (former != nullptr && former->tenant == tenant) {
    session.former = former;
    former->successor = &session;
  }
  session.id = next_session_++;
  session.who = {.pid = who.pid, .uid = who.uid, .gid = who.gid, .began = who.began};
  session.program = hello.program;
  session.asked = hello.tenant;
  session.image = ImageIn(hello);
  session.tenant = tenant;
  if (tenant->sessions++ == 0 && !tenant->listed) dormant_.remove(tenant);
  ++sessions_ever_;
  return &session;
}

}  // namespace gpushare::broker
