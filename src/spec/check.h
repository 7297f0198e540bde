// SPDX-License-Identifier: Apache-2.0
// Whether a spec's fields are within their ranges, each on its own and with one another. Pure functions.
#ifndef GPUSHARE_SPEC_CHECK_H_
#define GPUSHARE_SPEC_CHECK_H_

#include "absl/status/status.h"
#include "gpushare/c/gpushare.h"

namespace gpushare::spec {

// Each field on its own.
absl::Status CheckFields(const gpushare_spec& spec);
// The cap has memory beside it, and is not less.
absl::Status CheckMemoryCap(const gpushare_spec& spec);
// Unimplemented: valid, and not offered yet.
absl::Status CheckOffered(const gpushare_spec& spec);

}  // namespace gpushare::spec

#endif  // GPUSHARE_SPEC_CHECK_H_
