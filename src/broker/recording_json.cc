// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "broker/recording.h"

namespace gpushare::broker {
namespace {

using nlohmann::json;

// In the order of RecordedEvent::Kind.
constexpr const char* kKinds[] = {"lease", "wait", "device", "memory", "denied", "suspend"};

int64_t Count(Time time) { return time.time_since_epoch().count(); }

void WriteEvents(const char* key, const std::vector<RecordedEvent>& events, base::JsonWriter* out) {
  out->Key(key).BeginArray();
  for (const RecordedEvent& event : events) {
    out->BeginObject();
    out->Key("kind").String(kKinds[static_cast<size_t>(event.kind)]);
    out->Key("gpu").String(event.gpu).Key("tenant").String(event.tenant);
    out->Key("pid").Integer(event.pid);
    out->Key("session").Integer(static_cast<int64_t>(event.session));
    out->Key("begin_ns").Integer(Count(event.begin)).Key("end_ns").Integer(Count(event.end));
    out->Key("value").Integer(std::max<int64_t>(event.value, 0));
    out->Key("other").Integer(static_cast<int64_t>(std::min<uint64_t>(event.other, INT64_MAX)));
    out->EndObject();
  }
  out->EndArray();
}

absl::Status Wrong(std::string_view key) {
  return absl::InvalidArgumentError(
      absl::StrCat("the broker's answer has another form: ", std::string(key)));
}

// What is not there stays as it is.
absl::Status ReadInteger(const json& in, const char* key, int64_t least, int64_t* out) {
  const auto found = in.find(key);
  if (found == in.end()) return absl::OkStatus();
  // What is too large for the type is not a number_integer to the library, but of the other kind.
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() || found->get<uint64_t>() <= uint64_t{INT64_MAX});
  if (!fits || found->get<int64_t>() < least) return Wrong(key);
  *out = found->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadNumber(const json& in, const char* key, uint64_t* out) {
  auto value = static_cast<int64_t>(*out);
  GPUSHARE_RETURN_IF_ERROR(ReadInteger(in, key, 0, &value));
  *out = static_cast<uint64_t>(value);
  return absl::OkStatus();
}

absl::Status ReadTime(const json& in, const char* key, Time* out) {
  int64_t count = 0;
  GPUSHARE_RETURN_IF_ERROR(ReadInteger(in, key, 0, &count));
  *out = Time(Nanos(count));
  return absl::OkStatus();
}

absl::Status ReadText(const json& in, const char* key, std::string* out) {
  const auto found = in.find(key);
  if (found == in.end()) return absl::OkStatus();
  if (!found->is_string()) return Wrong(key);
  *out = found->get<std::string>();
  return absl::OkStatus();
}

// Nothing: its kind is not known here.
absl::StatusOr<std::optional<RecordedEvent>> ReadEvent(const json& in) {
  if (!in.is_object()) return Wrong("events");
  std::string kind;
  GPUSHARE_RETURN_IF_ERROR(ReadText(in, "kind", &kind));
  const auto* const at = std::find(std::begin(kKinds), std::end(kKinds), kind);
  if (at == std::end(kKinds)) return std::nullopt;
  RecordedEvent event;
  event.kind = static_cast<RecordedEvent::Kind>(at - kKinds);
  GPUSHARE_RETURN_IF_ERROR(ReadText(in, "gpu", &event.gpu));
  GPUSHARE_RETURN_IF_ERROR(ReadText(in, "tenant", &event.tenant));
  int64_t pid = 0;
  GPUSHARE_RETURN_IF_ERROR(ReadInteger(in, "pid", 0, &pid));
  if (pid > INT32_MAX) return Wrong("pid");
  event.pid = static_cast<int32_t>(pid);
  GPUSHARE_RETURN_IF_ERROR(ReadNumber(in, "session", &event.session));
  GPUSHARE_RETURN_IF_ERROR(ReadTime(in, "begin_ns", &event.begin));
  GPUSHARE_RETURN_IF_ERROR(ReadTime(in, "end_ns", &event.end));
  if (event.end < event.begin) return Wrong("end_ns");
  GPUSHARE_RETURN_IF_ERROR(ReadInteger(in, "value", 0, &event.value));
  GPUSHARE_RETURN_IF_ERROR(ReadNumber(in, "other", &event.other));
  return event;
}

absl::Status ReadEvents(const json& in, const char* key, std::vector<RecordedEvent>* events) {
  const auto found = in.find(key);
  if (found == in.end()) return absl::OkStatus();
  if (!found->is_array()) return Wrong(key);
  for (const json& each : *found) {
    GPUSHARE_ASSIGN_OR_RETURN(std::optional<RecordedEvent> event, ReadEvent(each));
    if (event.has_value()) events->push_back(*std::move(event));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ToJson(const Recording& recording) {
  base::JsonWriter out(base::JsonWriter::Style::kOneLine);
  out.BeginObject();
  out.Key("at_ns").Integer(Count(recording.at));
  out.Key("next").Integer(static_cast<int64_t>(recording.next));
  out.Key("lost").Integer(static_cast<int64_t>(recording.lost));
  WriteEvents("events", recording.events, &out);
  WriteEvents("open", recording.open, &out);
  out.EndObject();
  return out.text();
}

absl::StatusOr<Recording> RecordingFromJson(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded()) return absl::InvalidArgumentError("the broker's answer is not JSON");
  if (!document.is_object()) return Wrong("the whole");
  Recording recording;
  GPUSHARE_RETURN_IF_ERROR(ReadTime(document, "at_ns", &recording.at));
  GPUSHARE_RETURN_IF_ERROR(ReadNumber(document, "next", &recording.next));
  GPUSHARE_RETURN_IF_ERROR(ReadNumber(document, "lost", &recording.lost));
  GPUSHARE_RETURN_IF_ERROR(ReadEvents(document, "events", &recording.events));
  GPUSHARE_RETURN_IF_ERROR(ReadEvents(document, "open", &recording.open));
  return recording;
}

}  // namespace gpushare::broker
