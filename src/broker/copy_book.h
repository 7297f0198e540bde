// SPDX-License-Identifier: Apache-2.0
// A tenant's limit on copies between host and device, shared by its processes.
//
// Each direction is a token bucket of bytes. While the bucket has bytes, the processes that ask get a turn each, one after
// the other: 2 ms of the limit, which a process may save up until it copies. So the sum keeps to the limit whichever
// processes copy, and all processes that always have something to copy get the same.
//
//   CopyBook book;
//   book.SetLimits(limits, now, changed);
//   CopyBook::Member* a = book.Join(seat, changed);
//   Time next = book.Look(now, changed);               // reads the requests; look again at `next` or before
//   book.Leave(a, now, changed);
//
// Budgets inside budgets: the members of a child's book take their turns in its parent's, from both buckets. So the limits of both
// hold, and all members of the family that always have something to copy get the same.
//
// Pure except for the pages: time is an argument, nothing blocks. Threading: one caller at a time.
#ifndef GPUSHARE_BROKER_COPY_BOOK_H_
#define GPUSHARE_BROKER_COPY_BOOK_H_

#include <array>
#include <cstdint>
#include <list>

#include "base/time.h"
#include "broker/seat.h"
#include "sched/token_bucket.h"
#include "spec/spec.h"

namespace gpushare::broker {

class CopyBook {
 public:
  static constexpr Nanos kTurn = Millis(2), kSavedUp = Millis(10);
  static constexpr Nanos kMostAhead =
      Millis(50);  // what a turn by the parent's limit may take of a lower one
  static constexpr uint64_t kLeastTurn = 64 << 10;  // bytes, for slow limits
  static constexpr Nanos kMostOwed = Seconds(10);   // the largest debt that a process leaves behind
  struct Member {
    Seat* seat = nullptr;
    CopyBook* book = nullptr;  // its tenant's: the one that it is a member of, or a child of that
    std::array<uint64_t, 2> granted{};
  };

  // For a book without members and children: `parent`, a book without a parent, must outlive it.
  void SetParent(CopyBook* parent) { parent_ = parent; }
  void SetLimits(const spec::Limits& limits, Time now, Changed& changed);
  Member* Join(Seat& seat, Changed& changed);
  // What the process has copied beyond its grants becomes the tenant's debt, so that a series of processes that copy once
  // each cannot pass the limit.
  void Leave(Member* member, Time now, Changed& changed);
  Time Look(Time now, Changed& changed);
  // When the debt against its own limits will be paid; `now` if there is none.
  Time ClearAt(Time now) const;

 private:
  struct Way {
    uint64_t rate = 0;  // bytes a second; 0: no limit
    sched::TokenBucket bucket;
  };
  CopyBook& root() { return parent_ == nullptr ? *this : *parent_; }
  // Its own way if that is limited, then its parent's if that is.
  template <typename Each>
  void ForLimited(size_t way, const Each& each);
  // From when on its members may have a turn; kNever: nothing limits them.
  Time OpenAt(size_t way, Time now);
  Time Serve(size_t way, Time now, Changed& changed);
  void Publish(Changed& changed);

  CopyBook* parent_ = nullptr;
  std::array<Way, 2> ways_;  // to the device, from it
  size_t count_ = 0;         // members of this tenant
  std::list<Member>
      members_;  // without a parent: its own and its children's, in the order of their turns
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_COPY_BOOK_H_
