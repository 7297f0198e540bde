// SPDX-License-Identifier: Apache-2.0
#include "sim/processes/turn.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

// Wall time: how long the end of a process may go unnoticed by a process that waits for the turn, and by one that has just had
// it.
constexpr long kPatrolNs = 2'000'000, kRestNs = 10'000'000;

void Sleep(std::atomic<uint32_t>* word, long ns) {
  const timespec timeout{0, ns};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, 0, &timeout, nullptr, 0);
}

void Wake(std::atomic<uint32_t>* word) {
  word->store(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

uint64_t SharedTurn::now() const {
  return AsNow(device_.segment_->now.load(std::memory_order_acquire));
}

// Whether all the processes that the clock waits for were there once.
bool SharedTurn::IsReady() const {
  if (ready_) return true;
  if (device_.segment_->incarnations < device_.settings_.processes) return false;
  ready_ = true;
  return true;
}

bool SharedTurn::AnyDead() const {
  for (uint32_t i = 0; i < kPlaces; ++i) {
    if (device_.IsDead(i)) return true;
  }
  return false;
}

// The live process that is due first; kNobody if none is due. Events of the device count only while some thread waits for time
// to pass.
uint32_t SharedTurn::Pick() {
  Segment& segment = *device_.segment_;
  for (;;) {
    bool drive = false;
    for (const ProcessPlace& place : segment.places) {
      if (place.incarnation != 0 && (place.waits != 0 || place.next_thread != kForever))
        drive = true;
    }
    uint32_t best = kNobody;
    uint64_t first = kForever;
    for (uint32_t i = 0; i < kPlaces; ++i) {
      const ProcessPlace& place = segment.places[i];
      if (place.incarnation == 0) continue;
      uint64_t at = place.next_thread;
      if (drive) at = std::min(at, place.next_event.load());
      if (place.request != 0) at = 0;
      if (at < first) {
        first = at;
        best = i;
      }
    }
    if (best == kNobody || !device_.IsDead(best)) return best;
    device_.DeclareOver(best);
  }
}

void SharedTurn::Give(uint32_t place) {
  Segment& segment = *device_.segment_;
  segment.holder = place;
  if (place == kNobody) return;
  segment.places[place].request = 0;
  Wake(&segment.places[place].turn);
}

uint64_t SharedTurn::Join(uint64_t now, int* cpu) {
  device_.file_.Lock();
  Segment& segment = *device_.segment_;
  const int chosen = segment.cpu;
  cpu_set_t allowed;
  if (chosen >= 0 && chosen < CPU_SETSIZE && sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
      CPU_ISSET(static_cast<size_t>(chosen), &allowed)) {
    *cpu = chosen;
  } else {
    segment.cpu = *cpu = sched_getcpu();
  }
  if (segment.holder == kNobody && IsReady()) Give(Pick());
  device_.file_.Unlock();
  uint64_t at = now;
  Await(&at);
  return at;
}

bool SharedTurn::Await(uint64_t* now) {
  ProcessPlace& own = device_.own();
  for (;;) {
    if (!device_.joined()) return false;
    if (own.turn.exchange(0) != 0 && device_.segment_->holder == device_.place() &&
        !taken_.exchange(true)) {
      break;
    }
    Sleep(&own.turn, taken_ ? kRestNs : kPatrolNs);
    if (own.turn == 0 && !taken_) Patrol();
  }
  *now = this->now();
  return true;
}

// Checks whether the process with the turn has died: nobody else would pass the turn on.
void SharedTurn::Patrol() {
  Segment& segment = *device_.segment_;
  const uint32_t seen = segment.holder;
  if (seen == device_.place()) {
    segment.places[seen].turn = 1;  // the process that gave us the turn died before it woke us
    return;
  }
  const bool lost = seen != kNobody && device_.IsGone(seen);
  const bool free = seen == kNobody && IsReady();
  const bool left_out = device_.own().incarnation != device_.incarnation_ ||
                        segment.incarnations < device_.incarnation_;
  if (!lost && !free && !left_out && !AnyDead()) return;
  device_.file_.Lock();
  if (device_.joined()) {
    device_.Repair();
    device_.Sweep();
    if (segment.holder >= kPlaces) Give(IsReady() ? Pick() : kNobody);
  }
  device_.file_.Unlock();
}

bool SharedTurn::Pass(const Due& due) {
  device_.file_.Lock();
  if (!device_.joined()) {
    device_.file_.Unlock();
    return true;  // the process is about to end
  }
  Segment& segment = *device_.segment_;
  ProcessPlace& own = device_.own();
  device_.Repair();
  segment.now = std::max(AsNow(segment.now), due.now);
  own.next_thread = due.thread;
  own.next_event = due.event;
  own.waits = due.waits ? 1 : 0;
  const uint32_t next = Pick();
  const bool stays = next == device_.place();
  if (stays) {
    segment.holder = next;
    own.request = 0;
  } else {
    taken_ = false;
    Give(next);
  }
  device_.file_.Unlock();
  return !stays;
}

std::string SharedTurn::Describe() const {
  const Segment& segment = *device_.segment_;
  if (!IsReady()) {
    return "it waits for " + std::to_string(device_.settings_.processes) +
           " processes (processes=), of which " + std::to_string(segment.incarnations) +
           " have come";
  }
  const uint32_t holder = segment.holder;
  if (holder >= kPlaces) return std::string();
  return "the process in place " + std::to_string(holder) + " (pid " +
         std::to_string(segment.places[holder].pid) + ") has the turn and does not hand it on";
}

uint64_t SharedTurn::Limit(uint64_t now, bool* others_drive) {
  *others_drive = false;
  if (!device_.joined()) return kForever;
  Segment& segment = *device_.segment_;
  segment.now.store(now, std::memory_order_release);
  uint64_t limit = kForever;
  for (uint32_t i = 0; i < kPlaces; ++i) {
    const ProcessPlace& place = segment.places[i];
    if (i == device_.place() || place.incarnation.load(std::memory_order_relaxed) == 0) continue;
    const uint64_t thread = place.next_thread.load(std::memory_order_relaxed);
    if (thread != kForever || place.waits.load(std::memory_order_relaxed) != 0)
      *others_drive = true;
    uint64_t at = std::min(thread, place.next_event.load(std::memory_order_relaxed));
    if (place.request.load(std::memory_order_relaxed) != 0) at = 0;
    // At equal times the lower place comes first.
    if (at != kForever && i > device_.place()) ++at;
    limit = std::min(limit, at);
  }
  return limit;
}

void SharedTurn::Request() {
  device_.file_.Lock();
  Segment& segment = *device_.segment_;
  if (device_.joined()) device_.own().request = 1;
  if (device_.joined() && segment.holder == kNobody && IsReady()) Give(Pick());
  device_.file_.Unlock();
}

}  // namespace gpushare::sim
