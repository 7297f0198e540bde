// SPDX-License-Identifier: Apache-2.0
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "books/books.h"

namespace gpushare::books {

uint64_t Books::BytesOf(const quota::Account* account) {
  uint64_t bytes = arrays_.BytesOf(account) + late_.BytesOf(account) + pools_.BytesOf(account) +
                   graphs_.BytesOf(account);
  pointers_.ForEach([&](uint64_t, const quota::Allocation& one) {
    if (one.account == account && one.kind != quota::Kind::kPool) bytes += one.bytes;
  });
  for (const SharedMemory* memory : {&physical_, &external_}) {
    memory->ForEach([&](const SharedMemory::Object& object) {
      if (object.charge.account == account) bytes += object.charge.bytes;
    });
  }
  return bytes;
}

absl::Status Books::CheckInvariants() {
  std::map<quota::Account*, uint64_t> accounts;
  pointers_.ForEach([&](uint64_t, const quota::Allocation& one) { accounts[one.account] = 0; });
  uint64_t empty = 0;
  for (const SharedMemory* memory : {&physical_, &external_}) {
    memory->ForEach([&](const SharedMemory::Object& object) {
      if (object.charge.account != nullptr) accounts[object.charge.account] = 0;
      if (object.references + object.uses + object.leaving + object.exports == 0) ++empty;
    });
  }
  if (empty != 0) {
    return absl::InternalError(
        absl::StrCat("books: nobody holds ", empty, " objects of shared memory"));
  }
  for (auto& [account, bytes] : accounts) {
    GPUSHARE_RETURN_IF_ERROR(account->CheckInvariants());
    bytes = BytesOf(account);
    if (bytes > account->Usage().committed) {
      return absl::InternalError(absl::StrCat("books: ", bytes,
                                              " bytes are listed for an account that holds ",
                                              account->Usage().committed));
    }
  }
  return absl::OkStatus();
}

}  // namespace gpushare::books
