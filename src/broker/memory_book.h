// SPDX-License-Identifier: Apache-2.0
// A quota of memory that several processes have in common.
//
// Each process holds a grant, within which it charges without asking anybody. The grants together never exceed the
// quota, whatever the processes say: what they write can only ask for more, or give back. A process that asks for more
// than is free gets what others have been granted and do not use: they are asked to give it back, which those that do
// not answer within `patience` are not waited for. Of one that has ended the grant stays taken until its memory is free;
// who asks for more than is free without it waits for that, and others meanwhile get what that one does not need.
//
//   MemoryBook book(8ull << 30);
//   MemoryBook::Member* a = book.Join(seat, changed);      // alone, it is granted all there is
//   Time next = book.Look(now, changed);                   // reads what the members say; look again by then
//   book.Leave(a);                                         // its session ended;
//   book.Reclaim(a, changed);                              // its process too, and the driver takes its memory back;
//   book.Free(a, changed);                                 // and now that is free as well
//
// Pure but for the pages: time is an argument, nothing blocks. One caller at a time.
#ifndef GPUSHARE_BROKER_MEMORY_BOOK_H_
#define GPUSHARE_BROKER_MEMORY_BOOK_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <utility>
#include <vector>

#include "base/time.h"
#include "broker/seat.h"

namespace gpushare::broker {

// What the books of one GPU have in common: together they grant no more than it has, whatever was promised to whom.
struct MemoryPool {
  uint64_t capacity = UINT64_MAX;
  uint64_t granted = 0;  // by all books
  uint64_t excused =
      0;  // so much was granted when it became too much, by a lower capacity or by an earlier broker
  // Called when grants have grown and before anybody is told: whoever has been told counts on it.
  std::function<void()> before_told;
  bool lowered = false;  // some grant was, since whoever looks at it has reset this

  uint64_t free() const { return capacity > granted ? capacity - granted : 0; }
  void SetCapacity(uint64_t bytes) {
    capacity = bytes;
    excused = granted;
  }
};

class MemoryBook {
 public:
  struct Options {
    Nanos patience = Millis(100);  // how long an answer to a recall is waited for
    uint64_t least_headroom =
        2ull << 20;  // granted beyond what was asked for, so that the next need not ask;
    uint64_t headroom_parts = 64;  // or this part of the quota, if that is more
  };
  struct Member {
    Seat* seat = nullptr;
    uint64_t granted = 0;
    uint64_t kept = 0;            // of it, what is remembered for the next broker (remains.h)
    uint64_t published_used = 0;  // what it said when the others were told last
    bool gone = false;            // its session has ended, its memory is not free yet
    bool reclaiming = false;      // it is about to be: its process has ended, too
    bool draining = false;        // it gets no more
    bool to_shrink = false;       // and is to be asked for what it does not use
    bool queued = false;          // its request waits
    Time front_since = kNever;    // it is the first of those that ask
    bool asked_all = false;       // all others have been asked for what it lacks
    bool behind_dead = false;     // in front, and what it waits for is being reclaimed
    bool recalled = false;        // asked to give back, and has not answered
    bool deaf = false;            // nor did it in time
    Time recalled_at{};
    uint32_t recall = 0;  // number of the latest
  };

  // `pool` outlives it; none: the limit alone counts.
  explicit MemoryBook(uint64_t limit, MemoryPool* pool = nullptr)
      : MemoryBook(limit, Options(), pool) {}
  MemoryBook(uint64_t limit, const Options& options, MemoryPool* pool = nullptr)
      : options_(options), limit_(limit), pool_(pool) {}

  // `former`, if any: a member that is gone and whose process this is. What it was granted is this one's, and it is no
  // member any more.
  Member* Join(Seat& seat, Changed& changed, bool draining = false, Member* former = nullptr) {
    Member* const member = Enter(seat, changed, draining, former);
    Announce(changed);
    return member;
  }
  // The two halves of it, for who keeps members in lists of its own: what is told is kept before (MemoryPool), and has to
  // be right by then.
  Member* Enter(Seat& seat, Changed& changed, bool draining, Member* former);
  void Announce(Changed& changed);
  // One that is gone since before there was this book, and what it had been granted.
  Member* Restore(uint64_t granted, Changed& changed);
  // What it was granted stays taken, or, where it ended by itself, what it says that it has left: then true.
  bool Leave(Member* member);
  // Of one that is gone: it ends as Free(), however long the driver takes; whoever calls this bounds it.
  void Reclaim(Member* member, Changed& changed);
  void Free(Member* member, Changed& changed);

  // Lowered, nothing is taken away: members are asked for what they do not use, and nobody gets more until it fits.
  void SetLimit(uint64_t limit, Changed& changed);
  void SetDraining(Member* member, bool draining, Changed& changed);

  Time Look(Time now, Changed& changed);

  uint64_t limit() const { return limit_; }
  uint64_t granted() const { return granted_; }
  uint64_t free() const {
    return pool_ == nullptr ? own_free() : std::min(own_free(), pool_->free());
  }
  const std::list<Member>& members() const { return members_; }
  // What members that are reclaiming had.
  uint64_t reclaiming() const { return reclaiming_; }
  // What a member says it holds, as far as that can be.
  static uint64_t Used(const Member& member);

  const char* CheckInvariants() const;  // null: they hold

 private:
  void ReadAnswers(Time now, Changed& changed);
  // Whether the first request has been answered.
  bool Serve(Time now, Changed& changed);
  void Answer(Member& member, uint32_t asked);
  // Those behind it, while it waits for what is reclaimed: with what it does not need.
  void ServeBehind(Changed& changed);
  // `also_used`: also of what they say that they use.
  void Recall(uint64_t bytes, const Member& but, bool also_used, Time now, Changed& changed);
  void AskBack(Member& member, uint64_t bytes, Time now, Changed& changed);
  void Grant(Member& member, uint64_t bytes, Changed& changed);
  void Publish(Changed& changed);
  void PublishReclaiming();
  uint64_t own_free() const { return limit_ > granted_ ? limit_ - granted_ : 0; }
  void Lower(Member& member, uint64_t granted);
  // Members learn what they were granted, and that they were answered.
  void Tell(Changed& changed);

  const Options options_;
  uint64_t limit_;
  MemoryPool* const pool_;
  uint64_t granted_ = 0;     // to all
  uint64_t reclaiming_ = 0;  // of that, to those that are reclaiming
  bool raised_ = false;      // some grant was, and its process does not know yet
  std::vector<std::pair<Member*, uint32_t>> answers_;  // nor who these are, and to which request
  Time over_again_{};          // while more is granted than the limit, members are asked again then
  std::list<Member> members_;  // those that are gone included
  std::deque<Member*> queue_;  // who asks, in order
  bool waits_for_others_ = false;  // the first of them does, for the members of other books
  bool waits_for_dead_ = false;    // it does for those that are reclaiming
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_MEMORY_BOOK_H_
