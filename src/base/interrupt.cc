// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <utility>

namespace gpushare::base {
namespace {

constexpr Nanos kAskEvery = Millis(50);

thread_local Interrupt current_interrupt;

}  // namespace

Interrupt ExchangeInterrupt(Interrupt interrupt) {
  return std::exchange(current_interrupt, interrupt);
}

InterruptWatch::InterruptWatch(Time now)
    : interrupt_(current_interrupt),
      next_(interrupt_.asked != nullptr ? After(now, kAskEvery) : kNever) {}

bool InterruptWatch::AskNow(Time now) {
  struct Restores {
    ~Restores() { current_interrupt = before; }
    const Interrupt before = ExchangeInterrupt({});
  } const restores;
  next_ = After(now, kAskEvery);
  ended_ = interrupt_.asked(interrupt_.context) != 0;
  return ended_;
}

}  // namespace gpushare::base
