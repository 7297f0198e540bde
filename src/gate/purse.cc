// SPDX-License-Identifier: Apache-2.0
#include "gate/purse.h"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "base/process_barrier.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// Whatever the launches are numbered.
uint64_t LimitOf(uint64_t ns) { return ns << TenantPage::kLaunchBits | TenantPage::kLaunchMask; }

}  // namespace

bool Pocket::Claim(Pocket& pocket, uint64_t before) noexcept {
  return pocket.purse->Claim(pocket, before);
}

// What its thread has just spent, after something was taken out, is paid when it was in what was read then, or when there
// has been more since. Else it waits to be told that it is not.
bool Purse::Paid(const Pocket& pocket, uint64_t spent) {
  return spent <= pocket.limit.load(std::memory_order_relaxed) + 1;
}

bool Purse::Claim(Pocket& pocket, uint64_t before) noexcept {
  const base::MutexLock lock(&mutex_);
  if (Paid(pocket, pocket.spent.load(std::memory_order_relaxed))) return true;
  pocket.spent.store(before, std::memory_order_release);
  return false;
}

uint64_t Purse::Spent(const Pocket& pocket) {
  const uint64_t spent = pocket.spent.load(std::memory_order_acquire);
  return Paid(pocket, spent) ? spent : pocket.seen;
}

uint64_t Purse::Look() const {
  const Pocket* const pocket = holder();
  if (pocket == nullptr) return page_.credit.load(std::memory_order_acquire);
  const uint64_t spent = Spent(*pocket), used = TenantPage::CreditOf(spent);
  const uint64_t limit = TenantPage::CreditOf(pocket->limit.load(std::memory_order_relaxed));
  return (std::max(limit, used) - used) << TenantPage::kLaunchBits | TenantPage::LaunchOf(spent);
}

void Purse::Add(uint64_t ns) {
  Pocket* pocket = holder();
  if (pocket != nullptr &&
      TenantPage::CreditOf(pocket->limit.load(std::memory_order_relaxed)) + ns >
          TenantPage::kMostCredit) {
    // Its thread asks by other ways than Asked(), where the sum would have been made small again.
    if (pocket->IsOf(ThisThread())) {
      Rebase(*pocket);
    } else {
      Share();
      pocket = holder();
    }
  }
  if (pocket == nullptr) {
    page_.Add(ns);
    return;
  }
  const uint64_t limit = pocket->limit.load(std::memory_order_relaxed);
  pocket->limit.store(LimitOf(TenantPage::CreditOf(limit) + ns), std::memory_order_release);
}

// Nobody spends from it meanwhile: it is the calling thread's, or its thread has ended.
bool Purse::IsAtRest(const Pocket& pocket) { return pocket.IsOf(ThisThread()) || pocket.IsLeft(); }

// Takes all out; how much that was. What its thread launches at the same time is in `seen`, or is not paid.
uint64_t Purse::Empty(Pocket& pocket) {
  uint64_t limit = std::exchange(stopped_at_, 0);
  if (limit == 0) {
    limit = pocket.limit.load(std::memory_order_relaxed);
    if (TenantPage::CreditOf(limit) <= TenantPage::CreditOf(Spent(pocket))) return 0;
    if (!IsAtRest(pocket)) {
      pocket.limit.store(0, std::memory_order_relaxed);
      base::ProcessBarrier();
    }
  }
  // One that still waits to be told that it is not paid is not paid by this either.
  const uint64_t spent = pocket.spent.load(std::memory_order_acquire);
  if (spent <= limit + 1) pocket.seen = spent;
  const uint64_t all = TenantPage::CreditOf(limit), used = TenantPage::CreditOf(pocket.seen);
  pocket.limit.store(LimitOf(used), std::memory_order_release);
  // Who has spent all meanwhile, with the last of the numbers, has spent a nanosecond more than there was.
  return std::max(all, used) - used;
}

// From here on its thread finds nothing, or what it has spent is seen behind the barrier, or it waits in Claim() for whoever
// stops it, who holds the lock.
bool Purse::StopSpending() {
  Pocket* const pocket = holder();
  if (pocket == nullptr || IsAtRest(*pocket)) return false;
  const uint64_t limit = pocket->limit.load(std::memory_order_relaxed);
  if (TenantPage::CreditOf(limit) <= TenantPage::CreditOf(Spent(*pocket))) return false;
  pocket->limit.store(0, std::memory_order_relaxed);
  stopped_at_ = limit;
  return true;
}

// Whoever waits in Claim() has been paid for.
void Purse::LetSpend() {
  if (stopped_at_ == 0) return;
  holder()->limit.store(std::exchange(stopped_at_, 0), std::memory_order_release);
}

uint64_t Purse::TakeAll() {
  Pocket* const pocket = holder();
  return pocket == nullptr ? page_.TakeAll() : Empty(*pocket);
}

bool Purse::Spend(uint64_t ns, uint32_t* launch) {
  Share();
  Pocket* const pocket = holder();
  if (pocket == nullptr) return page_.Spend(ns, launch);
  uint64_t word;
  // Nobody takes anything out at the same time.
  if (ns > TenantPage::kMostCredit || !pocket->Spend(ns << TenantPage::kLaunchBits, &word)) {
    return false;
  }
  *launch = TenantPage::LaunchOf(word);
  return true;
}

void Purse::Share() {
  Pocket* const pocket = holder();
  if (pocket == nullptr) return;
  if (pocket->IsOf(ThisThread()) && base::HasProcessBarrier()) return;
  const bool ended = pocket->IsLeft();
  // What its thread still spends from it is not there any more: Claim().
  const uint64_t left = Empty(*pocket);
  const uint64_t spent = Spent(*pocket);
  holder_.store(nullptr, std::memory_order_release);
  // Nobody spends from an empty page.
  page_.credit.store(left << TenantPage::kLaunchBits | TenantPage::LaunchOf(spent),
                     std::memory_order_release);
  if (!ended) wanted_ = std::min(wanted_ * 2, kAtMost);
  in_a_row_ = 0;
}

// A pocket in which there is nothing buys nothing, at whatever prices: it gets the latest with the credit.
void Purse::PricesChanged() {
  ++prices_;
  if (Pocket* const pocket = holder()) pocket->prices.store(prices_, std::memory_order_release);
}

std::shared_ptr<Pocket> Purse::PocketOf(const void* thread) {
  const std::shared_ptr<Pocket>* left = nullptr;
  for (const auto& pocket : pockets_) {
    if (pocket->IsOf(thread)) return pocket;
    if (pocket.get() != holder() && pocket->IsLeft()) left = &pocket;
  }
  if (left != nullptr) {
    (*left)->thread.store(thread, std::memory_order_relaxed);
    return *left;
  }
  if (pockets_.size() >= kMostPockets) return nullptr;
  pockets_.push_back(std::make_shared<Pocket>(this, thread));
  return pockets_.back();
}

// Its thread's, which launches nothing meanwhile.
void Purse::Rebase(Pocket& pocket) {
  const uint64_t spent = pocket.spent.load(std::memory_order_relaxed);
  const uint64_t limit = pocket.limit.load(std::memory_order_relaxed);
  const uint64_t less = std::min(spent, limit) & ~uint64_t{TenantPage::kLaunchMask};
  pocket.spent.store(spent - less, std::memory_order_release);
  pocket.limit.store(limit - less, std::memory_order_release);
}

Pocket* Purse::Asked() noexcept {
  const void* const thread = ThisThread();
  Pocket* pocket = holder();
  if (pocket != nullptr && pocket->IsOf(thread)) {
    if (TenantPage::CreditOf(pocket->spent.load(std::memory_order_relaxed)) > kMuch)
      Rebase(*pocket);
    if (++in_a_row_ >= wanted_) {
      in_a_row_ = 0;
      wanted_ = std::max(wanted_ / 2, kAtFirst);
    }
    return pocket;
  }
  in_a_row_ = last_ == thread ? in_a_row_ + 1 : 1;
  last_ = thread;
  if (pocket != nullptr || in_a_row_ < wanted_ || !base::HasProcessBarrier()) return nullptr;
  try {
    std::shared_ptr<Pocket> found = PocketOf(thread);
    if (found == nullptr) return nullptr;
    held_ = std::move(found);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  pocket = held_.get();
  // Others may be spending: what they have got is theirs.
  const uint64_t word = page_.credit.fetch_and(TenantPage::kLaunchMask, std::memory_order_acq_rel);
  pocket->prices.store(++prices_, std::memory_order_release);
  pocket->seen = TenantPage::LaunchOf(word);
  pocket->spent.store(pocket->seen, std::memory_order_relaxed);
  pocket->limit.store(LimitOf(TenantPage::CreditOf(word)), std::memory_order_release);
  holder_.store(pocket, std::memory_order_release);
  in_a_row_ = 0;
  return pocket;
}

}  // namespace gpushare::gate
