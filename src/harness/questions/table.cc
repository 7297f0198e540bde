// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "harness/questions/question.h"

namespace gpushare::harness {

const std::vector<const Question*>& Questions() {
  static const std::vector<const Question*> questions = {
#define GPUSHARE_QUESTION(Name) &Name##Question(),
#include "harness/questions/questions.def"
#undef GPUSHARE_QUESTION
  };
  return questions;
}

const Question* FindQuestion(std::string_view name) {
  for (const Question* question : Questions()) {
    if (name == question->name) return question;
  }
  return nullptr;
}

std::string FigureWords(const std::string& figure) {
  const size_t point = figure.rfind('.');
  for (const Question* question : Questions()) {
    for (const FigureTitle& title : question->titles) {
      if (title.name == figure) return title.words;
      if (point == std::string::npos || title.name != figure.substr(point)) continue;
      return absl::StrCat(figure.substr(0, point), ": ", title.words);
    }
  }
  return "";
}

}  // namespace gpushare::harness
