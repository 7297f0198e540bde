// SPDX-License-Identifier: Apache-2.0
#include "books/books.h"

namespace gpushare::books {

Books::Books(const driver::Table& driver, OnCredit on_credit, const Options& options)
    : driver_(driver),
      on_credit_(std::move(on_credit)),
      clock_(options.clock != nullptr ? *options.clock : base::RealClock()),
      tell_(options.tell),
      free_elsewhere_(options.free_elsewhere),
      page_(options.page),
      pool_frees_(driver, tags_, clock_, options.follow),
      late_(driver, tags_, clock_) {}

Answer Books::Reserve(const Payer& payer, uint64_t bytes) {
  quota::Account& account = *payer.account;
  const bool in_line = account.is_awaited() && payer.room != nullptr && payer.room->waits();
  quota::Grant grant;
  if (!in_line) [[likely]]
    grant = account.TryReserve(bytes);
  if (grant) [[likely]]
    return {};
  if (bytes <= account.most()) {
    MakeRoom(account);
    if (!in_line) grant = account.TryReserve(bytes);
  }
  if (!grant && payer.room != nullptr) {
    grant = payer.room->Reserve(account, bytes);
  } else if (!grant) {
    if (account.Grow(bytes)) grant = account.TryReserve(bytes);
    if (!grant) account.CountDenied();
  }
  return grant ? Answer{} : Answer::AtQuota(grant.left);
}

Answer Books::Refused(const Payer& payer) {
  payer.account->CountDenied();
  const uint64_t limit = payer.account->most(), charged = payer.account->charged();
  return Answer::AtQuota(limit > charged ? limit - charged : 0);
}

void Books::MakeRoom(quota::Account& account) { GiveUpIdle(&account); }

void Books::GiveUpIdle(const quota::Account* account) {
  Settle();
  SettlePools(account);
  if (graphs_.count() != 0) TrimGraphs(account);
}

uint8_t Books::TagOf(const Payer& payer) {
  CUcontext context = payer.context;
  if (context == nullptr) driver_.CtxGetCurrent(&context);
  return tags_.Of(context);
}

void Books::Ended(const quota::Allocation& allocation, Awaited* awaited) {
  if (allocation.kind == quota::Kind::kPool) {  // the pool still has the memory
    pools_.Free(allocation.place, allocation.account, allocation.device, allocation.bytes, awaited);
    return;
  }
  allocation.account->Release(allocation.bytes);
  if (allocation.device != kNobody && on_credit_) on_credit_(allocation.device, allocation.bytes);
}

void Books::NeverGiven(const quota::Allocation& allocation) {
  if (allocation.kind == quota::Kind::kPool) return Ended(allocation);
  allocation.account->Release(allocation.bytes);
}

void Books::Ended(const LateFrees::Free& free) {
  if (free.memory) {
    Finish(physical_, physical_.Unuse(free.memory));
  } else {
    Ended(free.allocation);
  }
}

void Books::Restore(quota::PointerTable& table, uint64_t key, const quota::Allocation& allocation) {
  quota::Allocation newer;
  if (table.Insert(key, allocation, &newer) != quota::PointerTable::InsertResult::kReplaced) return;
  static_cast<void>(table.Insert(key, newer));
  Ended(allocation);
}

void Books::Settle() {
  // Programs query the free memory often, and most have no late frees. So not even an empty list is made.
  if (!late_.empty()) {
    for (const LateFrees::Free& free : late_.TakeFinished()) Ended(free);
  }
  pool_frees_.Settle();
  if (physical_.has_stranded()) CreditClosed();
  if (pools_.count() != 0) SettlePools(nullptr);
  if (graphs_.count() != 0) SettleGraphs();
}

}  // namespace gpushare::books
