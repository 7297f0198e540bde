// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/door.h"

namespace gpushare::device {

bool Door::Enter(bool within) {
  uint32_t inside = inside_.load();
  do {
    if ((inside & kClosed) != 0 && !(within && inside != kClosed)) return false;
  } while (!inside_.compare_exchange_weak(inside, inside + 1));
  return true;
}

void Door::Leave() {
  if (inside_.fetch_sub(1) == (kClosed | 1)) clock_.Wake(inside_, INT32_MAX);
}

bool Door::AwaitEmpty(Time deadline) {
  uint32_t inside = inside_.load();
  while ((inside & ~kClosed) != 0) {
    if (clock_.Now() >= deadline) return false;
    clock_.Wait(inside_, inside, deadline, Nanos(0));
    inside = inside_.load();
  }
  return true;
}

}  // namespace gpushare::device
