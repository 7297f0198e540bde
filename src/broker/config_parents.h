// SPDX-License-Identifier: Apache-2.0
// Which tenants of a configuration are within which: whether that is possible, and whether it fits.
#ifndef GPUSHARE_BROKER_CONFIG_PARENTS_H_
#define GPUSHARE_BROKER_CONFIG_PARENTS_H_

#include <vector>

#include "absl/status/status.h"
#include "broker/config.h"
#include "yaml/reader.h"

namespace gpushare::broker {

// Where a tenant and its key `parent` are in the file.
struct TenantLines {
  int tenant = 1, parent = 1;
};

// `lines`: one for each of the tenants. Unimplemented: a parent has a parent. InvalidArgument: a parent is not listed or has no
// memory quota, parents form a circle, or a child has more than its parent on some GPU.
absl::Status CheckParents(const yaml::Reader& in, const std::vector<TenantConfig>& tenants,
                          const std::vector<TenantLines>& lines);

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_CONFIG_PARENTS_H_
