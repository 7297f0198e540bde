// SPDX-License-Identifier: Apache-2.0
#include "cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/env.h"

namespace gpushare::cli {
namespace {

// Whether the stream is a terminal on which a line can be redrawn.
bool IsTerminal(std::FILE* stream) {
  return isatty(fileno(stream)) != 0 && base::GetEnv("TERM").value_or("") != "dumb";
}

size_t Columns(std::FILE* stream) {
  winsize size = {};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

ProgressBar::ProgressBar(std::FILE* stream, Shown shown)
    : stream_(stream),
      shown_(shown == Shown::kAlways || (shown == Shown::kOnTerminal && IsTerminal(stream))),
      terminal_(IsTerminal(stream)) {}

std::string ProgressLine(int percent, const std::string& what, size_t columns) {
  constexpr size_t kMostCells = 40, kLeastCells = 10;
  char figure[16];
  std::snprintf(figure, sizeof(figure), "] %3d %%", percent);
  const std::string text = what.empty() ? figure : std::string(figure) + "  " + what;
  const size_t taken = 1 + text.size();
  const size_t cells =
      columns > taken + kLeastCells ? std::min(columns - taken, kMostCells) : kLeastCells;
  const size_t full = static_cast<size_t>(percent) * cells / 100;
  const std::string line = "[" + std::string(full, '#') + std::string(cells - full, '.') + text;
  return line.substr(0, columns);
}

std::string TimeLeft(double fraction, double elapsed_s) {
  constexpr double kTooLittle = 0.01, kTooShortS = 1;
  if (!(fraction >= kTooLittle) || !(elapsed_s >= kTooShortS)) return "";
  const double left = elapsed_s * std::max(0.0, 1 - fraction) / fraction;
  const long seconds = std::lround(std::min(left, 1e9));
  const auto text = [](long first, const char* unit, long second, const char* of_second) {
    std::string words = std::to_string(first) + unit;
    if (second > 0) words += " " + std::to_string(second) + of_second;
    return words + " left";
  };
  // Rounded according to the uncertainty.
  if (seconds < 20) return text(seconds, " s", 0, "");
  if (seconds < 90) return text((seconds + 5) / 10 * 10, " s", 0, "");
  const long minutes = (seconds + 30) / 60;
  if (minutes < 60) return text(minutes, " min", 0, "");
  return text(minutes / 60, " h", minutes % 60, " min");
}

void ProgressBar::Update(double fraction, const std::string& what) {
  if (!shown_) return;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (percent == drawn_percent_ && what == drawn_what_) return;
  // Without a terminal each bar is a line of its own, so draw only every tenth.
  if (!terminal_ && percent / 10 == drawn_percent_ / 10 && drawn_percent_ >= 0) return;
  drawn_percent_ = percent;
  drawn_what_ = what;
  // Leaves the last column free, since some terminals wrap after it.
  const std::string line = ProgressLine(percent, what, Columns(stream_) - 1);
  std::fprintf(stream_, "%s%s%s", terminal_ ? "\r\x1b[2K" : "", line.c_str(),
               terminal_ ? "" : "\n");
  std::fflush(stream_);
}

void ProgressBar::Clear() {
  if (!shown_ || drawn_percent_ < 0) return;
  if (terminal_) std::fputs("\r\x1b[2K", stream_);
  std::fflush(stream_);
  drawn_percent_ = -1;
}

PartsBar::PartsBar(ProgressBar& bar, double all, std::function<double()> seconds)
    : bar_(bar), seconds_(std::move(seconds)), all_(all), begun_(seconds_()) {}

void PartsBar::Begin(double weight, const std::string& what) {
  weight_ = weight;
  const double fraction = all_ > 0 ? done_ / all_ : 0;
  const std::string left = TimeLeft(fraction, seconds_() - begun_);
  bar_.Update(fraction, left + (left.empty() ? "" : ", ") + what);
}

void PartsBar::End(bool ran) {
  if (ran) {
    done_ += weight_;
  } else {
    all_ -= weight_;
  }
}

}  // namespace gpushare::cli
