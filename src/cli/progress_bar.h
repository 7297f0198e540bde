// SPDX-License-Identifier: Apache-2.0
// A progress bar on a stream that a person watches; nothing on any other.
//
//   ProgressBar bar(stderr, ProgressBar::Shown::kOnTerminal);
//   bar.Update(0.25, "shared run, 5.0 of 20 s");
//
// Drawn at most once per per cent, as wide as the terminal lets it. With TERM=dumb a terminal counts as
// any other stream. Not thread-safe.
#ifndef GPUSHARE_CLI_PROGRESS_BAR_H_
#define GPUSHARE_CLI_PROGRESS_BAR_H_

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>

namespace gpushare::cli {

// `[####......]  40 %  what` in at most `columns`.
std::string ProgressLine(int percent, const std::string& what, size_t columns);

// "40 s left", by what the part that is done took: empty while that is too little to tell by, a hundredth or a second.
std::string TimeLeft(double fraction, double elapsed_s);

class ProgressBar {
 public:
  enum class Shown { kNever, kOnTerminal, kAlways };

  ProgressBar(std::FILE* stream, Shown shown);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(double fraction, const std::string& what);
  // Takes the bar off the screen, so that other text can follow.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool shown_;
  const bool terminal_;
  int drawn_percent_ = -1;
  std::string drawn_what_;
};

// The bar of a run of many parts, with the time that is left by those that are done.
class PartsBar {
 public:
  // `all`: the sum of the parts' weights; `seconds`: a clock.
  PartsBar(ProgressBar& bar, double all, std::function<double()> seconds);
  // A part begins.
  void Begin(double weight, const std::string& what);
  // It is over. `ran` false: there was nothing to be done, which took no time and says nothing of what the others take.
  void End(bool ran);

 private:
  ProgressBar& bar_;
  const std::function<double()> seconds_;
  double all_;
  const double begun_;
  double done_ = 0, weight_ = 0;
};

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_PROGRESS_BAR_H_
