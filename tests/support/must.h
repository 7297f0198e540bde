// SPDX-License-Identifier: Apache-2.0
// The value of a StatusOr; without one the test program ends.
//
//   const Runtime runtime = Must(Runtime::Create());
#ifndef GPUSHARE_TESTS_SUPPORT_MUST_H_
#define GPUSHARE_TESTS_SUPPORT_MUST_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "absl/status/statusor.h"

namespace gpushare {

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) {
    ADD_FAILURE() << value.status();
    std::abort();
  }
  return *std::move(value);
}

}  // namespace gpushare

#endif  // GPUSHARE_TESTS_SUPPORT_MUST_H_
