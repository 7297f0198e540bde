// SPDX-License-Identifier: Apache-2.0
// Reports what a measurement found to the parent process.
//
// Each group of measurements runs in its own process, so that a lost context, a crash or a hang costs one group and not the
// run. It writes lines to a pipe: a fact, a property of the machine, or why the process stops.
#ifndef GPUSHARE_GPU_FACTS_REPORT_H_
#define GPUSHARE_GPU_FACTS_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

namespace gpushare::facts {

// Where this process writes its lines; standard output until set.
void SetReportDescriptor(int fd);

// Median with quartiles, mean, extremes and number of `samples`, which must not be empty.
void Report(std::string_view fact, std::vector<double> samples);
// A single figure.
void ReportValue(std::string_view fact, double value);
// Any JSON value.
void ReportJson(std::string_view fact, const std::string& json);
// A property of the machine ("gpu", "sms"), as JSON.
void ReportMachine(std::string_view key, const std::string& json);
// Reports that one fact of the group cannot be measured here; the others go on.
void ReportUnsupported(std::string_view fact, std::string_view reason);

// End the process. Facts that the group has not reported are recorded as not supported, or as failed.
[[noreturn]] void StopUnsupported(std::string_view reason);
[[noreturn]] void StopFailed(std::string_view reason);

// A JSON string with its quotes; a JSON number, or null if the value is not finite.
std::string JsonString(std::string_view text);
std::string JsonNumber(double value);

}  // namespace gpushare::facts

#endif  // GPUSHARE_GPU_FACTS_REPORT_H_
