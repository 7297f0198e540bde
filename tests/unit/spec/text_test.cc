// SPDX-License-Identifier: Apache-2.0
#include "spec/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "tests/support/other_locale.h"

namespace gpushare::spec {
namespace {

TEST(Text, BytesAreExact) {
  EXPECT_EQ(*ParseBytes("8GiB"), uint64_t{8} << 30);
  EXPECT_EQ(*ParseBytes(" 1.5 GB "), 1'500'000'000u);
  EXPECT_EQ(*ParseBytes("0.5KiB"), 512u);
  EXPECT_EQ(*ParseBytes("7.9GiB"), 8'482'560'409u) << "and 0.6 bytes";
  EXPECT_EQ(*ParseBytes("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(*ParseBytes("007B"), 7u);
}

TEST(Text, BytesRefuseWhatIsNotAWholeNumber) {
  for (const char* text : {"", " ", "-1", "+1", "1e9", "0x10", "1.5B", "1.5", ".", "GiB", "1 G iB",
                           "18446744073709551616", "99999999999999999999TiB", "16777216TiB", "1gib",
                           "0.0000000000000000001KiB", "NaN", "inf", "1\xff"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(Text, ANumberIsWrittenOut) {
  EXPECT_EQ(*ParseNumber("2.5"), 2.5);
  const auto exponent = ParseNumber("1e3");
  ASSERT_FALSE(exponent.ok());
  EXPECT_NE(std::string(exponent.status().message()).find("an exponent is not taken"),
            std::string::npos)
      << exponent.status();
}

TEST(Text, MemoryWithoutItsUnitIsNotAFewBytes) {
  const auto forgotten = ParseMemory("50");
  ASSERT_FALSE(forgotten.ok());
  EXPECT_NE(std::string(forgotten.status().message()).find("write 50GiB, 50MiB"), std::string::npos)
      << forgotten.status();
  EXPECT_FALSE(ParseMemory("1048575").ok());
  EXPECT_EQ(*ParseMemory("1048576"), 1048576u);
  EXPECT_EQ(*ParseMemory("50B"), 50u);
  EXPECT_EQ(*ParseMemory("0"), 0u);
  EXPECT_FALSE(ParseMemory("much").ok());
}

TEST(Text, BytesRoundTrip) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t bytes = random() >> (random() % 64);
    EXPECT_EQ(*ParseBytes(FormatBytes(bytes)), bytes);
    EXPECT_EQ(*ParseBandwidth(FormatBandwidth(bytes)), bytes);
  }
  EXPECT_EQ(FormatBytes(uint64_t{8} << 30), "8GiB");
  EXPECT_EQ(ReadableBytes(uint64_t{8} << 30), "8 GiB");
  EXPECT_EQ(ReadableBytes(uint64_t{15} << 29), "7.5 GiB");
  EXPECT_EQ(ReadableBytes((uint64_t{1} << 30) - 1000), "1023.9 MiB");  // not 1024.0: see there
  EXPECT_EQ(FormatBytes(1'073'741'825), "1073741825B");
  EXPECT_EQ(FormatBandwidth(4'000'000'000), "4GB/s");
}

TEST(Text, IsTheSameInEveryLocale) {
  const test::OtherLocale german;
  if (!german.is_set()) GTEST_SKIP() << "this machine has no locale but C, and no localedef";
  EXPECT_EQ(ReadableBytes(uint64_t{15} << 29), "7.5 GiB");
  EXPECT_EQ(FormatShare(0.125), "12.5%");
  EXPECT_EQ(*ParseShare("12.5%"), 0.125);
  EXPECT_FALSE(ParseShare("12,5%").ok());
  EXPECT_EQ(*ParseBytes("1.5GiB"), uint64_t{3} << 29);
}

TEST(Text, SharesRoundTripToTheBit) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (int i = 0; i < 10000; ++i) {
    const double share = uniform(random) * std::pow(10, -static_cast<double>(random() % 4));
    EXPECT_EQ(*ParseShare(FormatShare(share)), share) << FormatShare(share);
    EXPECT_EQ(*ParseNumber(FormatNumber(share * 1e5)), share * 1e5);
  }
  EXPECT_EQ(*ParseShare("30%"), 0.3);
  EXPECT_EQ(*ParseShare("33.3 %"), 0.333);
  EXPECT_EQ(FormatShare(0.3), "30%");
  EXPECT_EQ(FormatShare(1), "100%");
  EXPECT_EQ(FormatShare(0.00015), "0.015%");
}

TEST(Text, SharesNeedAPercentSign) {
  for (const char* text : {"0.3", "30", "%", "30%%", "-1%", "1e1%", "nan%"}) {
    EXPECT_FALSE(ParseShare(text).ok()) << text;
  }
  // Values far outside a double's range: a large one is refused, and a small one is 0.
  EXPECT_FALSE(ParseShare(std::string(400, '9') + "%").ok());
  EXPECT_EQ(*ParseShare("0." + std::string(400, '0') + "1%"), 0);
}

TEST(Text, DurationsRoundTrip) {
  EXPECT_EQ(*ParseDuration("20ms"), Millis(20));
  EXPECT_EQ(*ParseDuration("1.5us"), Nanos(1500));
  EXPECT_FALSE(ParseDuration("20").ok());
  EXPECT_EQ(*ParseDuration("1.2345us"), Nanos(1234));
  EXPECT_FALSE(ParseDuration("1.5ns").ok());
  EXPECT_FALSE(ParseDuration("9223372036854775808ns").ok());
  for (int64_t ns : {0ll, 1ll, 1000ll, 1001ll, 20'000'000ll, 10'000'000'000ll}) {
    EXPECT_EQ(*ParseDuration(FormatDuration(Nanos(ns))), Nanos(ns));
  }
}

}  // namespace
}  // namespace gpushare::spec
