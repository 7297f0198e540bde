// SPDX-License-Identifier: Apache-2.0
// Environment variables, read in one place. docs/env.md lists them all.
#ifndef GPUSHARE_BASE_ENV_H_
#define GPUSHARE_BASE_ENV_H_

#include <optional>
#include <string>

namespace gpushare::base {

// The value of `name`; nothing when it is unset or empty.
std::optional<std::string> GetEnv(const char* name);

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_ENV_H_
