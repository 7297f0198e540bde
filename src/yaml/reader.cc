// SPDX-License-Identifier: Apache-2.0
#include "yaml/reader.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace gpushare::yaml {
namespace {

using Kind = Node::Kind;

std::string Given(const Node& node) {
  switch (node.kind) {
    case Kind::kNothing:
      return "nothing";
    case Kind::kText:
      return Quoted(node.text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      break;
  }
  return "keys and values";
}

}  // namespace

absl::Status Reader::Error(int line, const std::string& place, const std::string& why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(Printable(file_, 256), ":", line, ": ", place, place.empty() ? "" : ": ", why));
}

absl::Status Reader::Wrong(const Node& value, const std::string& place,
                           const std::string& allowed) const {
  return Error(value.line, place, absl::StrCat(Given(value), " given; ", allowed));
}

absl::Status Reader::At(const Node& value, const std::string& place,
                        const absl::Status& status) const {
  return status.ok() ? status : Wrong(value, place, std::string(status.message()));
}

absl::Status Reader::Text(const Node& value, const std::string& place, const char* what,
                          std::string* out) const {
  if (value.kind != Kind::kText || value.text.empty()) {
    return Wrong(value, place, absl::StrCat("allowed: ", what));
  }
  *out = value.text;
  return absl::OkStatus();
}

absl::Status Reader::Bool(const Node& value, const std::string& place, bool* out) const {
  *out = value.text == "true";
  if (value.kind == Kind::kText && !value.quoted && (*out || value.text == "false")) {
    return absl::OkStatus();
  }
  return Wrong(value, place, "allowed: true or false");
}

absl::Status Reader::Entries(const Node& map, const std::string& place, const std::string& what,
                             const TakeEntry& take) const {
  if (map.kind == Kind::kNothing) return absl::OkStatus();
  if (map.kind != Kind::kMap) return Wrong(map, place, absl::StrCat("allowed: ", what));
  std::set<std::string_view> seen;
  for (size_t i = 0; i < map.keys.size(); ++i) {
    const Node& key = map.keys[i];
    if (key.kind != Kind::kText) return Wrong(key, place, "allowed as a key: text");
    const std::string below =
        absl::StrCat(place, place.empty() ? "" : ".", Printable(key.text, 64));
    if (!seen.insert(key.text).second) return Error(key.line, below, "it is given twice");
    GPUSHARE_RETURN_IF_ERROR(take(key, map.values[i], below));
  }
  return absl::OkStatus();
}

absl::Status Reader::Keys(const Node& map, const std::string& place,
                          const std::vector<Rule>& rules) const {
  const std::string names = absl::StrJoin(
      rules, ", ", [](std::string* out, const Rule& rule) { absl::StrAppend(out, rule.key); });
  return Entries(map, place, absl::StrCat("the keys ", names),
                 [&](const Node& key, const Node& value, const std::string& below) {
                   for (const Rule& rule : rules) {
                     if (key.text == rule.key) return rule.take(value, below);
                   }
                   return Error(
                       key.line, place,
                       absl::StrCat("there is no key ", Quoted(key.text), "; allowed: ", names));
                 });
}

absl::Status Reader::List(const Node& list, const std::string& place, const std::string& what,
                          const Take& take) const {
  if (list.kind == Kind::kNothing) return absl::OkStatus();
  if (list.kind != Kind::kList) return Wrong(list, place, absl::StrCat("allowed: ", what));
  for (size_t i = 0; i < list.values.size(); ++i) {
    GPUSHARE_RETURN_IF_ERROR(take(list.values[i], absl::StrCat(place, "[", i, "]")));
  }
  return absl::OkStatus();
}

}  // namespace gpushare::yaml
