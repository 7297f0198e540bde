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
  Publish(changed);
}

CopyBook::Member* CopyBook::Join(Seat& seat, Changed& changed) {
  Member& member = members_.emplace_back(Member{.seat = &seat});
  Publish(changed);
  return &member;
}

void CopyBook::Leave(Member* member, Time now, Changed& changed) {
  for (size_t i = 0; i < ways_.size(); ++i) {
    Way& way = ways_[i];
    if (way.rate == 0) continue;
    const uint64_t used = member->seat->usage->copy_used[i].load(std::memory_order_acquire);
    if (used <= member->granted[i]) continue;
    const double most = way.bucket.rate() * static_cast<double>(kMostOwed.count());
    way.bucket.Advance(now);
    way.bucket.Take(std::min(static_cast<double>(used - member->granted[i]), most));
  }
  members_.remove_if([member](const Member& other) { return &other == member; });
  Publish(changed);
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
      const uint64_t rate = ways_[i].rate;
      const uint64_t part = rate == 0 ? 0 : std::max<uint64_t>(1, rate / members_.size());
      std::atomic<uint64_t>& place = member.seat->limits->copy_rate[i];
      if (place.exchange(part, std::memory_order_release) != part) changed.Add(*member.seat);
    }
  }
}

Time CopyBook::Look(Time now, Changed& changed) {
  return std::min(Serve(0, now, changed), Serve(1, now, changed));
}

Time CopyBook::Serve(size_t i, Time now, Changed& changed) {
  Way& way = ways_[i];
  if (way.rate == 0) return kNever;
  way.bucket.Advance(now);
  const double per_turn = way.bucket.rate() * static_cast<double>(kTurn.count());
  const uint64_t turn = std::max(kLeastTurn, static_cast<uint64_t>(per_turn));
  for (;;) {
    const auto asks = std::find_if(members_.begin(), members_.end(), [i](const Member& member) {
      // The value is not trusted: it can only ask for one more turn at a time.
      return member.seat->usage->copy_wanted[i].load(std::memory_order_acquire) > member.granted[i];
    });
    if (asks == members_.end()) return kNever;
    if (way.bucket.level() <= 0) return way.bucket.PositiveAt();
    asks->granted[i] += turn;
    way.bucket.Take(static_cast<double>(turn));
    // Sequentially consistent with the process, which stores what it wants and then reads this grant.
    asks->seat->limits->copy_granted[i].store(asks->granted[i]);
    const bool enough = asks->granted[i] >= asks->seat->usage->copy_wanted[i].load();
    if (enough) changed.Add(*asks->seat);
    members_.splice(members_.end(), members_, asks);
  }
}

}  // namespace gpushare::broker
