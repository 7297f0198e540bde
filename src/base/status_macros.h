// SPDX-License-Identifier: Apache-2.0
// Early return on a Status that is not OK. (Abseil's own macros are newer than the oldest Abseil that
// gpushare builds with.)
#ifndef GPUSHARE_BASE_STATUS_MACROS_H_
#define GPUSHARE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GPUSHARE_RETURN_IF_ERROR(expr)                    \
  do {                                                    \
    if (::absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                     \
    }                                                     \
  } while (false)

#define GPUSHARE_CONCAT_INNER_(a, b) a##b
#define GPUSHARE_CONCAT_(a, b) GPUSHARE_CONCAT_INNER_(a, b)

// GPUSHARE_ASSIGN_OR_RETURN(auto x, MakeX());
#define GPUSHARE_ASSIGN_OR_RETURN(lhs, expr) \
  GPUSHARE_ASSIGN_OR_RETURN_(GPUSHARE_CONCAT_(status_or_, __LINE__), lhs, expr)
#define GPUSHARE_ASSIGN_OR_RETURN_(holder, lhs, expr)  \
  auto holder = (expr);                                \
  if (!holder.ok()) return std::move(holder).status(); \
  lhs = *std::move(holder)

#endif  // GPUSHARE_BASE_STATUS_MACROS_H_
