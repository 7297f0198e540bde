// SPDX-License-Identifier: Apache-2.0
// Writes JSON (RFC 8259), indented or on one line, with keys in the order given.
//
//   JsonWriter json;
//   json.BeginObject().Key("tenants").BeginArray().String("a").Number(0.5).EndArray().EndObject();
//   std::string text = json.text();
//
// Strings are UTF-8 and escaped as JSON requires. NaN and infinities, which JSON cannot express, become null.
#ifndef GPUSHARE_BASE_JSON_WRITER_H_
#define GPUSHARE_BASE_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gpushare::base {

class JsonWriter {
 public:
  enum class Style { kIndented, kOneLine };
  explicit JsonWriter(Style style = Style::kIndented) : style_(style) {}

  JsonWriter& BeginObject();
  JsonWriter& EndObject();
  JsonWriter& BeginArray();
  JsonWriter& EndArray();
  JsonWriter& Key(std::string_view key);

  JsonWriter& String(std::string_view value);
  JsonWriter& Number(double value);  // 9 significant digits
  JsonWriter& Integer(int64_t value);
  JsonWriter& Bool(bool value);
  JsonWriter& Null();

  const std::string& text() const { return text_; }

 private:
  void BeforeValue();
  void NewLine();

  const Style style_;
  std::string text_;
  int depth_ = 0;
  bool first_ = true;  // the innermost array or object is still empty
  bool after_key_ = false;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_JSON_WRITER_H_
