// SPDX-License-Identifier: Apache-2.0
#include "workload/arrival_trace.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/fd_io.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace gpushare::workload {
namespace {

constexpr double kLongestArrival = 1e6;  // s: more than eleven days
constexpr size_t kMostArrivalBytes = size_t{64} << 20;

std::string_view Trimmed(std::string_view line) {
  line = line.substr(0, line.find('#'));
  constexpr std::string_view kBlank = " \t\r";
  const size_t begin = line.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return "";
  return line.substr(begin, line.find_last_not_of(kBlank) - begin + 1);
}

std::optional<Nanos> SecondsIn(std::string_view text) {
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds, std::chars_format::fixed);
  if (error != std::errc() || stop != end) return std::nullopt;
  if (!(seconds >= 0 && seconds <= kLongestArrival)) return std::nullopt;  // also NaN
  return Nanos(std::llround(seconds * 1e9));
}

}  // namespace

absl::StatusOr<std::vector<Nanos>> ParseArrivalTrace(std::string_view text,
                                                     const std::string& label, ArrivalsAs as) {
  std::vector<Nanos> arrivals;
  Nanos last{0};
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view told = Trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (told.empty()) continue;
    const auto wrong = [&](const char* why) {
      return absl::InvalidArgumentError(
          absl::StrCat(label, ":", line, ": ", Quoted(told.substr(0, 64)), " given; ", why));
    };
    const std::optional<Nanos> seconds = SecondsIn(told);
    if (!seconds.has_value()) {
      return wrong("allowed: a number of seconds from 0 to 1000000, as 12.345678");
    }
    const Nanos at = as == ArrivalsAs::kTimes ? *seconds : last + *seconds;
    if (at < last) return wrong("allowed: times each not before the one above it");
    if (at > Nanos(static_cast<int64_t>(kLongestArrival * 1e9))) {
      return wrong("allowed: gaps of 1000000 s together");
    }
    if (arrivals.size() == kMostTraceArrivals) return wrong("allowed: a million requests");
    arrivals.push_back(at);
    last = at;
  }
  if (arrivals.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": it has no request"));
  }
  return arrivals;
}

absl::StatusOr<std::vector<Nanos>> ReadArrivalTrace(const std::string& path, ArrivalsAs as) {
  const std::string label = Printable(path, 256);
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const base::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return absl::ErrnoToStatus(errno, label);
  struct stat status;
  if (fstat(file.get(), &status) != 0) return absl::ErrnoToStatus(errno, label);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(label, ": it is not a file"));
  }
  std::string text;
  if (const int error = base::ReadAll(file.get(), kMostArrivalBytes, &text); error != 0) {
    return absl::ErrnoToStatus(error, label);
  }
  return ParseArrivalTrace(text, label, as);
}

}  // namespace gpushare::workload
