// SPDX-License-Identifier: Apache-2.0
#include "cli/nearest.h"

#include <algorithm>
#include <cstddef>

namespace gpushare::cli {
namespace {

constexpr size_t kLongest = 64;  // longer words are ignored

// Edit distance: the number of letters to insert, delete, change, or swap with the next.
size_t Distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> at(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        at[i][j] = i + j;
        continue;
      }
      at[i][j] = std::min(
          {at[i - 1][j] + 1, at[i][j - 1] + 1, at[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at[i][j] = std::min(at[i][j], at[i - 2][j - 2] + 1);
      }
    }
  }
  return at[a.size()][b.size()];
}

}  // namespace

std::string NearestOf(const std::string& word, const std::vector<std::string>& names) {
  std::string nearest;
  size_t least = 3;  // candidates must be nearer than this, and than a third of the word
  if (word.size() > kLongest) return nearest;
  for (const std::string& name : names) {
    const size_t distance = Distance(word, name);
    if (distance == 0) return "";
    if (distance >= least || 3 * distance > 2 * name.size()) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace gpushare::cli
