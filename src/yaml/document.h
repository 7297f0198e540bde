// SPDX-License-Identifier: Apache-2.0
// Parses the part of YAML that people write by hand in configurations into a small tree that knows its line numbers.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Node document, Parse(text, "broker.yaml"));
//
// Anchors, aliases, explicit tags and multiple documents are refused, and sizes and depths are bounded, so the tree is never
// larger than a few times the text.
#ifndef GPUSHARE_YAML_DOCUMENT_H_
#define GPUSHARE_YAML_DOCUMENT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpushare::yaml {

inline constexpr size_t kMostBytes = 1 << 20;  // bytes of text
inline constexpr size_t kMostDepth = 8;
inline constexpr size_t kMostNodes = 200'000;

struct Node {
  enum class Kind { kNothing, kText, kList, kMap };
  Kind kind = Kind::kNothing;
  int line = 1;
  std::string text;          // of a scalar, without quotes
  bool quoted = false;       // true for '5', false for 5
  std::vector<Node> keys;    // of a map, in the order of the text
  std::vector<Node> values;  // of a map, parallel to `keys`; of a list, its elements
};

// The text of a file. If it is larger than kMostBytes, a prefix that is too large for Parse(). Never blocks. Errors name the
// path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// InvalidArgument: FILE:LINE and what is wrong with the text.
absl::StatusOr<Node> Parse(std::string_view text, std::string_view file);

}  // namespace gpushare::yaml

#endif  // GPUSHARE_YAML_DOCUMENT_H_
