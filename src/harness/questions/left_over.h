// SPDX-License-Identifier: Apache-2.0
// How much the tenants without requests get of the time that those with requests leave over.
#ifndef GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_
#define GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_

#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// The sampling interval that this needs (Question::fine).
inline constexpr Nanos kLeftOverFine = Micros(50);

// The scenario's key `grace`.
OwnKey GraceKey();
// Whether a case has tenants with requests and tenants without.
bool HasLeftOver(const Case& one);

//   left_over   % of the time in which no command of a request-serving tenant was in flight, nor had been within `grace`
//   harvest     % of the time left over that the other tenants used
void AddLeftOver(const Played& played, std::vector<Figure>* figures);
//   taken       % of the time in which requests were waiting or being served that the other tenants used
void AddTaken(const Played& played, std::vector<Figure>* figures);
std::vector<FigureTitle> LeftOverTitles();

// "Best effort had 97.1 % of the time that requests left over. ", for the worst case; empty without such figures.
std::string TellLeftOver(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_
