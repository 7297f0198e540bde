// SPDX-License-Identifier: Apache-2.0
// Work that is all there before the first of it begins, so that no host's time is in it: behind a kernel that is long enough.
//
//   Backlog backlog(gpu, stream, 200);
//   const std::optional<int> n = backlog.Run([&](int n) { for (...) gpu.Spin(stream, Micros(10)); });
#ifndef GPUSHARE_HARNESS_STAGE_CALIBRATE_BACKLOG_H_
#define GPUSHARE_HARNESS_STAGE_CALIBRATE_BACKLOG_H_

#include <algorithm>
#include <optional>

#include "harness/stage/calibrate/gpu.h"

namespace gpushare::harness {

class Backlog {
 public:
  // `most`: how many of something are to be submitted, fewer where the stream takes no more before a launch waits.
  Backlog(const Gpu& gpu, CUstream stream, int most)
      : gpu_(gpu), stream_(stream), n_(most), head_done_(gpu.NewEvent()) {}
  ~Backlog() { gpu_.cu().cuEventDestroy(head_done_); }
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // How many `submit` was told to submit; nothing where they never were all there in time. All is done then.
  template <class Submit>
  std::optional<int> Run(Submit submit) {
    constexpr Nanos kLongest = Millis(200);
    for (;;) {
      gpu_.Sync(stream_);
      gpu_.Spin(stream_, head_);
      gpu_.Record(head_done_, stream_);
      submit(n_);
      const bool in_time = !gpu_.IsDone(head_done_);
      gpu_.Sync(stream_);
      if (in_time) return n_;
      if (n_ == 1 && head_ >= kLongest) return std::nullopt;
      // By turns: it was too short, or the stream took no more.
      head_ = std::min(2 * head_, kLongest);
      n_ = std::max(n_ / 2, 1);
    }
  }

 private:
  const Gpu& gpu_;
  const CUstream stream_;
  int n_;
  Nanos head_ = Millis(4);
  const CUevent head_done_;
};

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_STAGE_CALIBRATE_BACKLOG_H_
