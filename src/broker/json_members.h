// SPDX-License-Identifier: Apache-2.0
// Writes and reads structs as JSON objects, both by one list of their members.
//
//   void VisitMembers(Is<Tenant> auto& tenant, auto visit) {
//     visit("name", tenant.name);
//     visit("listed", tenant.listed);
//   }
//   std::string text = MembersWriter(base::JsonWriter::Style::kOneLine).Text(tenant);
//   MembersReader reader({.most_text = 4096});
//   reader.Read("the whole", nlohmann::json::parse(text), tenant);
//   if (!reader.ok()) Print(reader.wrong());
//
// `NamesOf(E)` returns the names of an enumeration in its order. `WrongIn(const T&)` checks further conditions on a struct
// that has been read; it returns the key that is wrong, or nullptr.
#ifndef GPUSHARE_BROKER_JSON_MEMBERS_H_
#define GPUSHARE_BROKER_JSON_MEMBERS_H_

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/time.h"

namespace gpushare::broker {

// Matches a constant struct, to be written, and a mutable one, to be read into.
template <typename S, typename T>
concept Is = std::same_as<std::remove_const_t<S>, T>;

template <typename T>
const char* WrongIn(const T&) {
  return nullptr;
}

class MembersWriter {
 public:
  explicit MembersWriter(base::JsonWriter::Style style) : out_(style) {}

  template <typename T>
  std::string Text(const T& value) && {
    Write(value);
    return out_.text();
  }

 private:
  void Write(const std::string& text) { out_.String(text); }
  void Write(bool value) { out_.Bool(value); }
  void Write(double value) { out_.Number(value); }
  void Write(int32_t value) { out_.Integer(value); }
  void Write(uint32_t value) { out_.Integer(value); }
  void Write(int64_t value) { out_.Integer(value); }
  // Null means no limit; other numbers this large do not occur.
  void Write(uint64_t value) {
    value > uint64_t{INT64_MAX} ? out_.Null() : out_.Integer(static_cast<int64_t>(value));
  }
  void Write(Nanos time) { out_.Integer(time.count()); }
  void Write(Time time) { out_.Integer(time.time_since_epoch().count()); }
  void Write(const std::map<std::string, std::string>& texts) {
    out_.BeginObject();
    for (const auto& [name, text] : texts) out_.Key(name).String(text);
    out_.EndObject();
  }
  template <typename T>
  void Write(const std::vector<T>& list) {
    out_.BeginArray();
    for (const T& each : list) Write(each);
    out_.EndArray();
  }
  template <typename T>
  void Write(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      out_.String(NamesOf(value)[static_cast<size_t>(value)]);
    } else {
      out_.BeginObject();
      VisitMembers(value, [this](const char* key, const auto& member) {
        out_.Key(key);
        Write(member);
      });
      out_.EndObject();
    }
  }

  base::JsonWriter out_;
};

// Fills in the members that are present. Goes on after an error; ok() and wrong() tell at the end.
class MembersReader {
 public:
  struct Form {
    bool whole = false;    // every member must be present, and no other key
    bool no_limit = true;  // a number of bytes or events may be null
    size_t most_text = SIZE_MAX, most_entries = SIZE_MAX;
  };
  explicit MembersReader(const Form& form) : form_(form) {}

  bool ok() const { return wrong_.empty(); }
  // The first key that was wrong.
  const std::string& wrong() const { return wrong_; }

  void Read(const char* key, const nlohmann::json& in, std::string& text) {
    if (!in.is_string()) return Wrong(key);
    const std::string& found = in.get_ref<const std::string&>();
    found.size() <= form_.most_text ? void(text = found) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, bool& value) {
    in.is_boolean() ? void(value = in.get<bool>()) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, double& value) {
    in.is_number() ? void(value = in.get<double>()) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, uint64_t& value) {
    if (in.is_null() && form_.no_limit) {
      value = UINT64_MAX;
    } else if (in.is_number_unsigned() &&
               (form_.no_limit || in.get<uint64_t>() <= uint64_t{INT64_MAX})) {
      value = in.get<uint64_t>();
    } else {
      Wrong(key);
    }
  }
  void Read(const char* key, const nlohmann::json& in, uint32_t& value) {
    uint64_t wide = 0;
    Read(key, in, wide);
    wide <= UINT32_MAX ? void(value = static_cast<uint32_t>(wide)) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, int64_t& value) {
    // The library classifies a value above INT64_MAX as unsigned.
    const bool fits = in.is_number_integer() &&
                      (!in.is_number_unsigned() || in.get<uint64_t>() <= uint64_t{INT64_MAX});
    fits ? void(value = in.get<int64_t>()) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, int32_t& value) {
    int64_t wide = 0;
    Read(key, in, wide);
    wide >= INT32_MIN&& wide <= INT32_MAX ? void(value = static_cast<int32_t>(wide)) : Wrong(key);
  }
  void Read(const char* key, const nlohmann::json& in, Nanos& value) {
    int64_t count = 0;
    Read(key, in, count);
    value = Nanos(count);
  }
  void Read(const char* key, const nlohmann::json& in, Time& value) {
    Nanos since{0};
    Read(key, in, since);
    value = Time(since);
  }
  void Read(const char* key, const nlohmann::json& in, std::map<std::string, std::string>& texts) {
    if (!in.is_object()) return Wrong(key);
    for (const auto& [name, value] : in.items()) Read(key, value, texts[name]);
  }
  template <typename T>
  void Read(const char* key, const nlohmann::json& in, std::vector<T>& list) {
    if (!in.is_array() || in.size() > form_.most_entries) return Wrong(key);
    for (const nlohmann::json& each : in) Read(key, each, list.emplace_back());
  }
  template <typename T>
  void Read(const char* key, const nlohmann::json& in, T& value) {
    if constexpr (std::is_enum_v<T>) {
      const auto names = NamesOf(value);
      const auto at = in.is_string() ? std::ranges::find(names, in.get_ref<const std::string&>())
                                     : std::ranges::end(names);
      at != std::ranges::end(names) ? void(value = static_cast<T>(at - std::ranges::begin(names)))
                                    : Wrong(key);
    } else {
      Object(key, in, value);
    }
  }

 private:
  template <typename T>
  void Object(const char* key, const nlohmann::json& in, T& value) {
    if (!in.is_object()) return Wrong(key);
    size_t members = 0;
    VisitMembers(value, [&](const char* name, auto& member) {
      ++members;
      if (const auto found = in.find(name); found != in.end()) {
        Read(name, *found, member);
      } else if (form_.whole) {
        Wrong(name);
      }
    });
    if (form_.whole && in.size() != members) Wrong(key);
    if (const char* const wrong = WrongIn(value)) Wrong(wrong);
  }
  void Wrong(const char* key) {
    if (wrong_.empty()) wrong_ = key;
  }

  const Form form_;
  std::string wrong_;
};

// What the broker has answered, from the parsed text. InvalidArgument: the message says what is wrong.
template <typename T>
absl::StatusOr<T> ReadAnswer(const nlohmann::json& document, const MembersReader::Form& form) {
  if (document.is_discarded()) return absl::InvalidArgumentError("the broker's answer is not JSON");
  T answer;
  MembersReader reader(form);
  reader.Read("the whole", document, answer);
  if (reader.ok()) return answer;
  return absl::InvalidArgumentError(
      absl::StrCat("the broker's answer has another form: ", reader.wrong()));
}

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_JSON_MEMBERS_H_
