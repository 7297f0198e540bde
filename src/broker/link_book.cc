// SPDX-License-Identifier: Apache-2.0
#include "broker/link_book.h"

#include <algorithm>
#include <map>
#include <utility>

namespace gpushare::broker {
namespace {

// More cannot be copied between two looks. The values of pages are not trusted.
constexpr uint64_t kMostGiven = uint64_t{1} << 30;
constexpr uint64_t kUnbound = ipc::LimitsPage::kLinkUnbound;

using Way = LinkBook::Member::Way;

uint64_t Growth(const std::atomic<uint64_t>& counter, uint64_t before) {
  const uint64_t now = counter.load(std::memory_order_acquire);
  return now <= before ? 0 : now - before;
}

sched::Band BandOf(const LinkBook::Member& member) { return member.tenant->limits.band; }

// Who waits for a grant reads the page itself, so it need not be woken.
void Say(LinkBook::Member& member, size_t way, uint64_t granted, Changed& changed) {
  std::atomic<uint64_t>& place = member.seat->limits->link_granted[way];
  const uint64_t before = place.load(kRelaxed);
  if (before == granted) return;
  place.store(granted);
  if (before == 0 || granted == 0) changed.Add(*member.seat);
}

uint64_t WantedBy(const LinkBook::Member& member, size_t way) {
  return member.seat->usage->link_wanted[way].load(std::memory_order_acquire);
}

bool Wants(const LinkBook::Member& member, size_t way) {
  return WantedBy(member, way) > member.ways[way].granted;
}

// It may have twice ahead what it takes between two looks.
bool HasEnough(const Way& way) {
  return way.granted > way.given &&
         way.granted - way.given >= std::max(LinkBook::kGrant, 2 * way.took);
}

uint64_t Outstanding(const Way& way) { return way.granted > way.done ? way.granted - way.done : 0; }

const TimeBook::Tenant* FamilyOf(const LinkBook::Member& member) {
  return member.tenant->parent != nullptr ? member.tenant->parent : member.tenant;
}

// In its family, in which the parent counts as one of weight 1.
double OwnWeight(const TimeBook::Tenant& tenant) {
  return tenant.parent != nullptr ? tenant.limits.weight : 1;
}

}  // namespace

LinkBook::Member* LinkBook::Join(const TimeBook::Tenant* tenant, Seat& seat, Changed& changed) {
  Member& member = members_.emplace_back(Member{.tenant = tenant, .seat = &seat, .ways = {}});
  Publish(changed);
  return &member;
}

void LinkBook::Leave(Member* member, Changed& changed) {
  for (size_t way = 0; way < member->ways.size(); ++way) Unbind(*member, way);
  members_.remove_if([member](const Member& other) { return &other == member; });
  Publish(changed);
}

// To those that are not bound: whether others are there for whom they copy in pieces.
void LinkBook::Publish(Changed& changed) {
  std::array<int, 3> there{};
  for (const Member& member : members_) ++there.at(static_cast<size_t>(BandOf(member)));
  for (Member& member : members_) {
    int others = -1;
    for (size_t band = 0; band <= static_cast<size_t>(BandOf(member)); ++band) {
      others += there.at(band);
    }
    for (size_t way = 0; way < member.ways.size(); ++way) {
      if (!member.ways[way].bound) Say(member, way, others > 0 ? kUnbound : 0, changed);
    }
  }
}

Time LinkBook::Look(Time now, Changed& changed) {
  Time next = kNever;
  for (size_t way = 0; way < 2; ++way) {
    for (Member& member : members_) Read(member, way, now);
    for (const sched::Band band : {sched::Band::kHigh, sched::Band::kNormal, sched::Band::kLow}) {
      next = std::min(next, Serve(band, way, now, changed));
    }
  }
  Publish(changed);
  return next;
}

// The best rate may be built on what it said, so it is measured anew; and who was slow by that rate is waited for again.
void LinkBook::Unbind(Member& member, size_t way) {
  Way& its = member.ways[way];
  if (!std::exchange(its.bound, false)) return;
  Widen(member, way);
  Queue& queue = QueueOf(its.band, way);
  queue.best = 0;
  queue.since = Time{};
  queue.widened_until = Time{};
  for (Member& other : members_) {
    if (other.ways[way].band == its.band) other.ways[way].slow_until = Time{};
  }
}

void LinkBook::Read(Member& member, size_t way, Time now) {
  const ipc::UsagePage& usage = *member.seat->usage;
  Way& its = member.ways[way];
  if (its.band != BandOf(member)) {
    Unbind(member, way);
    // Virtual times of two queues cannot be compared.
    its.band = BandOf(member);
    its.had = QueueOf(its.band, way).reached;
    its.slow = Nanos(0);
    its.slow_until = Time{};
  }
  const uint64_t done = Growth(usage.link_done[way], its.done);  // read first, since it is not more
  const uint64_t given = Growth(usage.link_given[way], its.given);
  its.given += given;
  its.took = std::min(given, kMostGiven);
  const uint64_t before = std::exchange(its.done, std::min(its.done + done, its.given));
  if (given > 0 || done > 0) its.moved_at = now;
  // More than was granted does not count, since it is only said; not later either, when it has been granted.
  if (its.bound) {
    const uint64_t counts = std::min(its.done - before, its.granted - its.counted);
    QueueOf(its.band, way).done += counts;
    its.counted += counts;
  }
  its.held |= its.bound && its.given >= its.granted && Wants(member, way);
  const bool copies = its.given - its.before >= kLeast;
  if (copies || now - its.since >= kStopped) {
    its.copies = copies || its.held;
    its.since = now;
    its.before = its.given;
    its.held = false;
  }
  its.copies &= !member.tenant->suspended;
}

// A family weighs what its parent does; those of its tenants that copy divide that by their own weights. Processes of one tenant
// divide evenly.
void LinkBook::Weigh(sched::Band band, size_t way) {
  const auto takes_part = [&](const Member& member) {
    return BandOf(member) == band && member.ways[way].copies;
  };
  std::map<const TimeBook::Tenant*, int> processes;
  for (const Member& member : members_) {
    if (takes_part(member)) ++processes[member.tenant];
  }
  std::map<const TimeBook::Tenant*, double> families;
  for (const auto& [tenant, count] : processes) {
    families[tenant->parent != nullptr ? tenant->parent : tenant] += OwnWeight(*tenant);
  }
  for (Member& member : members_) {
    if (!takes_part(member)) continue;
    const TimeBook::Tenant* const family = FamilyOf(member);
    member.weight = family->limits.weight * OwnWeight(*member.tenant) / families.at(family) /
                    processes.at(member.tenant);
  }
}

Nanos LinkBook::LookEvery(const Queue& queue) {
  if (queue.best <= 0) return kLook;
  const double ns = static_cast<double>(kLookBytes) / queue.best;
  return std::clamp(Nanos(static_cast<int64_t>(std::min(ns, 1e9))), kLook, kSeldomLook);
}

bool LinkBook::IsSlow(const Way& way, const Queue& queue, Time now) {
  return way.limited || now < way.slow_until || now - way.moved_at >= kLapse * LookEvery(queue);
}

void LinkBook::Measure(sched::Band band, size_t way, Time now) {
  Queue& queue = QueueOf(band, way);
  if (queue.since == Time{}) {
    queue.since = now;
    queue.done = 0;
    queue.idle = false;
    for (Member& member : members_) {
      if (BandOf(member) == band) member.ways[way].given_then = member.ways[way].given;
    }
    return;
  }
  const Nanos window = now - queue.since;
  const auto ns = static_cast<double>(window.count()), done = static_cast<double>(queue.done);
  const bool enough = std::max(done, queue.best * ns) >= static_cast<double>(kWindowBytes);
  if (window < kWindow || (!enough && window < kLongestWindow)) return;
  queue.since = now;
  queue.done = 0;
  const double rate = std::min(done / ns, kFastest);
  const bool busy = rate >= kBusy * queue.best;
  Narrow(band, way, queue.best > 0 ? rate / queue.best : 1, now);
  bool waited = false;
  for (Member& member : members_) {
    Way& its = member.ways[way];
    if (BandOf(member) != band) continue;
    const double limit =
        static_cast<double>(member.seat->limits->copy_rate[way].load(kRelaxed)) * 1e-9;
    const uint64_t given = its.given - std::exchange(its.given_then, its.given);
    its.limited = limit > 0 && static_cast<double>(given) >= kBusy * limit * ns;
    if (queue.best < kBusy * its.slow_by) {  // a mark that time has lowered since
      its.slow = Nanos(0);
      its.slow_until = Time{};
      its.slow_by = 0;
    }
    if (!std::exchange(its.waited, false)) continue;
    waited = true;
    // Such a process gets its part by less of the others' in flight as well (Narrow()).
    const bool goes_on = its.little ? rate >= kNearlyBusy * queue.best : busy;
    its.slow = goes_on ? Nanos(0) : std::clamp(2 * its.slow, kSlow, kSlowest);
    its.slow_until = now + its.slow;
    its.slow_by = goes_on ? 0 : queue.best;
  }
  // What the link can do may become less. It shows while nobody is waited for: who is may not lower the mark by which it is
  // judged, a little in each window.
  const double decay = std::exchange(queue.idle, false) ? kIdleDecay : kDecay;
  const bool keeps = (waited || queue.window < kWholeWindow) && busy;
  queue.best = std::max(keeps ? queue.best : queue.best * (1 - decay), rate);
}

void LinkBook::Narrow(sched::Band band, size_t way, double busy, Time now) {
  Queue& queue = QueueOf(band, way);
  double weights = 0, given = 0;
  for (const Member& member : members_) {
    const Way& its = member.ways[way];
    if (BandOf(member) != band || !its.bound) continue;
    weights += member.weight;
    given += static_cast<double>(its.given - its.given_then);
  }
  bool narrow = false, hampered = false, waited = false;
  for (Member& member : members_) {
    Way& its = member.ways[way];
    if (BandOf(member) != band || !its.bound) continue;
    const double part = member.weight / weights * given;
    const auto had = static_cast<double>(its.given - its.given_then);
    waited |= its.waited && its.little;
    if (had >= part) {
      its.narrow = true;
    } else if (had < kFair * part && !its.limited && its.granted > its.given) {
      its.narrow = false;
      its.little = hampered = true;
    }
    narrow |= its.narrow;
  }
  if (waited) return;  // then that is why the link was not busy, or nobody hampered
  // That was judged by a mark that time has lowered since.
  if (queue.best < kBusy * queue.widened_by) {
    queue.widened = Nanos(0);
    queue.widened_until = Time{};
  }
  if (busy < kNearlyBusy && queue.window < kWholeWindow) {
    queue.window /= kStep;
    if (std::exchange(queue.narrowed, false)) {
      queue.widened = std::clamp(2 * queue.widened, kSlow, kSlowest);
      queue.widened_until = now + queue.widened;
      queue.widened_by = queue.best;
    }
  } else if (!hampered || !narrow) {
    queue.window *= 1 + kWiden;
  } else if (now >= queue.widened_until) {
    queue.window *= kStep;
    queue.narrowed = true;
  }
  queue.window = std::clamp(queue.window, static_cast<double>(kLeastWindow),
                            static_cast<double>(kWholeWindow));
  if (queue.window < kWholeWindow) return;
  for (Member& member : members_) {
    if (BandOf(member) == band) member.ways[way].little = false;
  }
}

void LinkBook::Widen(Member& member, size_t way) {
  member.ways[way].narrow = member.ways[way].little = false;
  member.seat->limits->link_window[way].store(0, kRelaxed);
}

Time LinkBook::Serve(sched::Band band, size_t way, Time now, Changed& changed) {
  const auto copying = std::count_if(members_.begin(), members_.end(), [&](const Member& member) {
    return BandOf(member) == band && member.ways[way].copies;
  });
  for (Member& member : members_) {
    if (BandOf(member) != band) continue;
    Way& its = member.ways[way];
    const bool bound = copying >= 2 && its.copies;
    if (bound && !its.bound) {
      its.granted = its.given;
      its.counted = its.done;
      its.had = std::max(its.had, QueueOf(band, way).reached);
    }
    // The best rate stays, or processes that copy now and then would never be waited for.
    if (its.bound && !bound) {
      Say(member, way, kUnbound, changed);
      Widen(member, way);
    }
    its.bound = bound;
  }
  Queue& queue = QueueOf(band, way);
  if (copying < 2) {
    queue.since = Time{};
    queue.window = kWholeWindow;
    return kNever;
  }
  Weigh(band, way);
  Measure(band, way, now);
  Grant(band, way, now);
  for (Member& member : members_) {
    const Way& its = member.ways[way];
    if (BandOf(member) != band || !its.bound) continue;
    const bool narrow = its.narrow && queue.window < static_cast<double>(kWholeWindow);
    member.seat->limits->link_window[way].store(narrow ? static_cast<uint64_t>(queue.window) : 0,
                                                kRelaxed);
    Say(member, way, its.granted, changed);
  }
  return now + LookEvery(queue);
}

void LinkBook::Grant(sched::Band band, size_t way, Time now) {
  Queue& queue = QueueOf(band, way);
  uint64_t outstanding = 0, took = 0, in_flight = 0;
  for (const Member& member : members_) {
    const Way& its = member.ways[way];
    if (BandOf(member) != band || !its.bound) continue;
    took += its.took;
    in_flight += its.given - its.done;
    if (!IsSlow(its, queue, now)) outstanding += Outstanding(its);
  }
  queue.idle |= in_flight == 0;
  const uint64_t depth = std::clamp(2 * took, kDepth, kMostDepth);
  const bool waits =
      queue.best >
      0;  // for others; until the first window has shown what the link can do, none does
  for (;;) {
    Member *first = nullptr, *most = nullptr;
    bool asked = false;
    // Who is waited for has to keep the link busy until the next look, whatever it took before.
    const auto asks = [&](const Member& member) {
      const Way& its = member.ways[way];
      return Wants(member, way) &&
             (!HasEnough(its) || (outstanding < depth / 2 && !IsSlow(its, queue, now)));
    };
    for (Member& member : members_) {
      const Way& its = member.ways[way];
      if (BandOf(member) != band || !its.bound) continue;
      const bool slow = IsSlow(its, queue, now);
      asked |= asks(member);
      if (!slow && (most == nullptr || Outstanding(its) > Outstanding(most->ways[way]))) {
        most = &member;
      }
      if (!asks(member) && (slow || !waits || Outstanding(its) == 0)) continue;
      if (first == nullptr || its.had < first->ways[way].had) first = &member;
    }
    if (first == nullptr || !asked) return;
    Way& its = first->ways[way];
    if (outstanding >= depth) {
      if (most != nullptr) most->ways[way].waited = true;
      return;
    }
    if (!asks(*first)) {
      its.waited = true;
      return;
    }
    if (IsSlow(its, queue, now)) its.had = std::max(its.had, queue.reached);
    queue.reached = std::max(queue.reached, its.had);
    its.had += static_cast<double>(kGrant) / first->weight;
    its.granted += kGrant;
    its.moved_at = now;
    outstanding += kGrant;
  }
}

}  // namespace gpushare::broker
