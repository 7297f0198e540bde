// SPDX-License-Identifier: Apache-2.0
// Checks shared by the questions about shares.
#ifndef GPUSHARE_HARNESS_QUESTIONS_SHARES_H_
#define GPUSHARE_HARNESS_QUESTIONS_SHARES_H_

#include <string>

#include "harness/scenario.h"

namespace gpushare::harness {

// Empty if each tenant asks for a share and the shares add up to 1; else what is wrong, naming the question.
std::string CheckShares(const Case& one, const char* question);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_SHARES_H_
