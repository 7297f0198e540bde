// SPDX-License-Identifier: Apache-2.0
#include "device/gpu/context_door.h"

namespace gpushare::device {

void ContextDoor::Close(Time deadline) {
  door_.Close();
  if (!door_.AwaitEmpty(deadline)) late_.store(true);
}

void ContextDoor::Ended() {
  ended_.store(1);
  clock_.Wake(ended_, INT32_MAX);
}

void ContextDoor::AwaitEnd() {
  while (ended_.load() == 0) clock_.Wait(ended_, 0, kNever, Nanos(0));
}

}  // namespace gpushare::device
