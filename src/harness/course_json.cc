// SPDX-License-Identifier: Apache-2.0
#include "harness/course_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "harness/whole.h"

namespace gpushare::harness {
namespace {

using nlohmann::ordered_json;

double Ms(Nanos time) { return static_cast<double>(time.count()) / 1e6; }

Nanos ReadMs(const ordered_json& from, const char* key) {
  const double ms = from.at(key).get<double>();
  if (!(ms >= 0 && ms <= Ms(kLongestRun)))
    throw std::invalid_argument("a course's time is out of range");
  return Nanos(std::llround(ms * 1e6));
}

std::vector<double> ReadList(const ordered_json& from, const char* key, size_t most) {
  if (!from.contains(key)) return {};
  const ordered_json& list = from.at(key);
  if (!list.is_array() || list.size() > most)
    throw std::invalid_argument("a course's list is longer than it may be");
  return list.get<std::vector<double>>();
}

std::optional<double> ReadNumber(const ordered_json& from, const char* key) {
  if (!from.contains(key)) return std::nullopt;
  return from.at(key).get<double>();
}

// In JSON a fraction is written as a percentage, as in a scenario.
std::optional<double> ReadPercent(const ordered_json& from, const char* key) {
  const std::optional<double> percent = ReadNumber(from, key);
  if (!percent.has_value()) return std::nullopt;
  return *percent / 100;
}

TenantCourse ReadTenant(const ordered_json& from) {
  TenantCourse tenant;
  from.at("name").get_to(tenant.name);
  tenant.ask.share = ReadPercent(from, "share");
  tenant.ask.cap = ReadPercent(from, "cap");
  tenant.ask.high_priority = from.value("priority", "") == "high";
  if (from.contains("windows")) {
    tenant.low = tenant.high = ReadList(from, "windows", kMostCourseSteps);
  } else {
    tenant.low = ReadList(from, "low", kMostCourseSteps);
    tenant.high = ReadList(from, "high", kMostCourseSteps);
  }
  if (tenant.low.size() != tenant.high.size())
    throw std::invalid_argument("'low' and 'high' have different lengths");
  tenant.least = ReadNumber(from, "least");
  tenant.most = ReadNumber(from, "most");
  tenant.requests = WholeMember<uint64_t>(from, "requests");
  tenant.latency_us = ReadList(from, "latency_us", kMostCourseQuantiles);
  tenant.alone_us = ReadList(from, "alone_us", kMostCourseQuantiles);
  return tenant;
}

}  // namespace

ordered_json CourseJson(const Course& course) {
  ordered_json json = {{"question", course.question},
                       {"of", course.of_used ? "used" : "time"},
                       {"window_ms", Ms(course.window)},
                       {"begins_ms", Ms(course.begins)},
                       {"step_ms", Ms(course.step)}};
  if (course.unnamed > 0) json["unnamed"] = course.unnamed;
  ordered_json& tenants = json["tenants"] = ordered_json::array();
  for (const TenantCourse& each : course.tenants) {
    ordered_json& to = tenants.emplace_back(ordered_json{{"name", each.name}});
    if (each.ask.share.has_value()) to["share"] = 100 * *each.ask.share;
    if (each.ask.cap.has_value()) to["cap"] = 100 * *each.ask.cap;
    if (each.ask.high_priority) to["priority"] = "high";
    if (!each.low.empty() && each.low == each.high) {
      to["windows"] = each.low;
    } else if (!each.low.empty()) {
      to["low"] = each.low;
      to["high"] = each.high;
    }
    if (each.least.has_value()) to["least"] = *each.least;
    if (each.most.has_value()) to["most"] = *each.most;
    if (each.requests > 0) to["requests"] = each.requests;
    if (!each.latency_us.empty()) to["latency_us"] = each.latency_us;
    if (!each.alone_us.empty()) to["alone_us"] = each.alone_us;
  }
  return json;
}

Course ReadCourse(const ordered_json& from) {
  Course course;
  from.at("question").get_to(course.question);
  course.of_used = from.at("of").get<std::string>() == "used";
  course.window = ReadMs(from, "window_ms");
  course.begins = ReadMs(from, "begins_ms");
  course.step = ReadMs(from, "step_ms");
  const ordered_json& tenants = from.at("tenants");
  if (!tenants.is_array() || tenants.size() > kMostTenants)
    throw std::invalid_argument("a course has too many tenants");
  for (const ordered_json& each : tenants) course.tenants.push_back(ReadTenant(each));
  course.unnamed = WholeMember<size_t>(from, "unnamed");
  return course;
}

}  // namespace gpushare::harness
