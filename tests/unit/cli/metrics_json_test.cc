// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/metrics_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpushare::cli {
namespace {

TEST(MetricsJson, HasEverySampleOfTheText) {
  const absl::StatusOr<std::string> text = MetricsJson(
      "# HELP a_bytes What a tenant holds.\n"
      "# TYPE a_bytes gauge\n"
      "a_bytes{tenant=\"x\",team=\"a \\\"b\\\" \\\\ c\\nd, }\"} 85899345920\n"
      "a_bytes{tenant=\"y\"} NaN\n"
      "# HELP b_total Of all.\n"
      "# TYPE b_total counter\n"
      "b_total 0.25\n");
  ASSERT_TRUE(text.ok()) << text.status();
  const auto families = nlohmann::json::parse(*text);
  ASSERT_EQ(families.size(), 2u);
  EXPECT_EQ(families[0]["name"], "a_bytes");
  EXPECT_EQ(families[0]["type"], "gauge");
  EXPECT_EQ(families[0]["help"], "What a tenant holds.");
  const auto& samples = families[0]["samples"];
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0]["labels"]["tenant"], "x");
  EXPECT_EQ(samples[0]["labels"]["team"], "a \"b\" \\ c\nd, }");
  EXPECT_EQ(samples[0]["value"], 85899345920);
  EXPECT_TRUE(samples[1]["value"].is_null());
  EXPECT_EQ(families[1]["samples"][0]["name"], "b_total");
  EXPECT_EQ(families[1]["samples"][0]["value"], 0.25);
  EXPECT_EQ(MetricsJson("").value(), "[]\n");
  for (const char* wrong : {"a 1\n", "# TYPE a gauge\na\n", "# TYPE a gauge\na{b=\"c 1\n",
                            "# TYPE a gauge\na{b=\"c\" 1\n", "# TYPE a gauge\na x\n"}) {
    EXPECT_FALSE(MetricsJson(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace gpushare::cli
