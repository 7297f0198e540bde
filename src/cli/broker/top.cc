// SPDX-License-Identifier: Apache-2.0
#include "cli/broker/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "cli/broker/ask.h"
#include "cli/broker/top_table.h"
#include "cli/output.h"

namespace gpushare::cli {
namespace {

constexpr char kHome[] = "\x1b[H";
constexpr char kToEndOfLine[] = "\x1b[K";
constexpr char kToEndOfScreen[] = "\x1b[J";

// Redraws the screen by overwriting, which flickers less than clearing.
std::string Drawn(const std::string& text) {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    size.ws_col = 80;
    size.ws_row = 24;
  }
  std::string drawn = kHome;
  for (const char c : CutForTerminal(text, size.ws_col, size.ws_row)) {
    if (c == '\n') drawn += kToEndOfLine;
    drawn += c;
  }
  return drawn + kToEndOfScreen;
}

}  // namespace

std::string CutForTerminal(const std::string& text, size_t columns, size_t rows) {
  std::string cut;
  size_t row = 0;
  for (size_t begin = 0; begin < text.size() && row + 1 < rows; ++row) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    size_t column = 0;
    for (size_t at = begin; at < end && column < columns; ++column) {
      const size_t length =
          std::max<size_t>(1, Utf8Length(std::string_view(text).substr(at, end - at)));
      cut.append(text, at, length);
      at += length;
    }
    cut += '\n';
    begin = end + 1;
  }
  return cut;
}

ExitCode RunTop(const TopOptions& options) {
  absl::StatusOr<BrokerConnection> broker = BrokerConnection::To(options.socket);
  if (!broker.ok()) return FailOfBroker("top", broker.status());
  const bool terminal = !options.json && !options.once && isatty(STDOUT_FILENO) != 0;
  base::Clock& clock = base::RealClock();
  const Nanos interval(static_cast<int64_t>(options.interval * 1e9));
  absl::StatusOr<broker::Snapshot> before = broker->List();
  if (!before.ok()) return FailOfBroker("top", before.status());
  if (terminal) std::fputs(Drawn(TopText(nullptr, *before)).c_str(), stdout);
  for (bool first = true;; first = false) {
    if (const ExitCode written = FinishStdout("top"); written != kExitOk) return written;
    clock.SleepUntil(clock.Now() + interval);
    absl::StatusOr<broker::Snapshot> now = broker->List();
    if (!now.ok()) return FailOfBroker("top", now.status());
    const std::string text = options.json ? TopJson(&*before, *now) : TopText(&*before, *now);
    if (!terminal && !options.json && !first) std::fputc('\n', stdout);
    std::fputs((terminal ? Drawn(text) : text).c_str(), stdout);
    if (options.once) return FinishStdout("top");
    before = std::move(now);
  }
}

}  // namespace gpushare::cli
