// SPDX-License-Identifier: Apache-2.0
// Partitions of a GPU's SMs: who has which, and the green context of each.
//
//   Partitions partitions(driver, /*ordinal=*/0, /*sm_count=*/132);
//   GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Partition> own, partitions.Make("a", 0.3, nullptr));   // 40 SMs
//
// The driver gives SMs out in steps. A partition of a share gets the least number of steps that holds it. One that
// grows or shrinks is made anew over as many of its old steps as it needs; streams keep the one that they were made
// on, and a step is free again when the last partition with it is gone.
//
// Threading: thread-safe. No lock is held across a call of the driver.
#ifndef GPUSHARE_DEVICE_SHARE_PARTITION_H_
#define GPUSHARE_DEVICE_SHARE_PARTITION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "driver/driver.h"

namespace gpushare::device {

class Partitions;

class Partition {
 public:
  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  driver::GreenContext green() const { return green_; }
  // What the driver calls it where a context is asked for.
  driver::Context context() const { return context_; }
  int sms() const { return sms_; }
  double share() const { return share_; }  // of the GPU's SMs

 private:
  friend class Partitions;
  explicit Partition(Partitions& owner) : owner_(owner) {}

  Partitions& owner_;
  std::vector<size_t> steps_;
  driver::GreenContext green_ = nullptr;
  driver::Context context_ = nullptr;
  int sms_ = 0;
  double share_ = 0;
};

// Outlives the partitions.
class Partitions {
 public:
  Partitions(const driver::Driver& driver, int ordinal, int sm_count)
      : driver_(driver), ordinal_(ordinal), sm_count_(sm_count) {}

  // ResourceExhausted: too few SMs are in no partition; `old`, which it takes the place of, counts as free.
  // Unimplemented: the driver has no green contexts.
  absl::StatusOr<std::shared_ptr<Partition>> Make(const std::string& tenant, double share,
                                                  const Partition* old);
  // What Make() would give for `share`.
  absl::StatusOr<double> Round(double share);
  int step() const { return step_sms_; }  // SMs; 0 before the first call of the others

 private:
  friend class Partition;
  absl::Status Split();
  size_t StepsFor(double share) const;
  void Return(const std::vector<size_t>& steps);

  const driver::Driver& driver_;
  const int ordinal_, sm_count_;
  base::Mutex mutex_;
  bool split_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<driver::Driver::SmStep> steps_;  // constant once split
  int step_sms_ = 0;
  std::vector<int> uses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_SHARE_PARTITION_H_
