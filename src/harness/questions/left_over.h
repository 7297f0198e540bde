// SPDX-License-Identifier: Apache-2.0
// What the tenants without requests make of the time that those with requests leave over.
#ifndef GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_
#define GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_

#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// How often device time is asked for it (Question::fine).
inline constexpr Nanos kLeftOverFine = Micros(50);

// The scenario's key `grace`.
OwnKey GraceKey();
// Whether a case has tenants with requests and tenants without.
bool HasLeftOver(const Case& one);

//   left_over   % of the time; no command of a tenant that serves requests was in flight, nor was one until `grace` before
//   harvest     % of the time left over; device time that the others had in it
void AddLeftOver(const Played& played, std::vector<Figure>* figures);
//   taken       % of the time in which requests were waiting or being served; device time that the others had in it
void AddTaken(const Played& played, std::vector<Figure>* figures);
std::vector<FigureTitle> LeftOverTitles();

// "Best effort had 97.1 % of the time that requests left over. ": the least of all cases; empty without one.
std::string TellLeftOver(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_LEFT_OVER_H_
