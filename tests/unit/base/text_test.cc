// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>

#include "base/range.h"

namespace gpushare {
namespace {

TEST(Text, ZeroBytes) {
  using namespace std::string_view_literals;
  EXPECT_FALSE(HasZeroByte(""));
  EXPECT_FALSE(HasZeroByte(std::string_view()));
  EXPECT_FALSE(HasZeroByte("/run/broker.sock"));
  EXPECT_TRUE(HasZeroByte("/run\0"sv));
  EXPECT_TRUE(HasZeroByte("\0run"sv));
}

TEST(Text, Utf8) {
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_TRUE(IsUtf8("tenant"));
  EXPECT_TRUE(IsUtf8("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
  for (const char* text : {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                           "\xe2\x82", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "a\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
  EXPECT_EQ(Utf8Length("\xe2\x82\xac and more"), 3u);
  EXPECT_EQ(Utf8Length("\xe2\x82"), 0u);
}

TEST(Text, QuotedShowsWhatIsPrintable) {
  EXPECT_EQ(Quoted(""), "''");
  EXPECT_EQ(Quoted("caf\xc3\xa9"), "'caf\xc3\xa9'");
  EXPECT_EQ(Quoted("a\nb\xff\x1b[2J"), "'a\\x0ab\\xff\\x1b[2J'");
  EXPECT_EQ(Quoted(std::string("\0", 1)), "'\\x00'");
  // A two-byte control character, one that changes the direction of writing, and half a sequence.
  EXPECT_EQ(Quoted("\xc2\x9b"), "'\\xc2\\x9b'");
  EXPECT_EQ(Quoted("\xe2\x80\xae"), "'\\xe2\\x80\\xae'");
  EXPECT_EQ(Quoted("\xe2\x82"), "'\\xe2\\x82'");
}

TEST(Text, QuotedIsShort) {
  EXPECT_EQ(Quoted(std::string(1 << 20, 'x')), "'" + std::string(40, 'x') + "...'");
  EXPECT_EQ(Quoted(std::string(40, 'x')), "'" + std::string(40, 'x') + "'");
  // Text is cut between code points.
  EXPECT_EQ(Quoted(std::string(39, 'x') + "\xc3\xa9"), "'" + std::string(39, 'x') + "...'");
  EXPECT_LE(Quoted(std::string(1 << 20, '\xff')).size(), 165u);
}

TEST(Range, HoldsItsEndsAndNoNaN) {
  EXPECT_TRUE(Within(0, 0, 1));
  EXPECT_TRUE(Within(1, 0, 1));
  EXPECT_FALSE(Within(1.1, 0, 1));
  EXPECT_FALSE(Within(std::nan(""), 0, 1));
}

}  // namespace
}  // namespace gpushare
