// SPDX-License-Identifier: Apache-2.0
// A progress bar. It draws only on terminals, unless told otherwise.
//
//   ProgressBar bar(stderr, ProgressBar::Shown::kOnTerminal);
//   bar.Update(0.25, "shared run, 5.0 of 20 s");
//
// It is drawn at most once per percent, as wide as the terminal allows. A terminal with TERM=dumb does not
// count as one. Not thread-safe.
#ifndef GPUSHARE_CLI_PROGRESS_BAR_H_
#define GPUSHARE_CLI_PROGRESS_BAR_H_

#include <cstddef>
#include <cstdio>
#include <functional>
#include <string>

namespace gpushare::cli {

// "[####......]  40 %  what", in at most `columns` columns.
std::string ProgressLine(int percent, const std::string& what, size_t columns);

// "40 s left", extrapolated from the part that is done; empty while that is less than 1 % or one second.
std::string TimeLeft(double fraction, double elapsed_s);

class ProgressBar {
 public:
  enum class Shown { kNever, kOnTerminal, kAlways };

  ProgressBar(std::FILE* stream, Shown shown);
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(double fraction, const std::string& what);
  // Erases the bar, so that other text can follow.
  void Clear();

 private:
  std::FILE* const stream_;
  const bool shown_;
  const bool terminal_;
  int drawn_percent_ = -1;
  std::string drawn_what_;
};

// The bar of a run with many parts. It estimates the time left from the parts that are done.
class PartsBar {
 public:
  // `all` is the sum of the parts' weights, `seconds` a clock.
  PartsBar(ProgressBar& bar, double all, std::function<double()> seconds);
  // A part begins.
  void Begin(double weight, const std::string& what);
  // The part ends. `ran` is false if there was nothing to do; such a part does not count for the estimate.
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
