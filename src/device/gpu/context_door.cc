// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/context_door.h"

namespace gpushare::device {

bool ContextDoor::Enter() {
  uint32_t inside = inside_.load();
  do {
    if (inside & kClosed) return false;
  } while (!inside_.compare_exchange_weak(inside, inside + 1));
  return true;
}

void ContextDoor::Leave() {
  if (inside_.fetch_sub(1) == (kClosed | 1)) clock_.Wake(inside_, INT32_MAX);
}

void ContextDoor::Close(Time deadline) {
  uint32_t inside = inside_.fetch_or(kClosed) | kClosed;
  while (inside != kClosed && clock_.Now() < deadline) {
    clock_.Wait(inside_, inside, deadline, Nanos(0));
    inside = inside_.load();
  }
  if (inside != kClosed) late_.store(true);
}

void ContextDoor::Ended() {
  ended_.store(1);
  clock_.Wake(ended_, INT32_MAX);
}

void ContextDoor::AwaitEnd() {
  while (ended_.load() == 0) clock_.Wait(ended_, 0, kNever, Nanos(0));
}

}  // namespace gpushare::device
