// SPDX-License-Identifier: Apache-2.0
#include "harness/method.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/text.h"
#include "spec/text.h"

namespace gpushare::harness {
namespace {

using Kind = Method::Kind;

constexpr std::pair<const char*, Kind> kMethods[] = {{"native", Kind::kNative},
                                                     {"time-slicing", Kind::kTimeSlicing},
                                                     {"gpushare", Kind::kInProcess},
                                                     {"gpushare-preload", Kind::kPreloaded}};

std::string Percent(const std::optional<double>& part) {
  return absl::StrCat(static_cast<int>(100 * part.value_or(1) + 0.5));
}

bool Says(const Method& method, const char* what) {
  for (const auto& [variable, value] : method.environment) {
    if (absl::StrContains(value, what)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kMethods) names.push_back(name);
  return names;
}

absl::StatusOr<Method> FindMethod(std::string_view text) {
  for (const auto& [name, kind] : kMethods) {
    if (text == name) return Method{name, kind};
  }
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',');
  const std::pair<std::string, std::string> library =
      absl::StrSplit(parts.front(), absl::MaxSplits('=', 1));
  if (library.first.empty() || library.second.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no method is called ", Quoted(text), "; allowed: ", absl::StrJoin(MethodNames(), ", "),
        ", or NAME=LIBRARY[,VARIABLE=VALUE]..."));
  }
  Method method = {library.first, Kind::kLibrary, library.second};
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    if (variable.first.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("method ", Quoted(method.name), ": ",
                                                     Quoted(parts[i]),
                                                     " given, VARIABLE=VALUE allowed"));
    }
    method.environment.push_back(variable);
  }
  return method;
}

bool HasProcesses(const Method& method) {
  return method.kind != Kind::kNative && method.kind != Kind::kInProcess;
}

std::string WhyNot(const Method& method, const Case& one) {
  if (method.kind != Kind::kLibrary) return "";
  for (const Tenant& tenant : one.tenants) {
    if (tenant.ask.cap.has_value() && !Says(method, "%CAP%")) return "no cap";
    if (tenant.ask.share.has_value() && !Says(method, "%SHARE%")) return "no share";
    if (tenant.ask.high_priority) return "no priority";
  }
  return "";
}

std::string SpecOf(const Ask& ask) {
  std::vector<std::string> parts;
  // Shares are of all that is wanted, which is what a weight is.
  if (ask.share.has_value())
    parts.push_back(absl::StrCat("weight=", spec::FormatNumber(100 * *ask.share)));
  if (ask.cap.has_value()) parts.push_back(absl::StrCat("cap=", spec::FormatShare(*ask.cap)));
  if (ask.high_priority) parts.emplace_back("priority=high");
  return absl::StrJoin(parts, ",");
}

std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Method& method,
                                                               const Ask& ask) {
  std::vector<std::pair<std::string, std::string>> environment = method.environment;
  for (auto& [variable, value] : environment) {
    value =
        absl::StrReplaceAll(value, {{"%SHARE%", Percent(ask.share)}, {"%CAP%", Percent(ask.cap)}});
  }
  return environment;
}

}  // namespace gpushare::harness
