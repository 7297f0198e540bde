// SPDX-License-Identifier: Apache-2.0
// A tenant's limit on copies between host and device that its processes have in common.
//
// Each direction is a token bucket of bytes. While it has some, those that ask get a turn each, one after the other: 2 ms of
// the limit, which they may save up until they copy. So the sum keeps to the limit whoever copies, and each of those
// that always have something to copy gets the same.
//
//   CopyBook book;
//   book.SetLimits(limits, now, changed);
//   CopyBook::Member* a = book.Join(seat, changed);
//   Time next = book.Look(now, changed);               // reads who asks; look again by then
//   book.Leave(a, now, changed);
//
// Pure but for the pages: time is an argument, nothing blocks. One caller at a time.
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
  static constexpr uint64_t kLeastTurn = 64 << 10;  // of a slow limit
  static constexpr Nanos kMostOwed = Seconds(10);   // that one leaves behind, whatever it says
  struct Member {
    Seat* seat = nullptr;
    std::array<uint64_t, 2> granted{};
  };

  void SetLimits(const spec::Limits& limits, Time now, Changed& changed);
  Member* Join(Seat& seat, Changed& changed);
  // What it has copied and was not granted its tenant owes: processes that each copy once do not pass the limit.
  void Leave(Member* member, Time now, Changed& changed);
  Time Look(Time now, Changed& changed);
  // When nothing is owed any more; `now` at the earliest.
  Time ClearAt(Time now) const;

 private:
  struct Way {
    uint64_t rate = 0;  // bytes a second; 0: no limit
    sched::TokenBucket bucket;
  };
  Time Serve(size_t way, Time now, Changed& changed);
  void Publish(Changed& changed);

  std::array<Way, 2> ways_;    // to the device, from it
  std::list<Member> members_;  // whose turn comes first stands first
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_COPY_BOOK_H_
