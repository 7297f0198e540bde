// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gpushare::facts {
namespace {

int g_descriptor = STDOUT_FILENO;

void WriteLine(std::string line) {
  line.push_back('\n');
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = write(g_descriptor, line.data() + done, line.size() - done);
    if (n <= 0) _exit(4);  // the reader is gone
    done += static_cast<size_t>(n);
  }
}

// Linear interpolation between the two nearest ranks.
double Quantile(const std::vector<double>& sorted, double q) {
  const double rank = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (rank - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

void WriteFact(std::string_view fact, const std::string& fields) {
  WriteLine("F\t" + std::string(fact) + "\t" + fields);
}

}  // namespace

void SetReportDescriptor(int fd) { g_descriptor = fd; }

std::string JsonNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string JsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out.push_back(' ');
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

void Report(std::string_view fact, std::vector<double> samples) {
  if (samples.empty()) {
    ReportUnsupported(fact, "no samples");
    return;
  }
  std::sort(samples.begin(), samples.end());
  double sum = 0;
  for (const double sample : samples) sum += sample;
  WriteFact(fact, "\"value\": " + JsonNumber(Quantile(samples, 0.5)) + ", \"iqr\": [" +
                      JsonNumber(Quantile(samples, 0.25)) + ", " +
                      JsonNumber(Quantile(samples, 0.75)) +
                      "], \"mean\": " + JsonNumber(sum / static_cast<double>(samples.size())) +
                      ", \"min\": " + JsonNumber(samples.front()) +
                      ", \"p99\": " + JsonNumber(Quantile(samples, 0.99)) + ", \"max\": " +
                      JsonNumber(samples.back()) + ", \"n\": " + std::to_string(samples.size()));
}

void ReportValue(std::string_view fact, double value) {
  WriteFact(fact, "\"value\": " + JsonNumber(value));
}

void ReportJson(std::string_view fact, const std::string& json) {
  WriteFact(fact, "\"value\": " + json);
}

void ReportMachine(std::string_view key, const std::string& json) {
  WriteLine("M\t" + std::string(key) + "\t" + json);
}

void ReportUnsupported(std::string_view fact, std::string_view reason) {
  WriteFact(fact,
            "\"value\": null, \"status\": \"NOT_SUPPORTED\", \"reason\": " + JsonString(reason));
}

void StopUnsupported(std::string_view reason) {
  WriteLine("U\t\t" + std::string(reason));
  _exit(1);
}

void StopFailed(std::string_view reason) {
  WriteLine("E\t\t" + std::string(reason));
  _exit(1);
}

}  // namespace gpushare::facts
