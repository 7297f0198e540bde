// SPDX-License-Identifier: Apache-2.0
#include "harness/results.h"

#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "harness/course_json.h"
#include "harness/json_error.h"
#include "harness/whole.h"

namespace gpushare::harness {
namespace {

using nlohmann::ordered_json;
using Better = Figure::Better;

constexpr char kVersionKey[] = "gpushare_bench";
constexpr char kNoResults[] = "it is not what `gpushare bench run --out` writes";

const char* NameOf(Better better) {
  switch (better) {
    case Better::kNeither:
      return "-";
    case Better::kLower:
      return "lower";
    case Better::kHigher:
      return "higher";
  }
  return "-";
}

Better BetterOf(const std::string& name) {
  if (name == "lower") return Better::kLower;
  return name == "higher" ? Better::kHigher : Better::kNeither;
}

std::string Line(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Circumstances ReadCircumstances(const ordered_json& from) {
  Circumstances read;
  from.at("gpushare").get_to(read.version);
  from.at("gpu").get_to(read.gpu);
  from.at("machine").get_to(read.machine);
  from.at("begun").get_to(read.begun);
  read.driver = from.value("driver", "");
  read.clocks = from.value("clocks", "");
  read.commit = from.value("commit", "");
  read.seed = WholeMember<uint64_t>(from, "seed");
  read.profile = from.value("profile", "");
  return read;
}

Nanos ReadTimeOf(const ordered_json& from, const char* key) {
  const Nanos time(WholeMember<int64_t>(from, key));
  if (time < Nanos(0) || time > kLongestRun)
    throw std::invalid_argument("a run's time is out of range");
  return time;
}

Result ReadResult(const ordered_json& from) {
  Result read;
  from.at("scenario").get_to(read.scenario);
  from.at("case").get_to(read.one_case);
  from.at("method").get_to(read.method);
  Whole(from.at("repetition")).get_to(read.repetition);
  read.not_supported = from.value("not_supported", "");
  read.error = from.value("error", "");
  read.sm_mhz = from.value("sm_mhz", 0.0);
  read.length = ReadTimeOf(from, "length_ns");
  read.warm_up = ReadTimeOf(from, "warm_up_ns");
  if (from.contains("course")) read.course = ReadCourse(from.at("course"));
  if (!from.contains("figures")) return read;
  for (const ordered_json& each : from.at("figures")) {
    const ordered_json& value = each.at("value");
    read.figures.push_back({each.at("name").get<std::string>(), each.at("unit").get<std::string>(),
                            value.is_null() ? std::nullopt : std::optional(value.get<double>()),
                            BetterOf(each.at("better").get<std::string>()),
                            each.value("clock", "") == "host"});
  }
  return read;
}

}  // namespace

std::string FormatCircumstances(const Circumstances& circumstances) {
  ordered_json json = {{kVersionKey, kResultsVersion},
                       {"gpushare", circumstances.version},
                       {"gpu", circumstances.gpu},
                       {"machine", circumstances.machine},
                       {"begun", circumstances.begun}};
  if (!circumstances.driver.empty()) json["driver"] = circumstances.driver;
  if (!circumstances.clocks.empty()) json["clocks"] = circumstances.clocks;
  if (!circumstances.commit.empty()) json["commit"] = circumstances.commit;
  json["seed"] = circumstances.seed;
  if (!circumstances.profile.empty()) json["profile"] = circumstances.profile;
  return Line(json);
}

std::string FormatResult(const Result& result) {
  ordered_json json = {{"scenario", result.scenario},
                       {"case", result.one_case},
                       {"method", result.method},
                       {"repetition", result.repetition}};
  if (result.length > Nanos(0)) {
    json["length_ns"] = result.length.count();
    json["warm_up_ns"] = result.warm_up.count();
  }
  if (!result.not_supported.empty()) json["not_supported"] = result.not_supported;
  if (!result.error.empty()) json["error"] = result.error;
  if (result.sm_mhz > 0) json["sm_mhz"] = std::round(result.sm_mhz);
  if (!result.figures.empty()) {
    ordered_json& figures = json["figures"] = ordered_json::array();
    for (const Figure& each : result.figures) {
      figures.push_back({{"name", each.name},
                         {"unit", each.unit},
                         {"value", each.value.has_value() ? ordered_json(*each.value) : nullptr},
                         {"better", NameOf(each.better)}});
      if (each.by_host) figures.back()["clock"] = "host";
    }
  }
  if (!result.course.question.empty()) json["course"] = CourseJson(result.course);
  return Line(json);
}

absl::StatusOr<Results> ParseResults(std::string_view text, const std::string& file) {
  Results results;
  int line = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    results.cut = end == std::string_view::npos;
    if (results.cut) break;
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++line;
    const auto wrong = [&](std::string_view why) {
      return absl::InvalidArgumentError(
          absl::StrCat(Printable(file, 256), ":", line, ": ", Printable(why, 256)));
    };
    try {
      const ordered_json json = ordered_json::parse(one);
      const bool begins = json.is_object() && json.contains(kVersionKey);
      if (line > 1) {
        if (begins) return wrong("other results begin here: each run's are a file of their own");
        results.runs.push_back(ReadResult(json));
        continue;
      }
      if (!begins) return wrong(kNoResults);
      const int version = Whole(json.at(kVersionKey)).get<int>();
      if (version != kResultsVersion) {
        return wrong(absl::StrCat("results of version ", version, " given, ", kResultsVersion,
                                  " is what this gpushare reads"));
      }
      results.circumstances = ReadCircumstances(json);
    } catch (const ordered_json::parse_error&) {
      return wrong(absl::StrCat(kNoResults, ": the line is no JSON"));
    } catch (const ordered_json::exception& error) {
      return wrong(absl::StrCat(kNoResults, ": ", WhyWrong(error)));
    } catch (const std::exception& error) {
      return wrong(error.what());
    }
  }
  if (line == 0) {
    return absl::InvalidArgumentError(absl::StrCat(Printable(file, 256), ": it has no results"));
  }
  return results;
}

}  // namespace gpushare::harness
