// SPDX-License-Identifier: Apache-2.0
#include "broker/memory_book.h"

#include <algorithm>
#include <utility>

namespace gpushare::broker {
namespace {

// Stores `value` if it differs. Whether it did.
template <typename T>
bool Put(std::atomic<T>& place, T value) {
  if (place.load(kRelaxed) == value) return false;
  place.store(value, std::memory_order_release);
  return true;
}

}  // namespace

uint64_t MemoryBook::Used(const Member& member) {
  return member.gone ? member.granted
                     : std::min(member.seat->usage->memory_charged.load(kRelaxed), member.granted);
}

uint64_t MemoryBook::UsedByThoseHere() const {
  uint64_t used = 0;
  for (const Member& member : members_) used += member.gone ? 0 : Used(member);
  return used;
}

MemoryBook::Member* MemoryBook::Enter(Seat& seat, Changed& changed, bool draining, Member* former) {
  Member& member = members_.emplace_back(Member{.seat = &seat, .draining = draining});
  if (former != nullptr) {
    member.granted = former->granted;
    raised_ = true;  // the new page does not show the grant yet
    changed.Add(seat);
    SetReclaiming(*former, false);
    members_.remove_if([former](const Member& other) { return &other == former; });
  }
  if (members_.size() == 1 && !draining) Grant(member, free(), changed);
  return &member;
}

void MemoryBook::Announce(Changed& changed) {
  Tell(changed);
  Publish(changed);
}

MemoryBook::Member* MemoryBook::Restore(uint64_t granted, Changed& changed) {
  Member& member = members_.emplace_back(Member{.granted = granted, .gone = true});
  granted_ += granted;
  if (pool_ != nullptr) {
    pool_->Add(granted);
    pool_->Excuse();
  }
  Publish(changed);
  return &member;
}

bool MemoryBook::Leave(Member* member) {
  const ipc::UsagePage& usage = *member->seat->usage;
  const bool by_itself = usage.ended.load(std::memory_order_acquire) != 0;
  if (by_itself) {
    Lower(*member, usage.memory_left.load(kRelaxed));
  }
  member->gone = true;
  member->recalled = false;
  if (std::exchange(member->queued, false)) std::erase(queue_, member);
  return by_itself;
}

void MemoryBook::Reclaim(Member* member, Changed& changed) {
  if (member->reclaiming) return;
  SetReclaiming(*member, true);
  Publish(changed);
  // A process that asks from now on waits for this memory, so its page has to show it before.
  if (family() == nullptr) return PublishReclaiming();
  for (MemoryBook* const book : family()->books) book->PublishReclaiming();
}

void MemoryBook::SetReclaiming(Member& member, bool reclaiming) {
  if (std::exchange(member.reclaiming, reclaiming) == reclaiming) return;
  const uint64_t more = reclaiming ? member.granted : 0 - member.granted;
  reclaiming_ += more;
  if (family() != nullptr) family()->reclaiming += more;
}

void MemoryBook::Free(Member* member, Changed& changed) {
  SetReclaiming(*member, false);
  Lower(*member, 0);
  members_.remove_if([member](const Member& other) { return &other == member; });
  Publish(changed);
}

void MemoryBook::SetLimit(uint64_t limit, Changed& changed) {
  limit_ = limit;
  Publish(changed);
}

void MemoryBook::SetDraining(Member* member, bool draining, Changed& changed) {
  member->to_shrink = draining && (!member->draining || member->to_shrink);
  member->draining = draining;
  Publish(changed);
}

void MemoryBook::Grant(Member& member, uint64_t bytes, Changed& changed) {
  if (bytes == 0) return;
  member.granted += bytes;
  granted_ += bytes;
  if (pool_ != nullptr) pool_->Add(bytes);
  raised_ = true;
  changed.Add(*member.seat);
}

// Lowers the member's grant to `granted`, unless it is lower already.
void MemoryBook::Lower(Member& member, uint64_t granted) {
  if (granted >= member.granted) return;
  const uint64_t less = member.granted - granted;
  member.granted = granted;
  granted_ -= less;
  if (pool_ == nullptr) return;
  pool_->Subtract(less);
  pool_->outermost().lowered = true;
}

void MemoryBook::Tell(Changed& changed) {
  if (std::exchange(raised_, false)) {
    if (pool_ != nullptr && pool_->outermost().before_told) pool_->outermost().before_told();
    for (Member& member : members_) {
      if (!member.gone && Put(member.seat->limits->memory_granted, member.granted)) {
        changed.Add(*member.seat);
      }
    }
  }
  for (const auto& [member, asked] : answers_) {
    member->seat->limits->memory_answered.store(asked, std::memory_order_release);
    changed.Add(*member->seat);
  }
  answers_.clear();
}

bool MemoryBook::ReadAnswers(Time now, Changed& changed) {
  bool answered = false;
  for (Member& member : members_) {
    if (member.gone) continue;
    const ipc::UsagePage& usage = *member.seat->usage;
    ipc::LimitsPage& limits = *member.seat->limits;
    if (member.recalled && usage.memory_recalled.load(std::memory_order_acquire) == member.recall) {
      member.recalled = member.deaf = false;
      answered = true;
      // The process tells what it keeps; that can only lower its grant.
      Lower(member, usage.memory_kept.load(kRelaxed));
      limits.memory_granted.store(member.granted, std::memory_order_release);
      changed.Add(*member.seat);
    } else if (member.recalled && now - member.recalled_at >= options_.patience) {
      member.deaf = true;
    }
    const bool asks =
        usage.memory_asked.load(std::memory_order_acquire) != limits.memory_answered.load(kRelaxed);
    if (asks && !member.queued) {
      member.queued = true;
      if (family() != nullptr) member.turn = ++family()->asked;
      queue_.push_back(&member);
    }
  }
  return answered;
}

bool MemoryBook::SiblingWaits() const {
  if (family() == nullptr) return false;
  return std::any_of(
      family()->books.begin(), family()->books.end(),
      [this](const MemoryBook* book) { return book != this && !book->queue_.empty(); });
}

bool MemoryBook::IsBehindSibling(const Member& member) const {
  if (family() == nullptr) return false;
  return std::any_of(family()->books.begin(), family()->books.end(), [&](const MemoryBook* book) {
    if (book == this || book->queue_.empty()) return false;
    const Member& first = *book->queue_.front();
    const uint64_t wanted = first.seat->usage->memory_wanted.load(kRelaxed);
    // Whose own quota is used up is not kept waiting by this member.
    return first.turn < member.turn && first.front_since != kNever && wanted > first.granted &&
           wanted - first.granted <= book->own_free();
  });
}

uint64_t MemoryBook::Recall(uint64_t bytes, const Member& but, bool also_used, Time now,
                            Changed& changed) {
  for (Member& member : members_) {
    if (bytes == 0) break;
    if (member.gone || &member == &but) continue;
    const uint64_t unused = also_used ? member.granted : member.granted - Used(member);
    const uint64_t wanted = std::min(unused, bytes);
    if (wanted == 0) continue;
    bytes -= wanted;
    // Otherwise it has been asked already.
    if (!member.recalled) AskBack(member, wanted, now, changed);
  }
  return bytes;
}

void MemoryBook::RecallFor(uint64_t bytes, const Member& but, bool also_used, Time now,
                           Changed& changed) {
  const uint64_t wanted = bytes - std::min(bytes, free());
  const uint64_t left = Recall(wanted, but, also_used, now, changed);
  // What its own quota lacks, no sibling can give.
  if (family() == nullptr || wanted - left < bytes - std::min(bytes, own_free())) return;
  uint64_t lacks = std::min(left, bytes - std::min(bytes, family()->free()));
  for (MemoryBook* const book : family()->books) {
    if (book != this) lacks = book->Recall(lacks, but, also_used, now, changed);
  }
}

bool MemoryBook::Hopes(const Member& member, uint64_t more) const {
  const auto hopes = [&member](const MemoryBook& book) {
    return std::any_of(book.members_.begin(), book.members_.end(), [&](const Member& other) {
      return &other != &member && other.recalled && !other.deaf;
    });
  };
  if (family() == nullptr || more > own_free()) return hopes(*this);
  return std::any_of(family()->books.begin(), family()->books.end(),
                     [&](const MemoryBook* book) { return hopes(*book); });
}

uint64_t MemoryBook::Over() const {
  const uint64_t own = granted_ > limit_ ? granted_ - limit_ : 0;
  if (family() == nullptr || family()->books.front() != this) return own;
  const uint64_t all =
      family()->granted > family()->capacity ? family()->granted - family()->capacity : 0;
  return std::max(own, all);
}

void MemoryBook::AskBack(Member& member, uint64_t bytes, Time now, Changed& changed) {
  member.recalled = true;
  member.recalled_at = now;
  ipc::LimitsPage& limits = *member.seat->limits;
  limits.memory_recall_to.store(member.granted - bytes, kRelaxed);
  if (++member.recall == 0) ++member.recall;  // 0 means no recall
  limits.memory_recall.store(member.recall, std::memory_order_release);
  changed.Add(*member.seat);
}

bool MemoryBook::Serve(Time now, Changed& changed) {
  Member& member = *queue_.front();
  const ipc::UsagePage& usage = *member.seat->usage;
  const uint32_t asked = usage.memory_asked.load(std::memory_order_acquire);
  const uint64_t wanted = usage.memory_wanted.load(kRelaxed);
  // The member's grant is about to change while a recall to it is not answered. The same holds if a late answer has come
  // since ReadAnswers(): with it the request has another number.
  if (member.recalled &&
      (!member.deaf || usage.memory_recalled.load(std::memory_order_acquire) == member.recall)) {
    return false;
  }
  if (wanted > member.granted && wanted <= limit_ && !member.draining && !member.recalled) {
    const uint64_t more = wanted - member.granted;
    if (more <= free() && IsBehindSibling(member)) {
      // The sibling does not wait for longer than this, and what it leaves is this member's.
      if (member.front_since == kNever) member.front_since = now;
      member.behind_sibling = waits_for_others_ = true;
      if (now - member.front_since < 2 * options_.patience) return false;
    }
    if (more > free()) {
      waits_for_dead_ = coming() > 0 && more <= free_then();
      if (waits_for_dead_) {
        // The live members are asked once for what they do not use; that may be quicker.
        if (!std::exchange(member.behind_dead, true)) {
          RecallFor(more, member, /*also_used=*/false, now, changed);
        }
        return false;
      }
      // That it waited for a recall begins only now.
      const bool was_behind_dead = std::exchange(member.behind_dead, false);
      const bool was_behind_sibling = std::exchange(member.behind_sibling, false);
      if (was_behind_dead || was_behind_sibling) member.front_since = kNever;
      RecallFor(more, member, /*also_used=*/false, now, changed);
      // What the others say they use may be out of date, so they are asked once before a request is refused.
      if (!Hopes(member, more) && !std::exchange(member.asked_all, true)) {
        RecallFor(more, member, /*also_used=*/true, now, changed);
      }
      // Bounds the wait: answers that give nothing back could otherwise keep the queue waiting forever.
      if (member.front_since == kNever) member.front_since = now;
      // Memory within this tenant's quota may still be held by members of other books, which have been asked for it too.
      const bool hopes = Hopes(member, more);
      waits_for_others_ =
          more <= own_free() && (family() == nullptr || hopes || more <= family()->own_free());
      if ((hopes || waits_for_others_) && now - member.front_since < 2 * options_.patience) {
        return false;
      }
    }
    if (more <= free()) {
      const uint64_t headroom =
          queue_.size() > 1 || SiblingWaits()
              ? 0
              : std::max(options_.least_headroom, limit_ / options_.headroom_parts);
      Grant(member, std::min(free(), more + std::min(headroom, free() - more)), changed);
    } else {
      Grant(member, free(), changed);  // a smaller request may fit
    }
  }
  queue_.pop_front();
  waits_for_others_ = false;
  Answer(member, asked);
  return true;
}

// Answers a request that has been taken out of the queue.
void MemoryBook::Answer(Member& member, uint32_t asked) {
  member.queued = member.asked_all = false;
  member.behind_dead = member.behind_sibling = false;
  member.front_since = kNever;
  answers_.emplace_back(&member, asked);
}

void MemoryBook::ServeBehind(Changed& changed) {
  const Member& first = *queue_.front();
  const uint64_t needed = first.seat->usage->memory_wanted.load(kRelaxed);
  const uint64_t kept = needed > first.granted ? needed - first.granted : 0;
  for (size_t i = 1; i < queue_.size();) {
    Member& member = *queue_[i++];
    const ipc::UsagePage& usage = *member.seat->usage;
    const uint32_t asked = usage.memory_asked.load(std::memory_order_acquire);
    const uint64_t wanted = usage.memory_wanted.load(kRelaxed);
    const bool may = wanted > member.granted && wanted <= limit_ && !member.draining;
    if (!may || member.recalled) continue;  // answered when it is its turn
    const uint64_t more = wanted - member.granted, there = free_then();
    if (more > free() || kept > there || more > there - kept) continue;
    Grant(member, more, changed);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(--i));
    Answer(member, asked);
  }
}

// Comes after the answers to requests that waited for reclaimed memory: a process that sees that the reclaiming is over looks
// for its answer.
void MemoryBook::PublishReclaiming() {
  for (const Member& member : members_) {
    if (!member.gone) Put(member.seat->limits->memory_reclaiming, coming());
  }
}

// Publishes the quota and its use to the members.
void MemoryBook::Publish(Changed& changed) {
  uint64_t used = 0;
  // Each page is read only once, since its figure may change between two reads.
  for (Member& member : members_) {
    member.published_used = member.reclaiming ? 0 : Used(member);
    used += member.published_used;
  }
  if (family() != nullptr) family()->used += used - used_;
  used_ = used;
  for (Member& member : members_) {
    if (member.gone) continue;
    ipc::LimitsPage& limits = *member.seat->limits;
    uint64_t others = used - member.published_used;
    if (family() != nullptr) {
      // What the family leaves may be less than the quota does. The page has one figure: what is missing of the limit.
      const uint64_t beyond = family()->capacity - std::min(limit_, family()->capacity);
      const uint64_t of_family = family()->used - member.published_used;
      others = std::max(others, of_family - std::min(of_family, beyond));
    }
    limits.memory_others.store(others, kRelaxed);
    if (Put(limits.memory_limit, limit_)) changed.Add(*member.seat);
    SetFlags(*member.seat, ipc::LimitsPage::kDraining,
             member.draining ? uint32_t{ipc::LimitsPage::kDraining} : 0u, changed);
  }
}

Time MemoryBook::Look(Time now, Changed& changed) {
  const bool answered = ReadAnswers(now, changed);
  if (uint64_t over = Over(); over > 0 && queue_.empty() && now >= over_again_) {
    over_again_ = now + options_.patience;
    over = Recall(over, Member(), /*also_used=*/false, now, changed);
    if (family() != nullptr && family()->granted > family()->capacity) {
      over = std::min(over, family()->granted - family()->capacity);
      for (MemoryBook* const book : family()->books) {
        if (book != this) over = book->Recall(over, Member(), /*also_used=*/false, now, changed);
      }
    }
  }
  for (Member& member : members_) {
    if (!member.to_shrink || member.gone || member.recalled) continue;
    member.to_shrink = false;
    const uint64_t unused = member.granted - Used(member);
    if (unused > 0) AskBack(member, unused, now, changed);
  }
  waits_for_dead_ = false;
  while (!queue_.empty() && Serve(now, changed)) {
  }
  if (waits_for_dead_) ServeBehind(changed);
  Publish(changed);  // before the answers, so that a refused process sees what the others hold
  Tell(changed);
  PublishReclaiming();
  // A sibling that was looked at before may have waited for just this answer.
  if (answered && SiblingWaits()) return now;
  // A request that waits has times of its own, below.
  Time next = Over() > 0 && queue_.empty() ? std::max(over_again_, now + Nanos(1)) : kNever;
  for (const Member& member : members_) {
    if (member.recalled && !member.deaf) {
      next = std::min(next, member.recalled_at + options_.patience);
    }
  }
  if (waits_for_others_ && !queue_.empty()) {
    const Time once = queue_.front()->front_since + options_.patience;
    // A sibling that has not answered by then is not waited for.
    next = std::min(next, family() != nullptr && now < once ? once : once + options_.patience);
  }
  return next;
}

const char* MemoryBook::CheckInvariants() const {
  uint64_t granted = 0, reclaiming = 0;
  for (const Member& member : members_) {
    granted += member.granted;
    if (member.reclaiming) reclaiming += member.granted;
    if (member.reclaiming && !member.gone) return "one that is there is reclaimed";
    if (member.gone && (member.queued || member.recalled)) return "one that is gone is waited for";
    if (!member.gone && member.seat->limits->memory_granted.load(kRelaxed) != member.granted) {
      return "a page does not say what was granted";
    }
    if (member.queued != (std::count(queue_.begin(), queue_.end(), &member) == 1)) {
      return "a request is not in the queue once";
    }
  }
  if (reclaiming != reclaiming_) return "what is reclaimed does not add up";
  if (const MemoryPool* const all = family()) {
    uint64_t of_family = 0, used = 0, dead = 0;
    for (const MemoryBook* const book : all->books) {
      of_family += book->granted_;
      used += book->used_;
      dead += book->reclaiming_;
    }
    if (of_family != all->granted) return "the grants of a family do not add up";
    if (of_family > std::max(all->capacity, all->excused)) {
      return "more was granted to a family than its quota";
    }
    if (used != all->used || dead != all->reclaiming) return "what a family holds does not add up";
  }
  return granted == granted_ ? nullptr : "the grants do not add up";
}

}  // namespace gpushare::broker
