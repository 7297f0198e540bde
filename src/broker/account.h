// SPDX-License-Identifier: Apache-2.0
// Users and groups by name or number.
#ifndef GPUSHARE_BROKER_ACCOUNT_H_
#define GPUSHARE_BROKER_ACCOUNT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace gpushare::broker {

// "1000", or the name of one that this machine knows. InvalidArgument: what is allowed.
absl::StatusOr<uint32_t> UserId(const std::string& name);
absl::StatusOr<uint32_t> GroupId(const std::string& name);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_ACCOUNT_H_
