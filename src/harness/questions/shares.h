// SPDX-License-Identifier: Apache-2.0
// What questions have in common that ask for shares.
#ifndef GPUSHARE_HARNESS_QUESTIONS_SHARES_H_
#define GPUSHARE_HARNESS_QUESTIONS_SHARES_H_

#include <string>

#include "harness/scenario.h"

namespace gpushare::harness {

// Whether each tenant asks for one and they are all there is; else what is wrong, for the question of that name.
std::string CheckShares(const Case& one, const char* question);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_QUESTIONS_SHARES_H_
