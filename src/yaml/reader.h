// SPDX-License-Identifier: Apache-2.0
// Reads a YAML tree by rules. Errors say where in the text a rule is broken.
//
//   Reader in("broker.yaml");
//   return in.Keys(document, "", {{"unlisted", [&](const Node& value, const std::string& place) {
//                                    return in.Bool(value, place, &config.unlisted); }}});
//
// A place is the path of keys, as in tenants[0].spec. Errors are InvalidArgument: FILE:LINE: PLACE: what was given and what is
// allowed. A key without a value (`tenants:`) counts as an empty map and as an empty list.
#ifndef GPUSHARE_YAML_READER_H_
#define GPUSHARE_YAML_READER_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "yaml/document.h"

namespace gpushare::yaml {

class Reader {
 public:
  using Take = std::function<absl::Status(const Node& value, const std::string& place)>;
  using TakeEntry =
      std::function<absl::Status(const Node& key, const Node& value, const std::string& place)>;
  struct Rule {
    const char* key;
    Take take;
  };

  explicit Reader(std::string_view file) : file_(file) {}

  absl::Status Error(int line, const std::string& place, const std::string& why) const;
  // `allowed` is the end of the message: "allowed ...", or what is wrong and then what is allowed.
  absl::Status Wrong(const Node& value, const std::string& place, const std::string& allowed) const;
  // Wrong() with the message of a failed check of the value; OK if `status` is.
  absl::Status At(const Node& value, const std::string& place, const absl::Status& status) const;

  // Reads a nonempty text; `what` names it in messages.
  absl::Status Text(const Node& value, const std::string& place, const char* what,
                    std::string* out) const;
  absl::Status Bool(const Node& value, const std::string& place, bool* out) const;
  // Calls `take` for each entry of a map with arbitrary keys; a key must not occur twice.
  absl::Status Entries(const Node& map, const std::string& place, const std::string& what,
                       const TakeEntry& take) const;
  // Reads a map that may have only the keys of `rules`.
  absl::Status Keys(const Node& map, const std::string& place,
                    const std::vector<Rule>& rules) const;
  absl::Status List(const Node& list, const std::string& place, const std::string& what,
                    const Take& take) const;

 private:
  const std::string_view file_;
};

}  // namespace gpushare::yaml

#endif  // GPUSHARE_YAML_READER_H_
