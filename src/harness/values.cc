// SPDX-License-Identifier: Apache-2.0
#include "harness/values.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "spec/text.h"

namespace gpushare::harness {

absl::Status ReadTime(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      Nanos least, Nanos most, Nanos step, Nanos* out) {
  const std::string allowed =
      absl::StrCat(spec::FormatDuration(least), " to ", spec::FormatDuration(most), " in steps of ",
                   spec::FormatDuration(step));
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, allowed.c_str(), &text));
  const absl::StatusOr<Nanos> time = spec::ParseDuration(text);
  if (time.ok() && *time >= least && *time <= most && *time % step == Nanos(0)) {
    *out = *time;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", allowed));
}

namespace {

absl::Status ReadPartOf(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                        double least, double most, const char* allowed, double* out) {
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, allowed, &text));
  const absl::StatusOr<double> part = spec::ParseShare(text);
  if (part.ok() && *part >= least && *part <= most) {
    *out = *part;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", allowed));
}

}  // namespace

absl::Status ReadPart(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      double* out) {
  return ReadPartOf(in, value, place, 1e-4, 1, "0.01% to 100%", out);
}

absl::Status ReadDelay(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       double* out) {
  return ReadPartOf(in, value, place, 0, 0.2, "0% to 20%", out);
}

absl::Status ReadMemory(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                        uint64_t* out) {
  constexpr char kAllowed[] = "1MiB to 1024TiB";
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, kAllowed, &text));
  const absl::StatusOr<uint64_t> bytes = spec::ParseMemory(text);
  if (bytes.ok() && *bytes >= uint64_t{1} << 20 && *bytes <= uint64_t{1} << 50) {
    *out = *bytes;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", kAllowed));
}

absl::Status ReadRate(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      double* out) {
  constexpr char kAllowed[] = "0.01/s to 1000000/s";
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, kAllowed, &text));
  const absl::StatusOr<double> rate =
      spec::ParseNumber(std::string_view(text).substr(0, text.rfind("/s")));
  if (absl::EndsWith(text, "/s") && rate.ok() && *rate >= 0.01 && *rate <= 1e6) {
    *out = *rate;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", kAllowed));
}

absl::Status ReadStretches(const yaml::Reader& in, const yaml::Node& value,
                           const std::string& place, Nanos step, std::vector<Stretch>* out) {
  const std::string allowed =
      absl::StrCat("1 to 1000 parts of the time, each after the one before, in steps of ",
                   spec::FormatDuration(step), ", as in 0s-1s 2s-4s");
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, allowed.c_str(), &text));
  out->clear();
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(word, absl::MaxSplits('-', 1));
    const absl::StatusOr<Nanos> from = spec::ParseDuration(ends.first),
                                to = spec::ParseDuration(ends.second);
    const Nanos before = out->empty() ? Nanos(-1) : out->back().to;
    if (!from.ok() || !to.ok() || *from <= before || *to <= *from || *from % step != Nanos(0) ||
        *to % step != Nanos(0) || out->size() == 1000) {
      return in.Wrong(value, place, absl::StrCat("allowed: ", allowed));
    }
    out->push_back({*from, *to});
  }
  if (!out->empty()) return absl::OkStatus();
  return in.Wrong(value, place, absl::StrCat("allowed: ", allowed));
}

absl::Status ReadCount(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                       int64_t least, int64_t most, int64_t* out) {
  const std::string allowed = absl::StrCat(least, " to ", most);
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, allowed.c_str(), &text));
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= least &&
      number <= most) {
    *out = number;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", allowed));
}

absl::Status ReadWord(const yaml::Reader& in, const yaml::Node& value, const std::string& place,
                      const char* words, size_t* out) {
  const std::vector<std::string> known = absl::StrSplit(words, '|');
  for (size_t i = 0; i < known.size(); ++i) {
    if (value.kind != yaml::Node::Kind::kText || value.text != known[i]) continue;
    *out = i;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, absl::StrCat("allowed: ", absl::StrJoin(known, ", ")));
}

}  // namespace gpushare::harness
