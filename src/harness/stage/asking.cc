// SPDX-License-Identifier: Apache-2.0
#include "harness/stage/asking.h"

#include <sys/file.h>

#include <algorithm>

#include "base/status_macros.h"

namespace gpushare::harness {
namespace {

// How often to poll for the turn, on the run's clock: a blocking lock would stop a virtual clock.
constexpr Nanos kLookEvery = Micros(50);

}  // namespace

// The turn to call the driver, among processes. Without a file there is only this process.
class Asking::Turn {
 public:
  explicit Turn(Asking& asking) : fd_(asking.turns_.get()) {
    while (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      asking.clock_.SleepUntil(asking.clock_.Now() + kLookEvery);
    }
  }
  ~Turn() {
    if (fd_ >= 0) flock(fd_, LOCK_UN);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  const int fd_;
};

void Asking::Add(Memory* memory, const Allocations& pattern) {
  tenants_.push_back({memory, pattern});
  tenants_.back().ended = pattern.empty();
  nobody_asks_ = nobody_asks_ && pattern.empty();
  const base::MutexLock lock(&mutex_);
  records_.emplace_back();
}

void Asking::Play(Time start, Time end) {
  for (;;) {
    size_t number = tenants_.size();
    Nanos at{0};
    for (size_t i = 0; i < tenants_.size(); ++i) {
      if (tenants_[i].ended) continue;
      const Nanos due = tenants_[i].pattern.every * static_cast<int64_t>(tenants_[i].next);
      if (number < tenants_.size() && due >= at) continue;
      number = i;
      at = due;
    }
    if (number == tenants_.size() || start + at >= end) return;
    clock_.SleepUntil(start + at);
    const absl::Status asked = AskOnce(number, start);
    if (asked.ok()) continue;
    tenants_[number].ended = true;
    const base::MutexLock lock(&mutex_);
    records_[number].status = asked;
  }
}

absl::Status Asking::AskOnce(size_t number, Time start) {
  const Turn turn(*this);
  Tenant& tenant = tenants_[number];
  const std::vector<uint64_t>& sizes = tenant.pattern.sizes;
  const std::vector<MemoryFamily>& families = tenant.pattern.families;
  const uint64_t bytes = sizes[tenant.next % sizes.size()];
  const MemoryFamily family = families[tenant.next % families.size()];
  ++tenant.next;
  if (tenant.held.size() >= tenant.pattern.keep) {
    GPUSHARE_RETURN_IF_ERROR(GiveBackOldest(number));
  }
  const uint64_t held = tenant.held_bytes;
  const Nanos at = clock_.Now() - start;  // later than due if a free had to wait
  const auto before = static_cast<int64_t>(used_());
  const absl::StatusOr<uint64_t> pointer = tenant.memory->Allocate(family, bytes);
  const int64_t more = static_cast<int64_t>(used_()) - before;
  if (!pointer.ok() && !absl::IsResourceExhausted(pointer.status())) return pointer.status();
  if (pointer.ok()) {
    tenant.held.push_back({family, *pointer, bytes});
    tenant.held_bytes += bytes;
  }
  Account(number, more);
  {
    const base::MutexLock lock(&mutex_);
    Record& record = records_[number];
    record.requests.push_back({at, bytes, held, pointer.ok()});
    record.most_bytes =
        std::max(record.most_bytes, static_cast<uint64_t>(std::max<int64_t>(tenant.had_bytes, 0)));
  }
  return pointer.ok() || tenant.held.empty() ? absl::OkStatus() : GiveBackOldest(number);
}

absl::Status Asking::GiveBackOldest(size_t number) {
  Tenant& tenant = tenants_[number];
  const Held oldest = tenant.held.front();
  tenant.held.pop_front();
  tenant.held_bytes -= oldest.bytes;
  const auto before = static_cast<int64_t>(used_());
  const absl::Status freed = tenant.memory->Free(oldest.family, oldest.pointer, oldest.bytes);
  Account(number, static_cast<int64_t>(used_()) - before);
  return freed;
}

void Asking::Account(size_t number, int64_t more) {
  const auto held = [](const Tenant& tenant) { return static_cast<int64_t>(tenant.held_bytes); };
  tenants_[number].had_bytes += more;
  // A tenant's call may make the driver take unused memory from other tenants' pools. No tenant has less than it holds.
  int64_t not_its_own = std::max<int64_t>(held(tenants_[number]) - tenants_[number].had_bytes, 0);
  tenants_[number].had_bytes += not_its_own;
  for (Tenant& other : tenants_) {
    const int64_t unused = std::max<int64_t>(other.had_bytes - held(other), 0);
    const int64_t its = std::min(unused, not_its_own);
    other.had_bytes -= its;
    not_its_own -= its;
  }
}

Asking::Record Asking::Take(size_t tenant) const {
  const base::MutexLock lock(&mutex_);
  return records_[tenant];
}

}  // namespace gpushare::harness
