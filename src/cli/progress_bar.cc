// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>

namespace gpushare::cli {

ProgressBar::ProgressBar(std::FILE* stream, Shown shown)
    : stream_(stream),
      shown_(shown == Shown::kAlways ||
             (shown == Shown::kOnTerminal && isatty(fileno(stream)) != 0)),
      terminal_(isatty(fileno(stream)) != 0) {}

void ProgressBar::Update(double fraction, const std::string& what) {
  if (!shown_) return;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (percent == drawn_percent_ && what == drawn_what_) return;
  // Without a terminal each bar is a line of its own, so draw only every tenth.
  if (!terminal_ && percent / 10 == drawn_percent_ / 10 && drawn_percent_ >= 0) return;
  drawn_percent_ = percent;
  drawn_what_ = what;
  constexpr int kCells = 40;
  const int full = percent * kCells / 100;
  const std::string bar = std::string(static_cast<size_t>(full), '#') +
                          std::string(static_cast<size_t>(kCells - full), '.');
  std::fprintf(stream_, "%s[%s] %3d %%  %s%s", terminal_ ? "\r\x1b[2K" : "", bar.c_str(), percent,
               what.c_str(), terminal_ ? "" : "\n");
  std::fflush(stream_);
}

void ProgressBar::Clear() {
  if (!shown_ || drawn_percent_ < 0) return;
  if (terminal_) std::fputs("\r\x1b[2K", stream_);
  std::fflush(stream_);
  drawn_percent_ = -1;
}

}  // namespace gpushare::cli
