// SPDX-License-Identifier: Apache-2.0
#include "broker/json.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_writer.h"

namespace gpushare::broker {
namespace {

using nlohmann::json;

// One list of the members of each struct, for writing and for reading. `visit` is called with key and member.
template <typename Process, typename Visit>
void VisitProcess(Process& process, Visit visit) {
  visit("session", process.session);
  visit("pid", process.pid);
  visit("uid", process.uid);
  visit("gid", process.gid);
  visit("program", process.program);
  visit("memory_used", process.memory_used);
  visit("memory_granted", process.memory_granted);
  visit("time_used_ns", process.time_used);
  visit("gone", process.gone);
  visit("evicted", process.evicted);
  visit("memory_by_driver", process.memory_by_driver);
  visit("audit", process.audit);
}

template <typename Process, typename Visit>
void VisitStranger(Process& stranger, Visit visit) {
  visit("pid", stranger.pid);
  visit("program", stranger.program);
  visit("memory_by_driver", stranger.memory_by_driver);
}

// In the order of AuditResult.
constexpr const char* kAuditResults[] = {"", "understates", "over_grant", "stranger"};

template <typename Share, typename Visit>
void VisitShare(Share& share, Visit visit) {
  visit("gpu", share.gpu);
  visit("tenant", share.tenant);
  visit("spec", share.spec);
  visit("labels", share.labels);
  visit("suspended", share.suspended);
  visit("draining", share.draining);
  visit("memory_limit", share.memory_limit);
  visit("memory_used", share.memory_used);
  visit("memory_granted", share.memory_granted);
  visit("memory_peak", share.memory_peak);
  visit("allocations_denied", share.allocations_denied);
  visit("guarantee", share.guarantee);
  visit("weight", share.weight);
  visit("cap", share.cap);
  visit("time_used_ns", share.time_used);
  visit("throttled_ns", share.throttled);
  visit("launches", share.launches);
  visit("waits", share.waits);
  visit("processes", share.processes);
}

template <typename Gpu, typename Visit>
void VisitGpu(Gpu& gpu, Visit visit) {
  visit("uuid", gpu.uuid);
  visit("memory", gpu.memory);
  visit("memory_promised", gpu.memory_promised);
  visit("guaranteed", gpu.guaranteed);
  visit("draining", gpu.draining);
  visit("strangers", gpu.strangers);
}

template <typename State, typename Visit>
void VisitSnapshot(State& snapshot, Visit visit) {
  visit("at_ns", snapshot.at);
  visit("sessions", snapshot.sessions);
  visit("sessions_ever", snapshot.sessions_ever);
  visit("refused", snapshot.refused);
  visit("audits", snapshot.audits);
  visit("audited", snapshot.audited);
  visit("gpus", snapshot.gpus);
  visit("shares", snapshot.shares);
}

class Writer {
 public:
  template <typename T>
  void operator()(const char* key, const T& value) {
    out_.Key(key);
    Write(value);
  }
  std::string Text() && { return out_.text(); }

  void Write(const Snapshot& snapshot) {
    out_.BeginObject();
    VisitSnapshot(snapshot, [this](const char* key, const auto& value) { (*this)(key, value); });
    out_.EndObject();
  }

 private:
  void Write(const std::string& text) { out_.String(text); }
  void Write(bool value) { out_.Bool(value); }
  void Write(double value) { out_.Number(value); }
  void Write(int32_t value) { out_.Integer(value); }
  void Write(uint32_t value) { out_.Integer(value); }
  void Write(uint64_t value) {
    // No limit is null; other numbers this large do not occur.
    if (value > static_cast<uint64_t>(INT64_MAX)) {
      out_.Null();
    } else {
      out_.Integer(static_cast<int64_t>(value));
    }
  }
  void Write(Nanos time) { out_.Integer(time.count()); }
  void Write(Time time) { out_.Integer(time.time_since_epoch().count()); }
  void Write(const std::map<std::string, std::string>& labels) {
    out_.BeginObject();
    for (const auto& [name, value] : labels) out_.Key(name).String(value);
    out_.EndObject();
  }
  void Write(AuditResult result) { out_.String(kAuditResults[static_cast<size_t>(result)]); }
  void Write(const Stranger& stranger) {
    out_.BeginObject();
    VisitStranger(stranger, [this](const char* key, const auto& value) { (*this)(key, value); });
    out_.EndObject();
  }
  void Write(const ProcessShare& process) {
    out_.BeginObject();
    VisitProcess(process, [this](const char* key, const auto& value) { (*this)(key, value); });
    out_.EndObject();
  }
  void Write(const Share& share) {
    out_.BeginObject();
    VisitShare(share, [this](const char* key, const auto& value) { (*this)(key, value); });
    out_.EndObject();
  }
  void Write(const GpuState& gpu) {
    out_.BeginObject();
    VisitGpu(gpu, [this](const char* key, const auto& value) { (*this)(key, value); });
    out_.EndObject();
  }
  template <typename T>
  void Write(const std::vector<T>& list) {
    out_.BeginArray();
    for (const T& each : list) Write(each);
    out_.EndArray();
  }

  base::JsonWriter out_;
};

// Fills in what is there. Stops at nothing: what is wrong is seen at the end.
class Reader {
  // Of the members of `in`.
  auto From(const json& in) {
    return [this, &in](const char* key, auto& value) {
      if (const auto found = in.find(key); found != in.end()) Read(key, *found, value);
    };
  }

 public:
  bool ok() const { return wrong_.empty(); }
  const std::string& wrong() const { return wrong_; }

  void Read(const json& in, Snapshot* snapshot) {
    if (!in.is_object()) return Wrong("the whole");
    VisitSnapshot(*snapshot, From(in));
  }

 private:
  void Wrong(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }

  void Read(const char* key, const json& in, std::string& text) {
    in.is_string() ? void(text = in.get<std::string>()) : Wrong(key);
  }
  void Read(const char* key, const json& in, bool& value) {
    in.is_boolean() ? void(value = in.get<bool>()) : Wrong(key);
  }
  void Read(const char* key, const json& in, double& value) {
    in.is_number() ? void(value = in.get<double>()) : Wrong(key);
  }
  void Read(const char* key, const json& in, uint64_t& value) {
    if (in.is_null()) {
      value = UINT64_MAX;
    } else {
      in.is_number_unsigned() ? void(value = in.get<uint64_t>()) : Wrong(key);
    }
  }
  void Read(const char* key, const json& in, uint32_t& value) {
    uint64_t wide = 0;
    Read(key, in, wide);
    wide <= UINT32_MAX ? void(value = static_cast<uint32_t>(wide)) : Wrong(key);
  }
  void Read(const char* key, const json& in, int64_t& value) {
    // What is too large for the type is not a number_integer to the library, but of the other kind.
    const bool fits = in.is_number_integer() &&
                      (!in.is_number_unsigned() || in.get<uint64_t>() <= uint64_t{INT64_MAX});
    fits ? void(value = in.get<int64_t>()) : Wrong(key);
  }
  void Read(const char* key, const json& in, int32_t& value) {
    int64_t wide = 0;
    Read(key, in, wide);
    wide >= INT32_MIN&& wide <= INT32_MAX ? void(value = static_cast<int32_t>(wide)) : Wrong(key);
  }
  void Read(const char* key, const json& in, Nanos& value) {
    int64_t count = 0;
    Read(key, in, count);
    value = Nanos(count);
  }
  void Read(const char* key, const json& in, Time& value) {
    Nanos since{0};
    Read(key, in, since);
    value = Time(since);
  }
  void Read(const char* key, const json& in, std::map<std::string, std::string>& labels) {
    if (!in.is_object()) return Wrong(key);
    for (const auto& [name, value] : in.items()) Read(key, value, labels[name]);
  }
  void Read(const char* key, const json& in, AuditResult& result) {
    std::string text;
    Read(key, in, text);
    const auto* const at = std::find(std::begin(kAuditResults), std::end(kAuditResults), text);
    if (at == std::end(kAuditResults)) return Wrong(key);
    result = static_cast<AuditResult>(at - kAuditResults);
  }
  void Read(const char* key, const json& in, Stranger& stranger) {
    in.is_object() ? VisitStranger(stranger, From(in)) : Wrong(key);
  }
  void Read(const char* key, const json& in, ProcessShare& process) {
    in.is_object() ? VisitProcess(process, From(in)) : Wrong(key);
  }
  void Read(const char* key, const json& in, Share& share) {
    in.is_object() ? VisitShare(share, From(in)) : Wrong(key);
  }
  void Read(const char* key, const json& in, GpuState& gpu) {
    in.is_object() ? VisitGpu(gpu, From(in)) : Wrong(key);
  }
  template <typename T>
  void Read(const char* key, const json& in, std::vector<T>& list) {
    if (!in.is_array()) return Wrong(key);
    for (const json& each : in) Read(key, each, list.emplace_back());
  }

  std::string wrong_;
};

}  // namespace

std::string ToJson(const Snapshot& snapshot) {
  Writer writer;
  writer.Write(snapshot);
  return std::move(writer).Text();
}

absl::StatusOr<Snapshot> SnapshotFromJson(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::InvalidArgumentError("the broker's answer is not JSON");
  Snapshot snapshot;
  Reader reader;
  reader.Read(document, &snapshot);
  if (reader.ok()) return snapshot;
  return absl::InvalidArgumentError(
      absl::StrCat("the broker's answer has another form: ", reader.wrong()));
}

}  // namespace gpushare::broker
