// SPDX-License-Identifier: Apache-2.0
// Whether a wait of the calling thread is to end before its time: what the program around us says, of a signal for instance.
//
//   const Interrupt before = ExchangeInterrupt({&SignalCame, this});      // around a call that may wait
//
//   InterruptWatch interrupt(clock.Now());                                // in what waits
//   while (!done && !interrupt.Ask(now)) { clock.Wait(word, seen, std::min(deadline, interrupt.next()), spin); ... }
//
// One call waits once for as long as it is to, and keeps its place in line: a program that can be interrupted needs not cut
// its waits into pieces, each of which would come last.
//
// Threading: each thread has its own.
#ifndef GPUSHARE_BASE_INTERRUPT_H_
#define GPUSHARE_BASE_INTERRUPT_H_

#include "base/time.h"

namespace gpushare::base {

struct Interrupt {
  int (*asked)(void* context) = nullptr;  // not 0: the wait ends; null: nobody is asked
  void* context = nullptr;
};

// Sets the calling thread's, and returns what it had.
Interrupt ExchangeInterrupt(Interrupt interrupt);

// The calling thread's, over one wait.
class InterruptWatch {
 public:
  explicit InterruptWatch(Time now);

  // When the thread has to be awake to be asked.
  Time next() const { return next_; }
  // Whether it has said that the wait is to end.
  bool ended() const { return ended_; }
  // The same; asks when it is time to, which runs code of the program: with no lock held. What waits there is not asked.
  bool Ask(Time now) { return ended_ || (now >= next_ && AskNow(now)); }

 private:
  bool AskNow(Time now);

  const Interrupt interrupt_;
  Time next_;
  bool ended_ = false;
};

}  // namespace gpushare::base

#endif  // GPUSHARE_BASE_INTERRUPT_H_
