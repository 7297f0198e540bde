// SPDX-License-Identifier: Apache-2.0
// Who had the device, by the device's own account: what no limiter's books have a part in.
#ifndef GPUSHARE_HARNESS_STAGE_WITNESS_H_
#define GPUSHARE_HARNESS_STAGE_WITNESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpushare/testing/sim.h"

namespace gpushare::harness {

// Of the simulated GPU: its ground truth, and its clock.
class Witness {
 public:
  // `path`: the simulated driver's, by a name that nobody stands in for. Its clock may go by the wall.
  static absl::StatusOr<std::unique_ptr<Witness>> Open(const std::string& path);

  base::Clock& clock() { return *clock_; }
  // What goes to the stream counts for the account, a number from 1.
  void Follow(CUstream_st* stream, uint32_t account) const { set_account_(stream, account); }
  // Device time of the account until now, in ns; its part of the time of all SMs, where `sm_time`.
  int64_t Used(uint32_t account, bool sm_time) const;
  // What this process has of the device's memory, in bytes.
  uint64_t MemoryUsed() const { return memory_used_(0); }
  // From here on a kernel of that name breaks when it ends, or never does: the simulated GPU runs none.
  absl::Status MakeFaulty(const std::string& kernel, bool endless) const;
  // The driver itself, past what stands in for it.
  void* library() const { return library_; }

 private:
  Witness() = default;
  std::unique_ptr<base::Clock> own_clock_;
  base::Clock* clock_ = nullptr;
  decltype(&gpushare_sim_set_account) set_account_ = nullptr;
  decltype(&gpushare_sim_account_truth) account_truth_ = nullptr;
  decltype(&gpushare_sim_account_sm_time) account_sm_time_ = nullptr;
  decltype(&gpushare_sim_memory_used) memory_used_ = nullptr;
  decltype(&gpushare_sim_inject) inject_ = nullptr;
  void* library_ = nullptr;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_WITNESS_H_
