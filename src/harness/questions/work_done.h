// SPDX-License-Identifier: Apache-2.0
// What all tenants did together, for the questions that let tenants play side by side.
#ifndef GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_
#define GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_

#include <string>
#include <vector>

#include "harness/questions/question.h"

namespace gpushare::harness {

// work: % of what the same tenants do ungated; nothing where these were not played, or did nothing. Work is what kernels take
// with the device to themselves, so that running side by side makes it more than the time is long.
void AddWorkDone(const Played& played, std::vector<Figure>* figures);
FigureTitle WorkDoneTitle();

// "Together the tenants did 97.1 % of the work that they do ungated. ": the least of all cases; empty without one.
std::string TellWorkDone(const report::ScenarioReport& scenario, size_t method);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_WORK_DONE_H_
