// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "broker/json_members.h"
#include "broker/remains.h"

namespace gpushare::broker {
namespace {

constexpr int64_t kVersion = 5;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

}  // namespace

static void VisitMembers(Is<Remains::Holding> auto& holding, auto visit) {
  visit("gpu", holding.gpu);
  visit("granted", holding.granted);
}

static void VisitMembers(Is<Remains::Process> auto& process, auto visit) {
  visit("session", process.session);
  visit("pid", process.pid);
  visit("began", process.began);
  visit("uid", process.uid);
  visit("gid", process.gid);
  visit("asked", process.asked);
  visit("tenant", process.tenant);
  visit("program", process.program);
  visit("image", process.image);
  visit("returns", process.returns);
  visit("evicted", process.evicted);
  visit("holds", process.holds);
}

static void VisitMembers(Is<Remains::Tenant> auto& tenant, auto visit) {
  visit("name", tenant.name);
  visit("listed", tenant.listed);
  visit("owner", tenant.owner);
  visit("spec", tenant.spec);
  visit("on", tenant.on);
  visit("parent", tenant.parent);
  visit("suspended", tenant.suspended);
  visit("draining", tenant.draining);
}

static void VisitMembers(Is<Remains::Change> auto& change, auto visit) {
  visit("gpu", change.gpu);
  visit("tenant", change.tenant);
  visit("configured", change.configured);
  visit("spec", change.spec);
}

static void VisitMembers(Is<Remains::Gpu> auto& gpu, auto visit) {
  visit("uuid", gpu.uuid);
  visit("memory", gpu.memory);
  visit("sm_count", gpu.sm_count);
  visit("draining", gpu.draining);
}

static void VisitMembers(Is<Remains> auto& remains, auto visit) {
  visit("draining", remains.draining);
  visit("gpus", remains.gpus);
  visit("tenants", remains.tenants);
  visit("changes", remains.changes);
  visit("processes", remains.processes);
}

static void VisitMembers(Is<Remains::Growth> auto& growth, auto visit) {
  visit("gpus", growth.gpus);
  visit("tenants", growth.tenants);
  visit("processes", growth.processes);
  visit("gone", growth.gone);
}

static const char* WrongIn(const Remains::Holding& holding) {
  return holding.granted > kMostBytes ? "granted" : nullptr;
}

static const char* WrongIn(const Remains::Process& process) {
  if (process.pid < 0) return "pid";
  std::set<std::string> gpus;
  for (const Remains::Holding& holding : process.holds) {
    if (!gpus.insert(holding.gpu).second) return "holds";
  }
  return nullptr;
}

static const char* WrongIn(const Remains::Gpu& gpu) {
  if (gpu.sm_count < 0) return "sm_count";
  return gpu.memory > kMostBytes ? "memory" : nullptr;
}

namespace {

// The first line of the file.
template <typename Version, typename Place, typename All>
struct Document {
  Version& version;
  Place& where;
  All& remains;
};
template <typename Version, typename Place, typename All>
Document(Version&, Place&, All&) -> Document<Version, Place, All>;

}  // namespace

template <typename Version, typename Place, typename All>
static void VisitMembers(const Document<Version, Place, All>& document, auto visit) {
  visit("version", document.version);
  visit("boot", document.where.boot);
  visit("pid_namespace", document.where.pid_namespace);
  VisitMembers(document.remains, visit);
}

std::string ToJson(const Remains& remains, const Where& where) {
  return MembersWriter(base::JsonWriter::Style::kOneLine).Text(Document{kVersion, where, remains}) +
         "\n";
}

std::string ToJson(const Remains::Growth& growth) {
  return MembersWriter(base::JsonWriter::Style::kOneLine).Text(growth) + "\n";
}

namespace {

constexpr MembersReader::Form kForm{
    .whole = true, .no_limit = false, .most_text = 4096, .most_entries = 100'000};

// Applies later lines to remains; entries are found by name or number.
class Growing {
 public:
  explicit Growing(Remains& remains) : remains_(remains) {
    for (size_t i = 0; i < remains.gpus.size(); ++i) gpus_[remains.gpus[i].uuid] = i;
    for (size_t i = 0; i < remains.tenants.size(); ++i) tenants_[remains.tenants[i].name] = i;
    for (size_t i = 0; i < remains.processes.size(); ++i) {
      processes_[remains.processes[i].session] = i;
    }
  }
  void Add(Remains::Growth&& growth) {
    for (Remains::Gpu& gpu : growth.gpus) {
      Put(remains_.gpus, gpus_, std::string(gpu.uuid), std::move(gpu));
    }
    for (Remains::Tenant& tenant : growth.tenants) {
      Put(remains_.tenants, tenants_, std::string(tenant.name), std::move(tenant));
    }
    for (Remains::Process& process : growth.processes) {
      Put(remains_.processes, processes_, process.session, std::move(process));
    }
    gone_.insert(growth.gone.begin(), growth.gone.end());
  }
  // Removing gone sessions at the end is safe, since numbers of sessions are not reused.
  void End() {
    std::erase_if(remains_.processes, [this](const Remains::Process& process) {
      return gone_.count(process.session) != 0;
    });
  }

 private:
  template <typename T, typename Name>
  static void Put(std::vector<T>& list, std::map<Name, size_t>& places, const Name& name,
                  typename std::vector<T>::value_type&& one) {
    const auto [place, is_new] = places.emplace(name, list.size());
    is_new ? void(list.push_back(std::move(one))) : void(list[place->second] = std::move(one));
  }

  Remains& remains_;
  std::map<std::string, size_t> gpus_, tenants_;
  std::map<uint64_t, size_t> processes_;
  std::set<uint64_t> gone_;
};

}  // namespace

absl::StatusOr<Remains> RemainsFromJson(std::string_view text, Where* where) {
  const auto parsed = [](std::string_view part) {
    return nlohmann::json::parse(part, nullptr, /*allow_exceptions=*/false);
  };
  size_t end = text.find('\n');
  const auto document = parsed(text.substr(0, end));
  if (!document.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  const auto found = document.find("version");
  if (found == document.end() || *found != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("its version is not ", kVersion));
  }
  int64_t version = 0;
  Remains remains;
  MembersReader reader(kForm);
  Document members{version, *where, remains};
  reader.Read("the whole", document, members);
  Growing growing(remains);
  while (end != std::string_view::npos && reader.ok()) {
    text.remove_prefix(end + 1);
    end = text.find('\n');
    if (end == std::string_view::npos) break;
    Remains::Growth growth;
    reader.Read("a line after the first", parsed(text.substr(0, end)), growth);
    growing.Add(std::move(growth));
  }
  growing.End();
  if (reader.ok()) return remains;
  return absl::InvalidArgumentError(absl::StrCat("its form is another: ", reader.wrong()));
}

}  // namespace gpushare::broker
