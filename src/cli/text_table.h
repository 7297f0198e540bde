// SPDX-License-Identifier: Apache-2.0
// A table for a terminal, with columns as wide as their widest cell.
//
//   TextTable table({{"tenant"}, {"share", Align::kRight}});
//   table.AddRow({"online", "20.0 %"});
//   std::fputs(table.ToString().c_str(), stdout);
//
// Widths count code points, so cells are UTF-8 without wide or combining characters.
#ifndef GPUSHARE_CLI_TEXT_TABLE_H_
#define GPUSHARE_CLI_TEXT_TABLE_H_

#include <string>
#include <vector>

namespace gpushare::cli {

enum class Align { kLeft, kRight };

struct TextColumn {
  std::string title;
  Align align = Align::kLeft;
};

class TextTable {
 public:
  explicit TextTable(std::vector<TextColumn> columns);

  // Missing cells are empty; cells beyond the last column are dropped.
  void AddRow(std::vector<std::string> cells);
  // The titles, a rule and the rows. No line ends with a blank.
  std::string ToString() const;

 private:
  std::vector<TextColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_TEXT_TABLE_H_
