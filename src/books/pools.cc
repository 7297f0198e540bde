// SPDX-License-Identifier: Apache-2.0
#include "books/pools.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace gpushare::books {

using Guard = std::lock_guard<quota::SpinLock>;

void Pools::Pool::Prepare() {
  if (shares.capacity() < shares.size() + kAtOnce) shares.reserve(shares.size() + 2 * kAtOnce);
  if (debts.capacity() < debts.size() + kAtOnce) debts.reserve(debts.size() + 2 * kAtOnce);
}

Pools::Share& Pools::Pool::Of(quota::Account* account, uint32_t owner) {
  for (Share& share : shares) {
    if (share.account == account && share.owner == owner) return share;
  }
  return shares.emplace_back(Share{account, owner, 0, 0});
}

uint64_t Pools::Pool::charged() const {
  uint64_t sum = 0;
  for (const Share& share : shares) sum += share.live + share.idle;
  return sum;
}

uint64_t Pools::Pool::owed() const {
  uint64_t sum = 0;
  for (const Debt& debt : debts) sum += debt.bytes;
  return sum;
}

void Pools::Pool::Forgive(uint64_t bytes, std::vector<Credit>* credits) {
  for (Debt& debt : debts) {
    const uint64_t part = std::min(bytes, debt.bytes);
    if (part == 0) continue;
    debt.bytes -= part;
    bytes -= part;
    credits->push_back({debt.account, debt.owner, part});
  }
  std::erase_if(debts, [](const Debt& debt) { return debt.bytes == 0; });
}

void Pools::Pool::PayDebts() {
  std::erase_if(debts, [this](const Debt& debt) {
    if (debt.account->IsOverdrawn()) return false;
    Of(debt.account, debt.owner).idle += debt.bytes;
    return true;
  });
}

// An account that holds a part of the pool still exists.
void Pools::Pool::Adopt(uint64_t bytes) {
  const auto rank = [this](const Share& share) {
    return std::pair(share.account == last, share.live + share.idle);
  };
  const auto heir = std::max_element(
      shares.begin(), shares.end(),
      [&](const Share& one, const Share& other) { return rank(one) < rank(other); });
  if (heir == shares.end() || heir->live + heir->idle == 0) return;
  if (heir->account->TryReserve(bytes)) {
    heir->account->Commit(bytes);
    heir->idle += bytes;
  } else {
    heir->account->Overdraw(bytes);
    debts.push_back({heir->account, heir->owner, bytes});
  }
}

void Pools::Pool::Clear() {
  shares.clear();
  debts.clear();
  balanced.store(kNever);
  last = nullptr;
  retired.store(false);
  device.store(kUnknown);
  handle.store(nullptr);
}

uint8_t Pools::Find(CUmemoryPool pool) const {
  if (pool == nullptr) return 0;
  for (unsigned i = 1; i <= count(); ++i) {
    if (pools_[i].handle.load(std::memory_order_acquire) == pool) return static_cast<uint8_t>(i);
  }
  return 0;
}

uint8_t Pools::NumberOf(CUmemoryPool pool) {
  uint8_t number = Find(pool);
  if (number != 0) return number;
  const Guard guard(registration_);
  number = Find(pool);
  if (number != 0) return number;
  for (unsigned i = 1; i < pools_.size(); ++i) {
    if (pools_[i].handle.load() != nullptr) continue;
    number = static_cast<uint8_t>(i);
    pools_[i].handle.store(pool, std::memory_order_release);
    count_.store(std::max(count(), number), std::memory_order_release);
    return number;
  }
  return 0;
}

void Pools::Prepare(uint8_t number) {
  const Guard guard(pools_[number].lock);
  pools_[number].Prepare();
}

Pools::Begun Pools::Begin(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes,
                          bool may_be_whole) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  Begun begun{0, false};
  for (const Debt& debt : pool.debts) {
    if (debt.account == account) begun.debt += debt.bytes;
  }
  if (begun.debt > 0) return begun;
  for (Share& share : pool.shares) {
    if (share.account != account || share.owner != owner || share.idle < bytes || !may_be_whole) {
      continue;
    }
    share.idle -= bytes;
    share.live += bytes;
    pool.last = account;
    ++pool.calls;
    ++pool.whole;
    return {0, true};
  }
  pool.Prepare();
  return begun;
}

void Pools::Took(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  pool.Of(account, owner).live += bytes;
  pool.expected -= bytes;
  pool.last = account;
  ++pool.finding;
}

void Pools::MayGrow(uint8_t number) {
  const Guard guard(pools_[number].lock);
  ++pools_[number].finding;
}

void Pools::End(uint8_t number) {
  const Guard guard(pools_[number].lock);
  --pools_[number].finding;
}

void Pools::Free(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes,
                 Awaited* awaited) {
  const Guard guard(pools_[number].lock);
  for (Share& share : pools_[number].shares) {
    if (share.account != account || share.owner != owner) continue;
    const uint64_t part = std::min(bytes, share.live);  // less if the pool was dropped meanwhile
    share.live -= part;
    share.idle += part;
    if (awaited != nullptr && part > 0) *awaited = AwaitedBy(*account);
  }
}

void Pools::Expect(uint8_t number, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  pools_[number].expected += bytes;
  ++pools_[number].calls;
}

Pools::Solitude Pools::BeginAlone(uint8_t number, bool whole, uint64_t expects) {
  const Pool& pool = pools_[number];
  const Guard guard(pools_[number].lock);
  const uint64_t at_it = pool.whole - pool.answered.load(std::memory_order_acquire);
  const uint64_t mine = whole ? 1 : 0;
  const bool alone = at_it == mine && pool.finding == mine && pool.expected == expects;
  return {alone ? pool.calls : 0};
}

bool Pools::IsAlone(uint8_t number, const Solitude& since) {
  const Guard guard(pools_[number].lock);
  return since.calls != 0 && pools_[number].calls == since.calls;
}

Pools::Reading Pools::BeginReading(uint8_t number) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  const Reading reading{pool.handle.load(), ++pool.version};
  if (reading.pool != nullptr) ++pool.readers;
  return reading;
}

void Pools::EndReading(uint8_t number) {
  const Guard guard(pools_[number].lock);
  --pools_[number].readers;
}

bool Pools::Reconcile(uint8_t number, Reading* reading, uint64_t reserved, uint64_t* claim,
                      std::vector<Credit>* credits) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  if (pool.version != reading->version) {
    reading->version = pool.version;
    return false;
  }
  credits->reserve(pool.shares.size() + pool.debts.size());
  pool.shares.reserve(pool.shares.size() + pool.debts.size());  // paid debts become shares
  pool.debts.reserve(pool.debts.size() + 1);
  --pool.readers;
  pool.PayDebts();
  uint64_t charged = pool.charged();
  if (const uint64_t owed = pool.owed(); charged + owed > reserved) {
    pool.Forgive(std::min(owed, charged + owed - reserved), credits);
  }
  const uint64_t owed = pool.owed();
  if (claim != nullptr) {
    // Expected bytes may be in the driver's figure already or not, so they count as paid and never as excess.
    pool.expected -= *claim;
    const uint64_t paid = charged + owed + pool.expected;
    *claim = reserved > paid ? reserved - paid : 0;
    pool.expected += *claim;
  } else if (pool.finding == 0 && pool.expected == 0 && charged + owed < reserved) {
    pool.Adopt(reserved - charged - owed);
    charged = pool.charged();
  }
  const bool missing = charged < reserved || !pool.debts.empty();
  uint64_t excess = charged > reserved ? charged - reserved : 0;
  // Take from the account with the most idle memory: what the driver gave up was freed lately, and is not the rest of a
  // granule.
  while (excess > 0) {
    const auto most = std::max_element(
        pool.shares.begin(), pool.shares.end(),
        [](const Share& one, const Share& other) { return one.idle < other.idle; });
    if (most == pool.shares.end() || most->idle == 0) break;
    const uint64_t part = std::min(excess, most->idle);
    most->idle -= part;
    excess -= part;
    credits->push_back({most->account, most->owner, part});
  }
  pool.balanced.store(missing || excess > 0 ? kNever : reserved, std::memory_order_release);
  // An account without a share here may be destroyed later, so it must not be kept.
  std::erase_if(pool.shares, [](const Share& share) { return share.live + share.idle == 0; });
  return true;
}

void Pools::Pay(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  pool.Of(account, owner).idle += claim;
  pool.expected -= claim;
}

void Pools::Owe(uint8_t number, quota::Account* account, uint32_t owner, uint64_t claim) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  pool.debts.push_back({account, owner, claim});
  pool.expected -= claim;
}

void Pools::Leave(uint8_t number, uint64_t claim) {
  const Guard guard(pools_[number].lock);
  pools_[number].expected -= claim;
}

uint64_t Pools::DebtOf(uint8_t number, const quota::Account* account) {
  const Guard guard(pools_[number].lock);
  uint64_t bytes = 0;
  for (const Debt& debt : pools_[number].debts) {
    if (account == nullptr || debt.account == account) bytes += debt.bytes;
  }
  return bytes;
}

bool Pools::Forget(uint8_t number) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  if (!pool.retired.load() || pool.readers > 0 ||
      pool.charged() + pool.owed() + pool.expected > 0) {
    return false;
  }
  pool.Clear();
  return true;
}

std::vector<Pools::Credit> Pools::Drop(uint8_t number) {
  std::vector<Credit> credits;
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  for (const Share& share : pool.shares) {
    const uint64_t bytes = share.live + share.idle;
    if (bytes > 0) credits.push_back({share.account, share.owner, bytes});
  }
  for (const Debt& debt : pool.debts) credits.push_back({debt.account, debt.owner, debt.bytes});
  ++pool.version;
  pool.Clear();
  return credits;
}

uint64_t Pools::IdleOf(uint8_t number, const quota::Account* account, uint32_t owner) {
  const Guard guard(pools_[number].lock);
  for (const Share& share : pools_[number].shares) {
    if (share.account == account && share.owner == owner) return share.idle;
  }
  return 0;
}

bool Pools::HasIdle(uint8_t number, const quota::Account* account) {
  const Guard guard(pools_[number].lock);
  for (const Share& share : pools_[number].shares) {
    if (share.idle > 0 && (account == nullptr || share.account == account)) return true;
  }
  return false;
}

uint64_t Pools::BytesOf(const quota::Account* account) {
  uint64_t bytes = 0;
  for (unsigned i = 1; i <= count(); ++i) {
    Pool& pool = pools_[i];
    const Guard guard(pool.lock);
    for (const Share& share : pool.shares) {
      if (share.account == account) bytes += share.live + share.idle;
    }
    for (const Debt& debt : pool.debts) {
      if (debt.account == account) bytes += debt.bytes;
    }
  }
  return bytes;
}

}  // namespace gpushare::books
