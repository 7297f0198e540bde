// SPDX-License-Identifier: Apache-2.0
// Tenants that ask for memory (allocations.h), all of a program on one thread: what the device has more after a call is what
// the tenant has more that made it. Where the device tells of all processes together these take turns, a call at a time.
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

// Memory as one tenant's program asks for it.
class Memory {
 public:
  virtual ~Memory() = default;
  // ResourceExhausted: refused.
  virtual absl::StatusOr<uint64_t> Allocate(MemoryFamily family, uint64_t bytes) = 0;
  // Returns when the driver has it back.
  virtual absl::Status Free(MemoryFamily family, uint64_t pointer, uint64_t bytes) = 0;
};

class Asking {
 public:
  // `used`: what the program has of the device's memory by the device's own account, in bytes; or what all have that have
  // opened the file of `turns` as well.
  Asking(base::Clock& clock, std::function<uint64_t()> used, base::UniqueFd turns = {})
      : clock_(clock), used_(std::move(used)), turns_(std::move(turns)) {}

  // One that asks for nothing is counted as well. `memory` outlives this.
  void Add(Memory* memory, const Allocations& pattern);

  // Each tenant's first request is at the start, the others at even times; in the order in which they were added where
  // times are the same. Who cannot be served any more for another reason than too little memory ends, and its error is
  // kept. What it holds at the end stays.
  void Play(Time start, Time end);

  // While Play() goes on or after it: what has come of a tenant until now.
  struct Record {
    std::vector<MemoryRequest> requests;
    uint64_t most_bytes = 0;  // by the device's account
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
    uint64_t next = 0;  // its requests so far
    std::deque<Held> held = {};
    uint64_t held_bytes = 0;
    int64_t had_bytes = 0;  // by the device's account
    bool ended = false;
  };
  class Turn;
  absl::Status AskOnce(size_t number, Time start);
  absl::Status GiveBackOldest(size_t number);
  // The device has so much more in use after a call of the tenant's.
  void Account(size_t number, int64_t more);

  base::Clock& clock_;
  const std::function<uint64_t()> used_;
  const base::UniqueFd turns_;  // whose lock is the turn, which goes with the process that has it
  std::vector<Tenant> tenants_;
  bool nobody_asks_ = true;
  mutable base::Mutex mutex_;  // never held across a call of the driver
  std::vector<Record> records_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_ASKING_H_
