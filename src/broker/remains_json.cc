// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "broker/remains.h"

namespace gpushare::broker {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr size_t kMostText = 4096, kMostEntries = 100'000;
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

// One list of the members of each struct, for writing and for reading.
template <typename Holding, typename Visit>
void VisitHolding(Holding& holding, Visit visit) {
  visit("gpu", holding.gpu);
  visit("granted", holding.granted);
}
template <typename Process, typename Visit>
void VisitHolder(Process& process, Visit visit) {
  visit("pid", process.pid);
  visit("began", process.began);
  visit("uid", process.uid);
  visit("gid", process.gid);
  visit("asked", process.asked);
  visit("tenant", process.tenant);
  visit("program", process.program);
  visit("returns", process.returns);
  visit("evicted", process.evicted);
  visit("holds", process.holds);
}
template <typename Tenant, typename Visit>
void VisitTenant(Tenant& tenant, Visit visit) {
  visit("name", tenant.name);
  visit("listed", tenant.listed);
  visit("owner", tenant.owner);
  visit("spec", tenant.spec);
  visit("suspended", tenant.suspended);
  visit("draining", tenant.draining);
}
template <typename Change, typename Visit>
void VisitChange(Change& change, Visit visit) {
  visit("gpu", change.gpu);
  visit("tenant", change.tenant);
  visit("configured", change.configured);
  visit("spec", change.spec);
}
template <typename Gpu, typename Visit>
void VisitGpuLeft(Gpu& gpu, Visit visit) {
  visit("uuid", gpu.uuid);
  visit("memory", gpu.memory);
  visit("sm_count", gpu.sm_count);
  visit("draining", gpu.draining);
}
template <typename All, typename Visit>
void VisitRemains(All& remains, Visit visit) {
  visit("draining", remains.draining);
  visit("gpus", remains.gpus);
  visit("tenants", remains.tenants);
  visit("changes", remains.changes);
  visit("processes", remains.processes);
}

class RemainsWriter {
 public:
  std::string Text(const Remains& remains, const Where& where) {
    out_.BeginObject();
    (*this)("version", kVersion);
    (*this)("boot", where.boot);
    (*this)("pid_namespace", where.pid_namespace);
    VisitRemains(remains, std::ref(*this));
    return out_.EndObject().text() + "\n";
  }
  template <typename T>
  void operator()(const char* key, const T& value) {
    out_.Key(key);
    Write(value);
  }

 private:
  void Write(const std::string& text) { out_.String(text); }
  void Write(bool value) { out_.Bool(value); }
  void Write(int64_t value) { out_.Integer(value); }
  void Write(int32_t value) { out_.Integer(value); }
  void Write(uint32_t value) { out_.Integer(value); }
  void Write(uint64_t value) { out_.Integer(static_cast<int64_t>(value)); }
  void Write(const Remains::Holding& each) {
    Object([&] { VisitHolding(each, std::ref(*this)); });
  }
  void Write(const Remains::Process& each) {
    Object([&] { VisitHolder(each, std::ref(*this)); });
  }
  void Write(const Remains::Tenant& each) {
    Object([&] { VisitTenant(each, std::ref(*this)); });
  }
  void Write(const Remains::Change& each) {
    Object([&] { VisitChange(each, std::ref(*this)); });
  }
  void Write(const Remains::Gpu& each) {
    Object([&] { VisitGpuLeft(each, std::ref(*this)); });
  }
  template <typename Inside>
  void Object(const Inside& inside) {
    out_.BeginObject();
    inside();
    out_.EndObject();
  }
  template <typename T>
  void Write(const std::vector<T>& list) {
    out_.BeginArray();
    for (const T& each : list) Write(each);
    out_.EndArray();
  }

  base::JsonWriter out_{base::JsonWriter::Style::kOneLine};
};

// Every member has to be there, and nothing else.
class RemainsReader {
 public:
  bool ok() const { return wrong_.empty(); }
  const std::string& wrong() const { return wrong_; }

  // The members of `in` that `visit_all` names, and `more` others.
  template <typename VisitAll>
  void Object(const char* key, const json& in, size_t more, const VisitAll& visit_all) {
    if (!in.is_object()) return Wrong(key);
    size_t members = more;
    visit_all([&](const char* name, auto& value) {
      ++members;
      const auto found = in.find(name);
      found == in.end() ? Wrong(name) : Read(name, *found, value);
    });
    if (in.size() != members) Wrong(key);
  }
  void Read(const char* key, const json& in, std::string& text) {
    if (!in.is_string() || in.get_ref<const std::string&>().size() > kMostText) return Wrong(key);
    text = in.get<std::string>();
  }
  void Read(const char* key, const json& in, bool& value) {
    in.is_boolean() ? void(value = in.get<bool>()) : Wrong(key);
  }
  void Read(const char* key, const json& in, uint64_t& value) {
    if (!in.is_number_unsigned() || in.get<uint64_t>() > uint64_t{INT64_MAX}) return Wrong(key);
    value = in.get<uint64_t>();
  }
  void Read(const char* key, const json& in, uint32_t& value) {
    uint64_t wide = 0;
    Read(key, in, wide);
    wide <= UINT32_MAX ? void(value = static_cast<uint32_t>(wide)) : Wrong(key);
  }
  void Read(const char* key, const json& in, int32_t& value) {
    uint64_t wide = 0;
    Read(key, in, wide);
    wide <= INT32_MAX ? void(value = static_cast<int32_t>(wide)) : Wrong(key);
  }

 private:
  void Wrong(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }
  void Read(const char* key, const json& in, Remains::Holding& each) {
    Object(key, in, 0, [&](auto visit) { VisitHolding(each, visit); });
    if (each.granted > kMostBytes) Wrong("granted");
  }
  void Read(const char* key, const json& in, Remains::Process& each) {
    Object(key, in, 0, [&](auto visit) { VisitHolder(each, visit); });
    std::set<std::string> gpus;
    for (const Remains::Holding& holding : each.holds) {
      if (!gpus.insert(holding.gpu).second) Wrong("holds");
    }
  }
  void Read(const char* key, const json& in, Remains::Tenant& each) {
    Object(key, in, 0, [&](auto visit) { VisitTenant(each, visit); });
  }
  void Read(const char* key, const json& in, Remains::Change& each) {
    Object(key, in, 0, [&](auto visit) { VisitChange(each, visit); });
  }
  void Read(const char* key, const json& in, Remains::Gpu& each) {
    Object(key, in, 0, [&](auto visit) { VisitGpuLeft(each, visit); });
    if (each.memory > kMostBytes) Wrong("memory");
  }
  template <typename T>
  void Read(const char* key, const json& in, std::vector<T>& list) {
    if (!in.is_array() || in.size() > kMostEntries) return Wrong(key);
    for (const json& each : in) Read(key, each, list.emplace_back());
  }

  std::string wrong_;
};

}  // namespace

std::string ToJson(const Remains& remains, const Where& where) {
  return RemainsWriter().Text(remains, where);
}

absl::StatusOr<Remains> RemainsFromJson(std::string_view text, Where* where) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return absl::InvalidArgumentError("it is not a JSON object");
  const auto version = document.find("version");
  if (version == document.end() || *version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("its version is not ", kVersion));
  }
  Remains remains;
  RemainsReader reader;
  reader.Object("the whole", document, /*more=*/1, [&](auto visit) {
    visit("boot", where->boot);
    visit("pid_namespace", where->pid_namespace);
    VisitRemains(remains, visit);
  });
  if (reader.ok()) return remains;
  return absl::InvalidArgumentError(absl::StrCat("its form is another: ", reader.wrong()));
}

}  // namespace gpushare::broker
