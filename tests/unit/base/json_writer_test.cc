// SPDX-License-Identifier: Apache-2.0
#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/other_locale.h"

namespace gpushare::base {
namespace {

TEST(JsonWriterTest, NestsAndSeparates) {
  JsonWriter json;
  json.BeginObject();
  json.Key("a").BeginArray().Integer(-1).Number(0.5).Bool(true).Null().EndArray();
  json.Key("b").BeginObject().EndObject();
  json.Key("c").BeginArray().EndArray();
  json.EndObject();
  EXPECT_EQ(
      json.text(),
      "{\n  \"a\": [\n    -1,\n    0.5,\n    true,\n    null\n  ],\n  \"b\": {},\n  \"c\": []\n}");
}

TEST(JsonWriterTest, EscapesStrings) {
  JsonWriter json;
  json.BeginObject().Key("k\"").String("a\\b\n\t\x01\xc3\xa4").EndObject();
  EXPECT_EQ(json.text(), "{\n  \"k\\\"\": \"a\\\\b\\u000a\\u0009\\u0001\xc3\xa4\"\n}");
}

TEST(JsonWriterTest, WhatIsNoUtf8IsReplaced) {
  JsonWriter json;
  json.BeginArray().String("a\xff\xc3(\xe2\x82\xac\xed\xa0\x80").EndArray();
  EXPECT_EQ(json.text(), "[\n  \"a\\ufffd\\ufffd(\xe2\x82\xac\\ufffd\\ufffd\\ufffd\"\n]");
}

TEST(JsonWriterTest, NumbersHaveNineDigitsAndAPointInEveryLocale) {
  const auto written = [] {
    JsonWriter json(JsonWriter::Style::kOneLine);
    json.BeginArray().Number(1.5).Number(2.0 / 3).Number(-1e-9).Number(123456789012.0).EndArray();
    return json.text();
  };
  const std::string wanted = "[1.5,0.666666667,-1e-09,1.23456789e+11]";
  EXPECT_EQ(written(), wanted);
  const test::OtherLocale german;
  if (!german.is_set()) GTEST_SKIP() << "this machine has no locale but C, and no localedef";
  EXPECT_EQ(written(), wanted);
}

TEST(JsonWriterTest, WhatIsNoNumberIsNull) {
  JsonWriter json;
  json.BeginArray().Number(std::nan("")).Number(std::numeric_limits<double>::infinity()).EndArray();
  EXPECT_EQ(json.text(), "[\n  null,\n  null\n]");
}

TEST(JsonWriterTest, ObjectsInArrays) {
  JsonWriter json;
  json.BeginArray()
      .BeginObject()
      .Key("x")
      .Integer(1)
      .EndObject()
      .BeginObject()
      .EndObject()
      .EndArray();
  EXPECT_EQ(json.text(), "[\n  {\n    \"x\": 1\n  },\n  {}\n]");
}

}  // namespace
}  // namespace gpushare::base
