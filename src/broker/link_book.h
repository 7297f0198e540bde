// SPDX-License-Identifier: Apache-2.0
// Divides the link between the host and one GPU among the processes that copy, in each direction, by the weights of their tenants.
//
// Start-time fair queueing in bytes: a grant advances its process's virtual time by its bytes over the process's weight, and
// the process that is furthest behind gets the next one. A process that comes back from a pause starts level with the others.
// Grants are given ahead, enough of them to keep the link busy from one look to the next, so that no copy waits for an answer.
// Who is furthest behind is waited for while it copies what it was granted, for a device executes copies in the order in which it
// gets them and not by weight; but only if it keeps the link busy meanwhile. Beside one that has too little in flight for that, the
// others have less in flight as well. A process that copies while no other does is not bound.
//
//   LinkBook book;
//   LinkBook::Member* a = book.Join(tenant, seat, changed);
//   Time next = book.Look(now, changed);               // reads the pages; look again at `next` or before
//   book.Leave(a, changed);
//
// Priorities do not divide the link: processes of one priority share it, without regard to those of others.
//
// Pure except for the pages: time is an argument, nothing blocks. Threading: one caller at a time.
#ifndef GPUSHARE_BROKER_LINK_BOOK_H_
#define GPUSHARE_BROKER_LINK_BOOK_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "base/time.h"
#include "broker/seat.h"
#include "broker/time_book.h"
#include "sched/arbiter.h"

namespace gpushare::broker {

class LinkBook {
 public:
  static constexpr uint64_t kGrant = uint64_t{4} << 20;  // bytes
  // What processes of one priority may have been granted and not copied, together; more if the link is faster.
  static constexpr uint64_t kDepth = uint64_t{64} << 20;
  // The most, however much they say they take: with it a look at many that lie stays short.
  static constexpr uint64_t kMostDepth = uint64_t{512} << 20;
  // How often pages are read while several copy: when the link can have copied so much, within these bounds.
  static constexpr uint64_t kLookBytes = uint64_t{24} << 20;
  static constexpr Nanos kLook = Micros(250), kSeldomLook = Millis(5);
  // A process has a part of the link while it copies at least kLeast in each kStopped, or would if it were let. What copies less
  // is not worth the looks.
  static constexpr uint64_t kLeast = uint64_t{8} << 20;  // bytes
  static constexpr Nanos kStopped = Millis(20);
  // Grants of a process that neither copies nor says that copies are done are waited for during so many looks.
  static constexpr int kLapse = 4;
  // The rate of the link is measured over a time in which it can copy kWindowBytes. Below kBusy of the best it counts as not busy;
  // who is waited for meanwhile is then not waited for from kSlow to kSlowest, each time twice as long.
  static constexpr uint64_t kWindowBytes = uint64_t{128} << 20;
  static constexpr Nanos kWindow = Millis(4), kLongestWindow = Millis(64);
  static constexpr Nanos kSlow = Millis(100), kSlowest = Millis(1600);
  static constexpr double kBusy = 0.85;
  // No link counts as faster, for what is done is only what processes say.
  static constexpr double kFastest = 1024;  // bytes per ns
  // By such a part the best rate becomes less in each window with a lower one; in one in which the link was idle, by kIdleDecay.
  static constexpr double kDecay = 0.05, kIdleDecay = 0.01;
  // A device copies in order, so who has little in flight has of the link what that is of all that is in flight. As long as such a
  // process has less than kFair of its part, those that have theirs may have less in flight: in each window kStep of what they had,
  // down to kLeastWindow. If that leaves the link less than kNearlyBusy as busy as it can be, they have one step more for kSlow to
  // kSlowest. Such a process is waited for only if that costs no more either.
  static constexpr uint64_t kWholeWindow = uint64_t{8} << 20, kLeastWindow = uint64_t{256} << 10;
  static constexpr double kFair = 0.9, kNearlyBusy = 0.95, kStep = 0.75;
  // By such a part they may have more in each window in which nobody has less than its part.
  static constexpr double kWiden = 0.05;

  struct Member {
    const TimeBook::Tenant* tenant = nullptr;  // says what it weighs
    Seat* seat = nullptr;
    struct Way {
      sched::Band band =
          sched::Band::kNormal;      // at the last look: whose queue its virtual time is of
      uint64_t given = 0, done = 0;  // as the process reports; they only grow
      uint64_t took = 0;             // given since the look before
      uint64_t granted = 0;
      uint64_t counted = 0;  // of what is done, for the rate of the link
      double had = 0;        // its virtual time: bytes granted, each over its weight then
      Time
          since{};  // when the present kStopped began, what it had given then, and whether its grants held it since
      uint64_t before = 0;
      bool held = false;
      Time moved_at{};          // when what is given, done or granted last changed
      bool copies = false;      // it has a part of the link
      bool bound = false;       // by its grants, because another copies too
      bool waited = false;      // others have waited for it in this window
      uint64_t given_then = 0;  // when the window began
      bool narrow = false;      // it has its part, and another with less in flight does not
      bool little = false;  // it had less than its part because of that, since the window was whole
      bool limited = false;  // its tenant's limit on copies holds it: it is not waited for
      Time slow_until{};     // it is not waited for
      Nanos slow{0};         // how long it was not waited for when it last was slow
      double slow_by = 0;    // the best rate by which it was slow
    };
    std::array<Way, 2> ways;  // to the device, from it
    double weight = 1;        // scratch of Serve()
  };

  // `tenant` is of the same GPU's TimeBook and outlives the member.
  Member* Join(const TimeBook::Tenant* tenant, Seat& seat, Changed& changed);
  void Leave(Member* member, Changed& changed);
  Time Look(Time now, Changed& changed);

 private:
  struct Queue {
    double reached = 0;            // the greatest virtual time at which a grant began
    Time since{};                  // when the window began; Time{}: there is none
    uint64_t done = 0;             // in the window
    double best = 0;               // bytes per ns, of a window; 0: not known
    bool idle = false;             // a look of the window found nothing in flight
    double window = kWholeWindow;  // bytes: what those that are narrow may have in flight
    Time widened_until{};          // until then the window does not become less
    Nanos widened{0};              // how long that was
    double widened_by = 0;         // the best rate by which it was too narrow
    bool narrowed = false;         // the latest step made it narrower
  };
  static Nanos LookEvery(const Queue& queue);
  static bool IsSlow(const Member::Way& way, const Queue& queue, Time now);
  Queue& QueueOf(sched::Band band, size_t way) { return queues_[static_cast<size_t>(band)][way]; }
  void Publish(Changed& changed);
  void Read(Member& member, size_t way, Time now);
  void Unbind(Member& member, size_t way);
  void Weigh(sched::Band band, size_t way);
  void Measure(sched::Band band, size_t way, Time now);
  Time Serve(sched::Band band, size_t way, Time now, Changed& changed);
  void Grant(sched::Band band, size_t way, Time now);
  // Decides how much those may have in flight that have their part. `busy`: how busy the link was in the window, of what it can be.
  void Narrow(sched::Band band, size_t way, double busy, Time now);
  static void Widen(Member& member, size_t way);

  std::list<Member> members_;
  std::array<std::array<Queue, 2>, 3> queues_;  // by priority and direction
};

}  // namespace gpushare::broker

#endif  // GPUSHARE_BROKER_LINK_BOOK_H_
