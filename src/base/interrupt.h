// SPDX-License-Identifier: Apache-2.0
// Lets the host program end a wait of the calling thread early, for instance because a signal has come.
//
//   const Interrupt before = ExchangeInterrupt({&SignalCame, this});      // around a call that may wait
//
//   InterruptWatch interrupt(clock.Now());                                // in what waits
//   while (!done && !interrupt.Ask(now)) { clock.Wait(word, seen, std::min(deadline, interrupt.next()), spin); ... }
//
// A call then waits once, for its whole timeout, and keeps its place in line. Without this, an interruptible program would cut
// its waits into short ones, each of which starts at the end of the line.
//
// Threading: each thread has its own.
#ifndef GPUSHARE_BASE_INTERRUPT_H_
#define GPUSHARE_BASE_INTERRUPT_H_

#include "base/time.h"

namespace gpushare::base {

struct Interrupt {
  int (*asked)(void* context) = nullptr;  // returns nonzero to end the wait; null: never asked
  void* context = nullptr;
};

// Sets the calling thread's interrupt and returns the previous one.
Interrupt ExchangeInterrupt(Interrupt interrupt);

// Asks the calling thread's interrupt during one wait.
class InterruptWatch {
 public:
  explicit InterruptWatch(Time now);

  // The time at which to ask next: the latest moment to wake up.
  Time next() const { return next_; }
  // Whether the interrupt has ended the wait.
  bool ended() const { return ended_; }
  // Asks if it is time to, and returns ended(). Runs the program's code, so hold no lock. Waits that begin inside that code
  // are not asked.
  bool Ask(Time now) { return ended_ || (now >= next_ && AskNow(now)); }

 private:
  bool AskNow(Time now);

  const Interrupt interrupt_;
  Time next_;
  bool ended_ = false;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_INTERRUPT_H_
