// SPDX-License-Identifier: Apache-2.0
// A YAML document as a small tree that knows its lines, for configurations: of YAML what people write by hand.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const YamlNode document, ReadYaml(text, "broker.yaml"));
//
// Anchors, aliases, explicit tags and several documents are refused, sizes and depths are bounded: what is read is never
// larger than a few times the text.
#ifndef GPUSHARE_BROKER_YAML_H_
#define GPUSHARE_BROKER_YAML_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::broker {

inline constexpr size_t kMostYaml = 1 << 20;  // bytes of text
inline constexpr size_t kMostYamlDepth = 8;
inline constexpr size_t kMostYamlNodes = 200'000;

struct YamlNode {
  enum class Kind { kNothing, kText, kList, kMap };
  Kind kind = Kind::kNothing;
  int line = 1;
  std::string text;              // as written, without quotes
  bool quoted = false;           // '5' and not 5
  std::vector<YamlNode> keys;    // of a map, in the order of the text
  std::vector<YamlNode> values;  // of a map, beside its keys; of a list, its elements
};

// InvalidArgument: FILE:LINE and what is wrong with the text.
absl::StatusOr<YamlNode> ReadYaml(std::string_view text, std::string_view file);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_YAML_H_
