// SPDX-License-Identifier: Apache-2.0
// Results of runs as JSON Lines: one line per run, after a line about the conditions of all of them.
//
//   {"gpushare_bench":1,"gpushare":"0.1.0","gpu":"simulated","machine":"...","begun":"2026-11-22T21:00:00Z","seed":1}
//   {"scenario":"share","case":"two","method":"native","repetition":0,"figures":[{"name":"a.share","unit":"%","value":75.1,"better":"-"}],"course":{...}}
//   {"scenario":"share","case":"two","method":"other","repetition":0,"not_supported":"no share"}
//   {"scenario":"share","case":"two","method":"other","repetition":1,"error":"it had not ended after 120 s"}
//
// A figure measured by the host's clock also has "clock":"host". course_json.h has the format of a course. The value of a figure
// without samples is null.
//
// Each line is written at once, so that finished measurements are kept whatever happens later.
#ifndef GPUSHARE_HARNESS_RESULTS_H_
#define GPUSHARE_HARNESS_RESULTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/time.h"
#include "harness/course.h"
#include "harness/figures.h"

namespace gpushare::harness {

inline constexpr int kResultsVersion = 1;

struct Circumstances {
  std::string version;      // of gpushare
  std::string gpu;          // "simulated" or its name and driver
  std::string machine;      // processor and kernel
  std::string begun;        // RFC 3339, UTC
  std::string driver = {};  // of the GPU; empty: the simulated GPU has none
  std::string commit = {};  // of gpushare's sources; empty or "unknown": nobody said
  uint64_t seed = 0;
  std::string clocks = {};   // of the GPU, when the runs began; empty: the simulated GPU has none
  std::string profile = {};  // of a device, that the simulated GPU was like; its file's name
  bool operator==(const Circumstances&) const = default;
};

struct Result {
  std::string scenario = {}, one_case = {}, method = {};
  int repetition = 0;
  std::string not_supported = {};  // what the method has no word for
  std::string error = {};
  std::vector<Figure> figures = {};  // empty where one of the two is not
  double sm_mhz = 0;                 // the SMs' clock while kernels held them; 0: nobody knows
  Course course = {};                // of results before there were courses: nothing
  Nanos length{0}, warm_up{0};       // of the run; 0: results from before that was said
};

struct Results {
  Circumstances circumstances;
  std::vector<Result> runs;
  bool cut = false;  // a last line that was not whole has been left out
};

std::string FormatCircumstances(const Circumstances& circumstances);  // with its newline
std::string FormatResult(const Result& result);                       // with its newline

// InvalidArgument: FILE:LINE and what is wrong, for instance results of another version. A last line without a newline is
// ignored: the disk was full, or the harness was ended, while it was written.
absl::StatusOr<Results> ParseResults(std::string_view text, const std::string& file);

}  // namespace gpushare::harness

#endif  // GPUSHARE_HARNESS_RESULTS_H_
