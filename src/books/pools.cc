// SPDX-License-Identifier: Apache-2.0
#include "books/pools.h"

#include <algorithm>
#include <mutex>

namespace gpushare::books {

using Guard = std::lock_guard<quota::SpinLock>;

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

uint8_t Pools::NumberOf(CUmemoryPool pool) {
  const auto find = [&]() -> uint8_t {
    for (unsigned i = 1; i <= count(); ++i) {
      if (pools_[i].handle.load(std::memory_order_acquire) == pool) return static_cast<uint8_t>(i);
    }
    return 0;
  };
  uint8_t number = find();
  if (number != 0) return number;
  const Guard guard(registration_);
  number = find();
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

CUmemoryPool Pools::HandleOf(uint8_t number) { return pools_[number].handle.load(); }

int Pools::DeviceOf(uint8_t number) {
  const Guard guard(pools_[number].lock);
  return pools_[number].device;
}

void Pools::SetDevice(uint8_t number, int device) {
  const Guard guard(pools_[number].lock);
  pools_[number].device = device;
}

uint64_t Pools::TakeIdle(uint8_t number, quota::Account* account, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  uint64_t taken = 0;
  for (Share& share : pools_[number].shares) {
    if (share.account != account) continue;
    const uint64_t part = std::min(bytes - taken, share.idle);
    share.idle -= part;
    taken += part;
  }
  pools_[number].expected += taken;
  return taken;
}

void Pools::AddIdle(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  pools_[number].Of(account, owner).idle += bytes;
}

void Pools::AddLive(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  pools_[number].Of(account, owner).live += bytes;
}

void Pools::Free(uint8_t number, quota::Account* account, uint32_t owner, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  Share& share = pools_[number].Of(account, owner);
  const uint64_t part = std::min(bytes, share.live);  // less when the pool was dropped meanwhile
  share.live -= part;
  share.idle += part;
}

void Pools::Expect(uint8_t number, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  pools_[number].expected += bytes;
}

void Pools::ExpectNoMore(uint8_t number, uint64_t bytes) {
  const Guard guard(pools_[number].lock);
  pools_[number].expected -= bytes;
}

void Pools::Changed(uint8_t number) {
  const Guard guard(pools_[number].lock);
  ++pools_[number].version;
}

uint64_t Pools::Version(uint8_t number) {
  const Guard guard(pools_[number].lock);
  return pools_[number].version;
}

bool Pools::Reconcile(uint8_t number, uint64_t version, uint64_t reserved, uint64_t* missing,
                      std::vector<Credit>* credits) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  if (pool.version != version) return false;
  const uint64_t charged = pool.charged();
  // What is expected may be in the driver already, or not yet: it makes nothing missing, and nothing too much.
  const uint64_t paid = charged + pool.expected;
  *missing = reserved > paid ? reserved - paid : 0;
  uint64_t excess = charged > reserved ? charged - reserved : 0;
  // Of who has most of it: what is given up was freed lately, and not the rest of a granule.
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
  // Who has nothing left may be gone tomorrow.
  std::erase_if(pool.shares, [](const Share& share) { return share.live + share.idle == 0; });
  return true;
}

void Pools::Retire(uint8_t number) {
  const Guard guard(pools_[number].lock);
  pools_[number].retired = true;
}

bool Pools::Retired(uint8_t number) {
  const Guard guard(pools_[number].lock);
  return pools_[number].retired;
}

bool Pools::Forget(uint8_t number) {
  Pool& pool = pools_[number];
  const Guard guard(pool.lock);
  if (!pool.retired || pool.charged() + pool.expected > 0) return false;
  pool.retired = false;
  pool.device = -1;
  pool.shares.clear();
  pool.handle.store(nullptr);
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
  ++pool.version;
  pool.shares.clear();
  pool.retired = false;
  pool.device = -1;
  pool.handle.store(nullptr);
  return credits;
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
    for (const Share& share : SharesOf(static_cast<uint8_t>(i))) {
      if (share.account == account) bytes += share.live + share.idle;
    }
  }
  return bytes;
}

std::vector<Pools::Share> Pools::SharesOf(uint8_t number) {
  const Guard guard(pools_[number].lock);
  return pools_[number].shares;
}

}  // namespace gpushare::books
