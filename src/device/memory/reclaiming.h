// SPDX-License-Identifier: Apache-2.0
// The reclaim callbacks that the calling thread is in. One that allocates, itself or through another one, is not asked again
// inside itself: it would never come to an end.
//
//   if (Reclaiming::Within(this)) return 0;
//   const Reclaiming here(this);
//   return callback(...);
#ifndef GPUSHARE_DEVICE_MEMORY_RECLAIMING_H_
#define GPUSHARE_DEVICE_MEMORY_RECLAIMING_H_

#include <utility>

namespace gpushare::device {

class Reclaiming {
 public:
  // `whose` stands for the callback.
  explicit Reclaiming(const void* whose) : whose_(whose), outer_(std::exchange(innermost, this)) {}
  ~Reclaiming() { innermost = outer_; }
  Reclaiming(const Reclaiming&) = delete;
  Reclaiming& operator=(const Reclaiming&) = delete;

  static bool Within(const void* whose) {
    for (const Reclaiming* in = innermost; in != nullptr; in = in->outer_) {
      if (in->whose_ == whose) return true;
    }
    return false;
  }

 private:
  inline static constinit thread_local const Reclaiming* innermost = nullptr;

  const void* const whose_;
  const Reclaiming* const outer_;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_MEMORY_RECLAIMING_H_
