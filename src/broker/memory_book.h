// SPDX-License-Identifier: Apache-2.0
// A quota of memory that several processes have in common.
//
// Each process holds a grant, within which it charges without asking anybody. The grants together never exceed the
// quota, whatever the processes say: what they write can only ask for more, or give back. A process that asks for more
// than is free gets what others have been granted and do not use: they are asked to give it back, which those that do
// not answer within `patience` are not waited for. Of one that has ended the grant stays taken until its memory is free.
//
//   MemoryBook book(8ull << 30);
//   MemoryBook::Member* a = book.Join(seat, changed);      // alone, it is granted all there is
//   Time next = book.Look(now, changed);                   // reads what the members say; look again by then
//   book.Leave(a);                                         // it ended;
//   book.Free(a, changed);                                 // and now its memory is free as well
//
// Pure but for the pages: time is an argument, nothing blocks. One caller at a time.
#ifndef GPUSHARE_BROKER_MEMORY_BOOK_H_
#define GPUSHARE_BROKER_MEMORY_BOOK_H_

#include <cstdint>
#include <deque>
#include <list>

#include "base/time.h"
#include "broker/seat.h"

namespace gpushare::broker {

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
    uint64_t published_used = 0;  // what it said when the others were told last
    bool gone = false;            // its process has ended, its memory is not free yet
    bool draining = false;        // it gets no more
    bool queued = false;          // its request waits
    Time front_since = kNever;    // it is the first of those that ask
    bool asked_all = false;       // all others have been asked for what it lacks
    bool recalled = false;        // asked to give back, and has not answered
    bool deaf = false;            // nor did it in time
    Time recalled_at{};
    uint32_t recall = 0;  // number of the latest
  };

  explicit MemoryBook(uint64_t limit) : MemoryBook(limit, Options()) {}
  MemoryBook(uint64_t limit, const Options& options) : options_(options), limit_(limit) {}

  Member* Join(Seat& seat, Changed& changed, bool draining = false);
  // What it was granted stays taken, or, where it ended by itself, what it says that it has left: then true.
  bool Leave(Member* member);
  void Free(Member* member, Changed& changed);

  // Lowered, nothing is taken away: members are asked for what they do not use, and nobody gets more until it fits.
  void SetLimit(uint64_t limit, Changed& changed);
  void SetDraining(Member* member, bool draining, Changed& changed);

  Time Look(Time now, Changed& changed);

  uint64_t limit() const { return limit_; }
  uint64_t granted() const { return granted_; }
  uint64_t free() const { return limit_ > granted_ ? limit_ - granted_ : 0; }
  const std::list<Member>& members() const { return members_; }
  // What a member says it holds, as far as that can be.
  static uint64_t Used(const Member& member);

  const char* CheckInvariants() const;  // null: they hold

 private:
  void ReadAnswers(Time now, Changed& changed);
  // Whether the first request has been answered.
  bool Serve(Time now, Changed& changed);
  // `also_used`: also of what they say that they use.
  void Recall(uint64_t bytes, const Member& but, bool also_used, Time now, Changed& changed);
  void Grant(Member& member, uint64_t bytes, Changed& changed);
  void Publish(Changed& changed);

  const Options options_;
  uint64_t limit_;
  uint64_t granted_ = 0;       // to all
  Time over_again_{};          // while more is granted than the limit, members are asked again then
  std::list<Member> members_;  // those that are gone included
  std::deque<Member*> queue_;  // who asks, in order
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_MEMORY_BOOK_H_
