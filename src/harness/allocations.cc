// SPDX-License-Identifier: Apache-2.0
#include "harness/allocations.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "harness/values.h"

namespace gpushare::harness {
namespace {

using yaml::Node;
using Place = const std::string&;

constexpr size_t kMostWords = 64;

// Calls `take` for each word of a text that is a list of words.
template <typename Take>
absl::Status ReadWords(const yaml::Reader& in, const Node& value, Place place, const char* what,
                       const Take& take) {
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, what, &text));
  const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipWhitespace());
  if (words.empty() || words.size() > kMostWords) {
    return in.Wrong(value, place, absl::StrCat("allowed: 1 to ", kMostWords, " of ", what));
  }
  for (const std::string& word : words) {
    Node one = value;
    one.text = word;
    GPUSHARE_RETURN_IF_ERROR(take(one));
  }
  return absl::OkStatus();
}

}  // namespace

bool FitsInto(uint64_t quota, const MemoryRequest& request) {
  return request.held <= quota && request.bytes <= quota - request.held;
}

absl::Status ReadAllocations(const yaml::Reader& in, const Node& map, const std::string& place,
                             Allocations* out) {
  Allocations read;
  int64_t keep = 1;
  const absl::Status keys = in.Keys(
      map, place,
      {{"sizes",
        [&](const Node& value, Place below) {
          return ReadWords(in, value, below, "sizes, as in 256MiB 64MiB", [&](const Node& one) {
            return ReadMemory(in, one, below, &read.sizes.emplace_back());
          });
        }},
       {"from",
        [&](const Node& value, Place below) {
          read.families.clear();
          return ReadWords(
              in, value, below, "malloc, async, managed, virtual", [&](const Node& one) {
                size_t which = 0;
                GPUSHARE_RETURN_IF_ERROR(ReadWord(in, one, below, kMemoryFamilies, &which));
                read.families.push_back(static_cast<MemoryFamily>(which));
                return absl::OkStatus();
              });
        }},
       {"keep", [&](const Node& value,
                    Place below) { return ReadCount(in, value, below, 1, 10'000, &keep); }},
       {"every", [&](const Node& value, Place below) {
          return ReadTime(in, value, below, kLeastBetweenRequests, Seconds(600), Millis(1),
                          &read.every);
        }}});
  if (!keys.ok()) return keys;
  if (read.sizes.empty()) return in.Error(map.line, place, "'sizes' is missing");
  read.keep = static_cast<size_t>(keep);
  *out = std::move(read);
  return absl::OkStatus();
}

}  // namespace gpushare::harness
