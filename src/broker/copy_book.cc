// SPDX-License-Identifier: Apache-2.0
#include "broker/copy_book.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace gpushare::broker {
namespace {

constexpr double kMostRate = 1e18;  // bytes a second

}  // namespace

void CopyBook::SetLimits(const spec::Limits& limits, Time now, Changed& changed) {
  const double rates[] = {limits.h2d_bytes_per_s, limits.d2h_bytes_per_s};
  for (size_t i = 0; i < ways_.size(); ++i) {
    const auto rate = static_cast<uint64_t>(std::clamp(rates[i], 0.0, kMostRate));
    Way& way = ways_[i];
    if (rate == way.rate) continue;
    const double per_ns = static_cast<double>(rate) * 1e-9;
    const double depth = per_ns * static_cast<double>(kSavedUp.count());
    // Copies made without a limit are no debt.
    if (way.rate == 0) way.bucket = sched::TokenBucket(per_ns, depth, 0, now);
    way.bucket.Reshape(per_ns, depth, now);
    way.rate = rate;
  }
  root().Publish(changed);
}

template <typename Each>
void CopyBook::ForLimited(size_t way, const Each& each) {
  if (ways_[way].rate != 0) each(ways_[way], count_);
  if (parent_ != nullptr && parent_->ways_[way].rate != 0) {
    each(parent_->ways_[way], parent_->members_.size());
  }
}

CopyBook::Member* CopyBook::Join(Seat& seat, Changed& changed) {
  Member& member = root().members_.emplace_back(Member{.seat = &seat, .book = this});
  ++count_;
  root().Publish(changed);
  return &member;
}

void CopyBook::Leave(Member* member, Time now, Changed& changed) {
  for (size_t i = 0; i < ways_.size(); ++i) {
    const uint64_t used = member->seat->usage->copy_used[i].load(std::memory_order_acquire);
    if (used <= member->granted[i]) continue;
    const auto owed = static_cast<double>(used - member->granted[i]);
    ForLimited(i, [&](Way& way, size_t) {
      const double most = way.bucket.rate() * static_cast<double>(kMostOwed.count());
      way.bucket.Advance(now);
      way.bucket.Take(std::min(owed, most));
    });
  }
  root().members_.remove_if([member](const Member& other) { return &other == member; });
  --count_;
  root().Publish(changed);
}

Time CopyBook::ClearAt(Time now) const {
  Time clear = now;
  for (const Way& way : ways_) {
    const double missing = way.bucket.depth() - way.bucket.LevelAt(now);
    if (way.rate == 0 || missing <= 0) continue;
    const double most = static_cast<double>((kMostOwed + kSavedUp).count());
    const double ns = std::min(std::ceil(missing / way.bucket.rate()), most);
    clear = std::max(clear, now + Nanos(static_cast<int64_t>(ns)));
  }
  return clear;
}

void CopyBook::Publish(Changed& changed) {
  for (Member& member : members_) {
    for (size_t i = 0; i < ways_.size(); ++i) {
      uint64_t part = UINT64_MAX;
      member.book->ForLimited(i, [&](const Way& way, size_t members) {
        part = std::min(part, std::max<uint64_t>(1, way.rate / members));
      });
      if (part == UINT64_MAX) part = 0;
      std::atomic<uint64_t>& place = member.seat->limits->copy_rate[i];
      if (place.exchange(part, std::memory_order_release) != part) changed.Add(*member.seat);
    }
  }
}

Time CopyBook::Look(Time now, Changed& changed) {
  if (parent_ != nullptr) return kNever;  // the parent's book serves its members
  return std::min(Serve(0, now, changed), Serve(1, now, changed));
}

Time CopyBook::OpenAt(size_t i, Time now) {
  Time at = kNever;
  ForLimited(i, [&](Way& way, size_t) {
    way.bucket.Advance(now);
    const Time its = way.bucket.level() > 0 ? now : way.bucket.PositiveAt();
    at = at == kNever ? its : std::max(at, its);
  });
  return at;
}

Time CopyBook::Serve(size_t i, Time now, Changed& changed) {
  for (;;) {
    Time next = kNever;
    const auto asks = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
      // The value is not trusted: it can only ask for one more turn at a time.
      const uint64_t wanted = member.seat->usage->copy_wanted[i].load(std::memory_order_acquire);
      if (wanted <= member.granted[i]) return false;
      const Time at = member.book->OpenAt(i, now);
      if (at <= now) return true;
      next = std::min(next, at);
      return false;
    });
    if (asks == members_.end()) return next;
    // Within a family the parent's limit counts, so that who has a lower one of its own is not behind in each round, but no more
    // than that can make good in kMostAhead.
    uint64_t turn = 0, most = UINT64_MAX;
    asks->book->ForLimited(i, [&](const Way& way, size_t) {
      const auto in = [&](Nanos time) {
        const double bytes = way.bucket.rate() * static_cast<double>(time.count());
        return std::max(kLeastTurn, static_cast<uint64_t>(bytes));
      };
      turn = in(kTurn);
      most = std::min(most, in(kMostAhead));
    });
    turn = std::min(turn, most);
    asks->granted[i] += turn;
    asks->book->ForLimited(
        i, [turn](Way& way, size_t) { way.bucket.Take(static_cast<double>(turn)); });
    // Sequentially consistent with the process, which stores what it wants and then reads this grant.
    asks->seat->limits->copy_granted[i].store(asks->granted[i]);
    const bool enough = asks->granted[i] >= asks->seat->usage->copy_wanted[i].load();
    if (enough) changed.Add(*asks->seat);
    members_.splice(members_.end(), members_, asks);
  }
}

}  // namespace gpushare::broker
