// SPDX-License-Identifier: Apache-2.0
// Measures which tenant had the device by the device's own account, independently of any limiter's books.
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

// Create it before the program first uses the GPU. It calls the driver directly, bypassing preloaded libraries.
class Witness {
 public:
  // Opens the witness that the plan asks for on the plan's driver, whose file name no preloaded library recognises.
  static absl::StatusOr<std::unique_ptr<Witness>> Open(const Plan& plan);
  virtual ~Witness() = default;

  // The simulated GPU's virtual clock if it has one, else the machine's.
  base::Clock& clock() { return *clock_; }
  // The driver itself.
  void* library() const { return library_; }

  // Counts the stream's work for `account`, a number from 1. `kernels` is an estimate of how many there will be.
  virtual absl::Status Follow(CUstream_st* stream, uint32_t account, size_t kernels) = 0;
  // The address for the stamps of the account's next kernel, which takes the given time alone; 0: none needed. Called by one thread
  // per account.
  virtual uint64_t NextStamps(uint32_t, Nanos) { return 0; }

  // Whether Used() works during the run; otherwise everything is told at the end, by Tell().
  virtual bool knows_now() const = 0;
  // The account's device time until now, in ns; with `sm_time`, its part of the time of all SMs.
  virtual int64_t Used(uint32_t, bool) const { return 0; }
  // The sum of the durations alone of the account's kernels in ns, with a running kernel counted in part.
  virtual int64_t Work(uint32_t) const { return 0; }
  // Completes the outcome after all launched work has ended. Times count from `start`.
  virtual absl::Status Tell(Time, Outcome*) { return absl::OkStatus(); }
  // Tell() for a tolerant plan, in which kernels may never end: fills in what is known so far. It is also called before a fault,
  // since a lost context loses the stamps in its memory.
  virtual absl::Status TellSoFar(Time, Outcome*) { return absl::OkStatus(); }

  // Device memory of this process in bytes, up to a constant. If stamps are the witness, that of all processes together.
  virtual uint64_t MemoryUsed() const = 0;
  // Turns a step, whose kernel is called `kernel`, into one that makes an illegal access when it ends; or into one of `account` that
  // never ends, from `at` on.
  virtual absl::Status MakeIllegal(const std::string& kernel, player::Step* step) = 0;
  virtual absl::Status MakeEndless(const std::string& kernel, uint32_t account, Time at,
                                   player::Step* step) = 0;

 protected:
  // Opens the driver and attaches to its clock.
  absl::Status OpenLibrary(const std::string& path);

 private:
  std::unique_ptr<base::Clock> own_clock_;
  base::Clock* clock_ = nullptr;
  void* library_ = nullptr;
};

// The simulated GPU's ground truth.
absl::StatusOr<std::unique_ptr<Witness>> OpenTruth(const Plan& plan);
// Stamps that kernels write when they run (workload/spin.h), on any GPU.
absl::StatusOr<std::unique_ptr<Witness>> OpenStamps(const Plan& plan);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_WITNESS_H_
