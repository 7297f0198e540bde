// SPDX-License-Identifier: Apache-2.0
#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace gpushare::base {

void JsonWriter::NewLine() {
  if (style_ == Style::kOneLine) return;
  text_ += "\n" + std::string(static_cast<size_t>(depth_) * 2, ' ');
}

void JsonWriter::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (!first_) text_ += ",";
  if (depth_ > 0) NewLine();
  first_ = false;
}

JsonWriter& JsonWriter::BeginObject() {
  BeforeValue();
  text_ += "{";
  ++depth_;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  --depth_;
  if (!first_) NewLine();
  text_ += "}";
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::BeginArray() {
  BeforeValue();
  text_ += "[";
  ++depth_;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  --depth_;
  if (!first_) NewLine();
  text_ += "]";
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  String(key);
  text_ += ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  BeforeValue();
  text_ += JsonQuoted(value);
  return *this;
}

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Null();
  BeforeValue();
  // As printf's %.9g, in the C locale.
  std::array<char, 32> number;
  const auto [end, error] = std::to_chars(number.data(), number.data() + number.size(), value,
                                          std::chars_format::general, 9);
  text_.append(number.data(), end);
  return *this;
}

JsonWriter& JsonWriter::Integer(int64_t value) {
  BeforeValue();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  BeforeValue();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  BeforeValue();
  text_ += "null";
  return *this;
}

}  // namespace gpushare::base
