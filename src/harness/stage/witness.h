// SPDX-License-Identifier: Apache-2.0
// Who had the device, by the device's own account: what no limiter's books have a part in.
#ifndef GPUSHARE_HARNESS_STAGE_WITNESS_H_
#define GPUSHARE_HARNESS_STAGE_WITNESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "harness/plan.h"
#include "player/program.h"

struct CUstream_st;

namespace gpushare::harness {

// Made before the program first uses the GPU. Calls the driver past whatever stands in for it.
class Witness {
 public:
  // Of the plan's driver, by a name that nobody stands in for: as it is told there.
  static absl::StatusOr<std::unique_ptr<Witness>> Open(const Plan& plan);
  virtual ~Witness() = default;

  // The simulated GPU's own, unless that goes by the wall; else the machine's.
  base::Clock& clock() { return *clock_; }
  // The driver itself.
  void* library() const { return library_; }

  // What goes to the stream counts for the account, a number from 1: about so many kernels.
  virtual absl::Status Follow(CUstream_st* stream, uint32_t account, size_t kernels) = 0;
  // Where the account's next kernel, which takes so long alone, is to say when it ran; 0: it need not. By one thread for each
  // account.
  virtual uint64_t NextStamps(uint32_t, Nanos) { return 0; }

  // Whether Used() is known while they play; else all that is known is told at the end, by Tell().
  virtual bool knows_now() const = 0;
  // Device time of the account until now, in ns; its part of the time of all SMs, where `sm_time`.
  virtual int64_t Used(uint32_t, bool) const { return 0; }
  // What the account's kernels take alone, in ns; of one that is running its part.
  virtual int64_t Work(uint32_t) const { return 0; }
  // When all have ended whatever they launched. Times count from `start`.
  virtual absl::Status Tell(Time, Outcome*) { return absl::OkStatus(); }
  // Of a tolerant plan, where nobody is waited for, since there may be kernels that never end: what is known by now. It is
  // asked before something breaks as well, since contexts may be lost, and with them what is in their memory.
  virtual absl::Status TellSoFar(Time, Outcome*) { return absl::OkStatus(); }

  // What this process has of the device's memory, or at least what that changes by, in bytes; or, where the witness is what
  // kernels say, the same of all processes together.
  virtual uint64_t MemoryUsed() const = 0;
  // Makes of a step, whose kernel has that name, one that touches what is not its own when it ends; or one that never ends, of
  // the account, from `at` on.
  virtual absl::Status MakeIllegal(const std::string& kernel, player::Step* step) = 0;
  virtual absl::Status MakeEndless(const std::string& kernel, uint32_t account, Time at,
                                   player::Step* step) = 0;

 protected:
  // Opens the library, and attaches to its clock.
  absl::Status OpenLibrary(const std::string& path);

 private:
  std::unique_ptr<base::Clock> own_clock_;
  base::Clock* clock_ = nullptr;
  void* library_ = nullptr;
};

// The simulated GPU's ground truth.
absl::StatusOr<std::unique_ptr<Witness>> OpenTruth(const Plan& plan);
// What kernels say themselves of when they ran (workload/spin.h), on any GPU.
absl::StatusOr<std::unique_ptr<Witness>> OpenStamps(const Plan& plan);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_WITNESS_H_
