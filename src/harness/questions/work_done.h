// SPDX-License-Identifier: Apache-2.0
// The work that all tenants did together, for questions with several tenants.
#ifndef GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_
#define GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_

#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// work: % of what the same tenants do ungated; no figure if these were not played or did nothing. Work is the time that kernels
// take on an otherwise idle device, so with kernels side by side it can exceed the elapsed time.
void AddWorkDone(const Played& played, std::vector<Figure>* figures);
FigureTitle WorkDoneTitle();

// "Together the tenants did 97.1 % of the work that they do ungated. ", for the worst case; empty without such figures.
std::string TellWorkDone(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_
