// SPDX-License-Identifier: Apache-2.0
// A YAML document as a small tree that knows its lines, for configurations: of YAML what people write by hand.
//
//   GPUSHARE_ASSIGN_OR_RETURN(const Node document, Parse(text, "broker.yaml"));
//
// Anchors, aliases, explicit tags and several documents are refused, sizes and depths are bounded: what is read is never
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
  std::string text;          // as written, without quotes
  bool quoted = false;       // '5' and not 5
  std::vector<Node> keys;    // of a map, in the order of the text
  std::vector<Node> values;  // of a map, beside its keys; of a list, its elements
};

// The text of a file; of one that is too large, as much as shows that. Never waits. Errors name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// InvalidArgument: FILE:LINE and what is wrong with the text.
absl::StatusOr<Node> Parse(std::string_view text, std::string_view file);

}  // namespace gpushare::yaml

#endif  // GPUSHARE_YAML_DOCUMENT_H_
