// SPDX-License-Identifier: Apache-2.0
// Plays the tenants' memory requests (allocations.h), all of a program on one thread: an increase of the device's used memory
// during a call belongs to the tenant that made it. If the device only tells the sum over all processes, these take turns, one call
// at a time.
//
//   Asking asking(clock, [&] { return witness.MemoryUsed(); });
//   asking.Add(&seat, plan.allocations);
//   GPUSHARE_RETURN_IF_ERROR(asking.Play(start, start + plan.length));
//   outcome.memory = asking.TakeRequests(0);
#ifndef GPUSHARE_HARNESS_STAGE_ASKING_H_
#define GPUSHARE_HARNESS_STAGE_ASKING_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/sync.h"
#include "base/unique_fd.h"
#include "harness/allocations.h"

namespace gpushare::harness {

// The memory calls of one tenant's program.
class Memory {
 public:
  virtual ~Memory() = default;
  // ResourceExhausted: refused.
  virtual absl::StatusOr<uint64_t> Allocate(MemoryFamily family, uint64_t bytes) = 0;
  // Returns once the driver has the memory back.
  virtual absl::Status Free(MemoryFamily family, uint64_t pointer, uint64_t bytes) = 0;
};

class Asking {
 public:
  // `used` returns the device memory in bytes, by the device's own account, of this program; or of all programs that have opened the
  // file of `turns`.
  Asking(base::Clock& clock, std::function<uint64_t()> used, base::UniqueFd turns = {})
      : clock_(clock), used_(std::move(used)), turns_(std::move(turns)) {}

  // Adds a tenant, also one without requests. `memory` must outlive this.
  void Add(Memory* memory, const Allocations& pattern);

  // Plays all requests: each tenant's first at the start, the others at regular intervals; ties go by the order of Add(). An error
  // other than too little memory ends a tenant and is recorded. Memory held at the end is not freed.
  void Play(Time start, Time end);

  // A tenant's results so far; may be called during Play().
  struct Record {
    std::vector<MemoryRequest> requests;
    uint64_t most_bytes = 0;  // peak, by the device's account
    absl::Status status = absl::OkStatus();
  };
  Record Take(size_t tenant) const;
  bool nobody_asks() const { return nobody_asks_; }

 private:
  struct Held {
    MemoryFamily family;
    uint64_t pointer, bytes;
  };
  struct Tenant {
    Memory* memory;
    Allocations pattern;
    uint64_t next = 0;  // number of requests so far
    std::deque<Held> held = {};
    uint64_t held_bytes = 0;
    int64_t had_bytes = 0;  // current, by the device's account
    bool ended = false;
  };
  class Turn;
  absl::Status AskOnce(size_t number, Time start);
  absl::Status GiveBackOldest(size_t number);
  // Records that the device's used memory changed by `more` during a call of the tenant.
  void Account(size_t number, int64_t more);

  base::Clock& clock_;
  const std::function<uint64_t()> used_;
  const base::UniqueFd turns_;  // its file lock is the turn, which a dying process releases
  std::vector<Tenant> tenants_;
  bool nobody_asks_ = true;
  mutable base::Mutex mutex_;  // never held across a call of the driver
  std::vector<Record> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_ASKING_H_
