// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_BOOKS_AWAITED_H_
#define GPUSHARE_BOOKS_AWAITED_H_

#include <new>
#include <optional>

#include "quota/ledger.h"

namespace gpushare::books {

// The requests that wait for memory of an account, if any do. Ask while something is charged to it: as soon as that is
// credited, the account may end, and only these may still be told. Without host memory they find out at their next look.
using Awaited = std::optional<quota::Waiters>;

inline Awaited AwaitedBy(const quota::Account& account) try {
  return account.is_awaited() ? Awaited(account.AwaitedBy()) : std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_AWAITED_H_
