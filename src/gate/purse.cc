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

// The limit for `ns` of credit, whatever the launch number is.
uint64_t LimitOf(uint64_t ns) { return ns << TenantPage::kLaunchBits | TenantPage::kLaunchMask; }

}  // namespace

bool Pocket::Claim(Pocket& pocket, uint64_t before) noexcept {
  return pocket.purse->Claim(pocket, before);
}

// Whether everything in `spent` is paid. After credit was taken out, the thread's last launch is paid if it was included in the
// value read then, or if credit was added since. If not, the thread is about to learn in Claim() that it is not paid.
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
    // The thread does not call Asked(), which would have reset the sum.
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

// Whether no thread can be spending from the pocket now: it is the calling thread's, or its thread has left it.
bool Purse::IsAtRest(const Pocket& pocket) { return pocket.IsOf(ThisThread()) || pocket.IsLeft(); }

// Takes all credit out and returns how much it was. A launch that the pocket's thread makes at the same time is included in
// `seen`, or is not paid.
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
  // A launch that is still waiting in Claim() to learn that it is not paid does not get paid here either.
  const uint64_t spent = pocket.spent.load(std::memory_order_acquire);
  if (spent <= limit + 1) pocket.seen = spent;
  const uint64_t all = TenantPage::CreditOf(limit), used = TenantPage::CreditOf(pocket.seen);
  pocket.limit.store(LimitOf(used), std::memory_order_release);
  // If all credit was spent meanwhile and the launch number wrapped around, one nanosecond more than `all` was used.
  return std::max(all, used) - used;
}

// From here on the pocket's thread finds no credit; or its last spending is visible behind the barrier; or it waits in Claim()
// for the lock, which the caller holds.
bool Purse::StopSpending() {
  Pocket* const pocket = holder();
  if (pocket == nullptr || IsAtRest(*pocket)) return false;
  const uint64_t limit = pocket->limit.load(std::memory_order_relaxed);
  if (TenantPage::CreditOf(limit) <= TenantPage::CreditOf(Spent(*pocket))) return false;
  pocket->limit.store(0, std::memory_order_relaxed);
  stopped_at_ = limit;
  return true;
}

// A launch that waits in Claim() counts as paid after this.
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
  // Nobody takes credit out at the same time, since the lock is held.
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
  // If the pocket's thread still spends from it now, Claim() tells it that the launch is not paid.
  const uint64_t left = Empty(*pocket);
  const uint64_t spent = Spent(*pocket);
  holder_.store(nullptr, std::memory_order_release);
  // A plain store is enough, since nobody can spend from an empty page.
  page_.credit.store(left << TenantPage::kLaunchBits | TenantPage::LaunchOf(spent),
                     std::memory_order_release);
  if (!ended) wanted_ = std::min(wanted_ * 2, kAtMost);
  in_a_row_ = 0;
}

// Only the pocket that has the credit needs the new price list. An empty pocket pays for nothing, and gets the latest list
// together with the credit.
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

// Makes the sums of a pocket small again. To be called only if its thread cannot launch meanwhile, because it is the caller.
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
  // Other threads may be spending from the page right now; what they have spent stays spent.
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
