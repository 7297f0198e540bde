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
#include <string>

namespace gpushare::cli {

// `[####......]  40 %  what` in at most `columns`.
std::string ProgressLine(int percent, const std::string& what, size_t columns);

// "40 s left", by what the part that is done took: empty while that is too little to tell by.
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

}  // namespace gpushare::cli

#endif  // GPUSHARE_CLI_PROGRESS_BAR_H_
