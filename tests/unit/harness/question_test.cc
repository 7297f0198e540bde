// SPDX-License-Identifier: Apache-2.0
#include "harness/questions/question.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace gpushare::harness {
namespace {

TEST(Questions, AreFoundByTheirNames) {
  std::set<std::string> names;
  for (const Question* question : Questions()) {
    EXPECT_EQ(FindQuestion(question->name), question);
    EXPECT_TRUE(names.insert(question->name).second) << question->name;
    EXPECT_NE(question->figures, nullptr) << question->name;
    EXPECT_NE(std::string(question->asks), "");
  }
  EXPECT_EQ(names.count("share"), 1u);
  EXPECT_EQ(FindQuestion("speed"), nullptr);
}

TEST(Questions, AFigureHasOneNameInWords) {
  std::map<std::string, std::string> words;
  for (const Question* question : Questions()) {
    for (const FigureTitle& title : question->titles) {
      EXPECT_EQ(words.emplace(title.name, title.words).first->second, title.words) << title.name;
    }
  }
  EXPECT_EQ(FigureWords("worst_over"), "worst window: above a cap");
  EXPECT_EQ(FigureWords("a.b.p99"), "a.b: 99th percentile of latencies");
  EXPECT_EQ(FigureWords("p99"), "");
  EXPECT_EQ(FigureWords("a.speed"), "");
}

}  // namespace
}  // namespace gpushare::harness
