// SPDX-License-Identifier: Apache-2.0
#include "books/books.h"

namespace gpushare::books {

Books::Books(const driver::Table& driver, OnCredit on_credit)
    : driver_(driver), on_credit_(std::move(on_credit)), late_(driver, tags_) {}

Answer Books::Reserve(const Payer& payer, uint64_t bytes) {
  quota::Account& account = *payer.account;
  quota::Grant grant = account.TryReserve(bytes);
  if (grant) [[likely]]
    return {};
  if (bytes <= account.limit() && MakeRoom(account)) grant = account.TryReserve(bytes);
  if (grant) return {};
  if (payer.wait != nullptr) {
    grant = (*payer.wait)(account, bytes);
  } else {
    account.CountDenied();
  }
  return grant ? Answer{} : Answer::AtQuota(grant.left);
}

Answer Books::Refused(const Payer& payer) {
  payer.account->CountDenied();
  const uint64_t limit = payer.account->limit(), charged = payer.account->charged();
  return Answer::AtQuota(limit > charged ? limit - charged : 0);
}

bool Books::MakeRoom(quota::Account& account) {
  const uint64_t before = account.charged();
  Settle();
  SettlePools(&account);
  if (graphs_.count() != 0) TrimGraphs(&account);
  return account.charged() < before;
}

uint8_t Books::TagOf(const Payer& payer) {
  CUcontext context = payer.context;
  if (context == nullptr) driver_.CtxGetCurrent(&context);
  return tags_.Of(context);
}

void Books::Ended(const quota::Allocation& allocation) {
  if (allocation.kind == quota::Kind::kPool) {  // the pool has it still
    pools_.Free(allocation.place, allocation.account, allocation.device, allocation.bytes);
    return;
  }
  allocation.account->Release(allocation.bytes);
  if (on_credit_) on_credit_(allocation.device, allocation.bytes);
}

void Books::Restore(quota::PointerTable& table, uint64_t key, const quota::Allocation& allocation) {
  quota::Allocation newer;
  if (table.Insert(key, allocation, &newer) != quota::PointerTable::InsertResult::kReplaced) return;
  static_cast<void>(table.Insert(key, newer));
  Ended(allocation);
}

void Books::Settle() {
  for (const quota::Allocation& allocation : late_.TakeFinished()) Ended(allocation);
  if (pools_.count() != 0) SettlePools(nullptr);
}

}  // namespace gpushare::books
