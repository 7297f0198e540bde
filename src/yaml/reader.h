// SPDX-License-Identifier: Apache-2.0
// Reads a YAML tree by rules, and says of what breaks them where it stands.
//
//   Reader in("broker.yaml");
//   return in.Keys(document, "", {{"unlisted", [&](const Node& value, const std::string& place) {
//                                    return in.Bool(value, place, &config.unlisted); }}});
//
// A place is a key as people write it: tenants[0].spec. Errors are InvalidArgument: FILE:LINE: PLACE: what was given and
// what is allowed. Nothing, as in `tenants:` alone, is an empty map and an empty list.
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
  // `allowed` begins with that word, or says before what is wrong.
  absl::Status Wrong(const Node& value, const std::string& place, const std::string& allowed) const;
  // Wrong() with what a check of the value said, unless it was content.
  absl::Status At(const Node& value, const std::string& place, const absl::Status& status) const;

  // Text that is not empty; `what` it is, for the message.
  absl::Status Text(const Node& value, const std::string& place, const char* what,
                    std::string* out) const;
  absl::Status Bool(const Node& value, const std::string& place, bool* out) const;
  // Of a map with any keys, each once.
  absl::Status Entries(const Node& map, const std::string& place, const std::string& what,
                       const TakeEntry& take) const;
  // Of a map with these keys.
  absl::Status Keys(const Node& map, const std::string& place,
                    const std::vector<Rule>& rules) const;
  absl::Status List(const Node& list, const std::string& place, const std::string& what,
                    const Take& take) const;

 private:
  const std::string_view file_;
};

}  // namespace gpushare::yaml

#endif  // GPUSHARE_YAML_READER_H_
