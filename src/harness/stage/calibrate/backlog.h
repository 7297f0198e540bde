// SPDX-License-Identifier: Apache-2.0
// Submits work behind a long kernel, so that all of it is queued before the first begins and no host time is measured.
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
  // `most`: how many commands to submit; fewer if the stream accepts no more before a launch blocks.
  Backlog(const Gpu& gpu, CUstream stream, int most)
      : gpu_(gpu), stream_(stream), n_(most), head_done_(gpu.NewEvent()) {}
  ~Backlog() { gpu_.cu().cuEventDestroy(head_done_); }
  Backlog(const Backlog&) = delete;
  Backlog& operator=(const Backlog&) = delete;

  // Calls `submit(n)` and returns the n for which all commands were queued in time; nullopt if that never succeeded. Returns when the
  // work is done.
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
      // Either the head was too short, or the stream accepts no more: adapts both.
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
