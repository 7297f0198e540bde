// SPDX-License-Identifier: Apache-2.0
#include "cli/text_table.h"

#include <algorithm>
#include <utility>

namespace gpushare::cli {
namespace {

size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0u) != 0x80u;  // counts first bytes of code points
  }));
}

void AppendLine(std::string line, std::string* text) {
  line.erase(line.find_last_not_of(' ') + 1);
  text->append(line).append("\n");
}

}  // namespace

TextTable::TextTable(std::vector<TextColumn> columns) : columns_(std::move(columns)) {}

void TextTable::AddRow(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::ToString() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = Width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, Width(row[i]));
    widths.push_back(width);
  }
  const auto pad = [&](const std::string& cell, size_t i) {
    const std::string blanks(widths[i] - Width(cell), ' ');
    return columns_[i].align == Align::kRight ? blanks + cell : cell + blanks;
  };

  std::string text, titles, rule;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string gap = i == 0 ? "" : "  ";
    titles += gap + pad(columns_[i].title, i);
    rule += gap + std::string(widths[i], columns_[i].title.empty() ? ' ' : '-');
  }
  AppendLine(titles, &text);
  AppendLine(rule, &text);
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += (i == 0 ? "" : "  ") + pad(row[i], i);
    AppendLine(std::move(line), &text);
  }
  return text;
}

}  // namespace gpushare::cli
