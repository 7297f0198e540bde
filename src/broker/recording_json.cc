// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "broker/json_members.h"
#include "broker/recording.h"

namespace gpushare::broker {

static constexpr std::array<const char*, 6> NamesOf(RecordedEvent::Kind) {
  return {"lease", "wait", "device", "memory", "denied", "suspend"};
}

static void VisitMembers(Is<RecordedEvent> auto& event, auto visit) {
  visit("kind", event.kind);
  visit("gpu", event.gpu);
  visit("tenant", event.tenant);
  visit("pid", event.pid);
  visit("session", event.session);
  visit("begin_ns", event.begin);
  visit("end_ns", event.end);
  visit("value", event.value);
  visit("other", event.other);
}

static void VisitMembers(Is<Recording> auto& recording, auto visit) {
  visit("at_ns", recording.at);
  visit("next", recording.next);
  visit("lost", recording.lost);
  visit("events", recording.events);
  visit("open", recording.open);
}

static const char* WrongIn(const RecordedEvent& event) {
  if (event.pid < 0) return "pid";
  if (event.begin < Time{}) return "begin_ns";
  if (event.end < event.begin) return "end_ns";
  return event.value < 0 ? "value" : nullptr;
}

static const char* WrongIn(const Recording& recording) {
  return recording.at < Time{} ? "at_ns" : nullptr;
}

namespace {

using nlohmann::json;

// Leaves out events of kinds that are unknown here: a newer broker may send them.
void LeaveOutUnknown(const char* key, json& document) {
  const auto events = document.find(key);
  if (events == document.end() || !events->is_array()) return;
  auto& list = events->get_ref<json::array_t&>();
  std::erase_if(list, [](const json& event) {
    if (!event.is_object()) return false;
    const auto kind = event.find("kind");
    if (kind == event.end()) return true;
    return kind->is_string() && std::ranges::count(NamesOf(RecordedEvent::Kind{}),
                                                   kind->get_ref<const std::string&>()) == 0;
  });
}

}  // namespace

std::string ToJson(const Recording& recording) {
  return MembersWriter(base::JsonWriter::Style::kOneLine).Text(recording);
}

absl::StatusOr<Recording> RecordingFromJson(std::string_view text) {
  json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (document.is_object()) {
    LeaveOutUnknown("events", document);
    LeaveOutUnknown("open", document);
  }
  return ReadAnswer<Recording>(document, {.no_limit = false});
}

}  // namespace gpushare::broker
