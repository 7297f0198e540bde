// SPDX-License-Identifier: Apache-2.0
// Numbers of users and groups, given by name or number.
#ifndef GPUSHARE_BROKER_ACCOUNT_H_
#define GPUSHARE_BROKER_ACCOUNT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gpushare::broker {

// Takes a number such as "1000", or a name that this machine knows. InvalidArgument: the message says what is allowed.
absl::StatusOr<uint32_t> UserId(const std::string& name);
absl::StatusOr<uint32_t> GroupId(const std::string& name);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_ACCOUNT_H_
