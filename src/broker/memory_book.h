// SPDX-License-Identifier: Apache-2.0
// A memory quota that several processes share.
//
// Each process holds a grant, within which it charges without asking. The grants together never exceed the quota, whatever
// the processes write: they can only ask for more, or give back. When a process asks for more than is free, the others are
// asked to give back what they have been granted and do not use; a process that does not answer within `patience` is not
// waited for. The grant of an ended process stays taken until its memory is free. A request that can only be met with that
// memory waits for it, and meanwhile other requests get what it does not need.
//
//   MemoryBook book(8ull << 30);
//   MemoryBook::Member* a = book.Join(seat, changed);      // the only member is granted everything
//   Time next = book.Look(now, changed);                   // reads the members' pages; look again at `next` or before
//   book.Leave(a);                                         // the session has ended
//   book.Reclaim(a, changed);                              // the process has ended, and the driver takes its memory back
//   book.Free(a, changed);                                 // the memory is free
//
// Budgets inside budgets: the books of a tenant and of its children share a pool of the parent's quota. A child's grants count
// in both, and what one of them does not use is asked back for any other.
//
// Pure except for the pages: time is an argument, nothing blocks. Threading: one caller at a time.
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

class MemoryBook;

// What several books share: together they grant no more than its capacity, whatever the quotas promise. The books of a GPU share
// one. Within it, the book of a tenant and those of its children share another one, their family's.
struct MemoryPool {
  uint64_t capacity = UINT64_MAX;
  uint64_t granted = 0;  // by all books
  uint64_t excused =
      0;  // this total may exceed the capacity: it was granted before that was lowered, or by an earlier broker
  MemoryPool* within = nullptr;  // of a family: the GPU's
  // Of the GPU. Called when grants have grown, before the processes learn of it: from then on they count on it.
  std::function<void()> before_told = {};
  bool lowered = false;  // of the GPU: some grant was lowered since the reader last reset this
  // Of a family: its books, the parent's first; what their members hold, as last published; and the grants of those that are
  // reclaiming.
  std::vector<MemoryBook*> books = {};
  uint64_t used = 0, reclaiming = 0;
  uint64_t asked = 0;  // requests of its members so far

  uint64_t own_free() const { return capacity > granted ? capacity - granted : 0; }
  uint64_t free() const {
    return within == nullptr ? own_free() : std::min(own_free(), within->free());
  }
  void SetCapacity(uint64_t bytes) {
    capacity = bytes;
    excused = granted;
  }
  MemoryPool& outermost() { return within == nullptr ? *this : within->outermost(); }
  void Add(uint64_t bytes) {
    for (MemoryPool* pool = this; pool != nullptr; pool = pool->within) pool->granted += bytes;
  }
  void Subtract(uint64_t bytes) {
    for (MemoryPool* pool = this; pool != nullptr; pool = pool->within) {
      pool->granted -= bytes;
      pool->excused = std::min(pool->excused, pool->granted);
    }
  }
  void Excuse() {
    for (MemoryPool* pool = this; pool != nullptr; pool = pool->within) {
      pool->excused = std::max(pool->excused, pool->granted);
    }
  }
};

class MemoryBook {
 public:
  struct Options {
    Nanos patience = Millis(100);          // how long to wait for the answer to a recall
    uint64_t least_headroom = 2ull << 20;  // granted beyond the request, to save the next request;
    uint64_t headroom_parts = 64;          // or quota ÷ headroom_parts, if that is more
  };
  struct Member {
    Seat* seat = nullptr;
    uint64_t granted = 0;
    uint64_t kept = 0;            // the part of it recorded for the next broker (remains.h)
    uint64_t published_used = 0;  // its use as last published to the others
    bool gone = false;            // its session has ended, its memory is not free yet
    bool reclaiming = false;      // its process has ended too, so its memory is about to be free
    bool draining = false;        // it gets no more
    bool to_shrink = false;       // draining, and still to be asked for what it does not use
    bool queued = false;          // its request is in the queue
    uint64_t turn = 0;            // of its request among those of its family; 0: it has no family
    Time front_since = kNever;    // when its request at the front of the queue began to wait
    bool asked_all = false;       // all others have been asked for what it lacks
    bool behind_dead = false;     // at the front, waiting for memory that is being reclaimed
    bool behind_sibling = false;  // at the front, waiting for a sibling's earlier request
    bool recalled = false;        // asked to give back, and has not answered
    bool deaf = false;            // has not answered the recall in time
    Time recalled_at{};
    uint32_t recall = 0;  // number of the latest recall
  };

  // `pool` must outlive the book; without a pool only the limit counts. If it is a family's, `limit` is no more than its
  // capacity.
  explicit MemoryBook(uint64_t limit, MemoryPool* pool = nullptr)
      : MemoryBook(limit, Options(), pool) {}
  MemoryBook(uint64_t limit, const Options& options, MemoryPool* pool = nullptr)
      : options_(options), limit_(limit), pool_(pool) {
    if (family() != nullptr) family()->books.push_back(this);
  }
  ~MemoryBook() {
    if (family() == nullptr) return;
    std::erase(family()->books, this);
    family()->used -= used_;
  }
  MemoryBook(const MemoryBook&) = delete;
  MemoryBook& operator=(const MemoryBook&) = delete;

  // `former`, if any, is the gone member of the same process. The new member takes over its grant, and `former` is removed.
  Member* Join(Seat& seat, Changed& changed, bool draining = false, Member* former = nullptr) {
    Member* const member = Enter(seat, changed, draining, former);
    Announce(changed);
    return member;
  }
  // The two halves of Join(), for a caller that keeps its own lists of members. Announce() calls before_told (MemoryPool),
  // and the caller's lists have to be right by then.
  Member* Enter(Seat& seat, Changed& changed, bool draining, Member* former);
  void Announce(Changed& changed);
  // Adds a member that was already gone before this book was made, with its grant.
  Member* Restore(uint64_t granted, Changed& changed);
  // The member's grant stays taken. If the process has ended the session by itself (then true), only the memory that it
  // says it has left stays taken.
  bool Leave(Member* member);
  // For a member that is gone: its memory is about to be free. The caller must call Free() within a bounded time, however
  // long the driver takes.
  void Reclaim(Member* member, Changed& changed);
  void Free(Member* member, Changed& changed);

  // A lower limit takes nothing away: members are asked for what they do not use, and no grant grows until the sum fits.
  void SetLimit(uint64_t limit, Changed& changed);
  void SetDraining(Member* member, bool draining, Changed& changed);

  Time Look(Time now, Changed& changed);

  uint64_t limit() const { return limit_; }
  uint64_t granted() const { return granted_; }
  uint64_t free() const {
    return pool_ == nullptr ? own_free() : std::min(own_free(), pool_->free());
  }
  const std::list<Member>& members() const { return members_; }
  // The grants of members that are reclaiming.
  uint64_t reclaiming() const { return reclaiming_; }
  // What a member says it holds, at most its grant.
  static uint64_t Used(const Member& member);
  // The same of all members but those that are gone, of which only the grant is known.
  uint64_t UsedByThoseHere() const;

  const char* CheckInvariants() const;  // null if they hold

 private:
  // Whether a recall was answered.
  bool ReadAnswers(Time now, Changed& changed);
  // Whether a request waits in another book of its family.
  bool SiblingWaits() const;
  // Whether the request at the front of a sibling came before the member's, and waits for the family's memory.
  bool IsBehindSibling(const Member& member) const;
  // Serves the first request. Whether it has been answered.
  bool Serve(Time now, Changed& changed);
  void Answer(Member& member, uint32_t asked);
  // While the first request waits for reclaimed memory, serves the requests behind it with what it does not need.
  void ServeBehind(Changed& changed);
  // Asks members other than `but` to give back. `also_used`: also what they say they use. Returns how much of it nobody has.
  uint64_t Recall(uint64_t bytes, const Member& but, bool also_used, Time now, Changed& changed);
  // Asks for what `bytes` more lack: its own members, and the others of the family for what the family lacks.
  void RecallFor(uint64_t bytes, const Member& but, bool also_used, Time now, Changed& changed);
  // Whether an answer to a recall is waited for that may make room for `more` bytes of `member`.
  bool Hopes(const Member& member, uint64_t more) const;
  void AskBack(Member& member, uint64_t bytes, Time now, Changed& changed);
  void Grant(Member& member, uint64_t bytes, Changed& changed);
  void Publish(Changed& changed);
  void PublishReclaiming();
  MemoryPool* family() const {
    return pool_ != nullptr && pool_->within != nullptr ? pool_ : nullptr;
  }
  uint64_t own_free() const { return limit_ > granted_ ? limit_ - granted_ : 0; }
  // The reclaiming grants that requests wait for; and what is free once they are.
  uint64_t coming() const { return family() == nullptr ? reclaiming_ : family()->reclaiming; }
  uint64_t free_then() const {
    const uint64_t own = own_free() + reclaiming_;
    if (pool_ == nullptr) return own;
    return std::min({own, pool_->own_free() + coming(), pool_->outermost().free() + coming()});
  }
  // By how much more is granted than its limit, or in the parent's book than that of the family.
  uint64_t Over() const;
  void SetReclaiming(Member& member, bool reclaiming);
  void Lower(Member& member, uint64_t granted);
  // Publishes grants and answers to the members.
  void Tell(Changed& changed);

  const Options options_;
  uint64_t limit_;
  MemoryPool* const pool_;
  uint64_t granted_ = 0;     // to all members
  uint64_t reclaiming_ = 0;  // the part of it granted to members that are reclaiming
  uint64_t used_ = 0;        // what the members hold, as last published
  bool raised_ = false;      // some grant was raised, and its process does not know yet
  // Answers not published yet: member and number of the request.
  std::vector<std::pair<Member*, uint32_t>> answers_;
  Time over_again_{};              // when to ask members again while more is granted than the limit
  std::list<Member> members_;      // includes gone members
  std::deque<Member*> queue_;      // members with a request, in order
  bool waits_for_others_ = false;  // the first request waits for the members of other books
  bool waits_for_dead_ = false;    // the first request waits for members that are reclaiming
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_MEMORY_BOOK_H_
