// SPDX-License-Identifier: Apache-2.0
#include "harness/method.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "spec/text.h"

namespace gpushare::harness {
namespace {

using Kind = Method::Kind;

constexpr std::pair<const char*, Kind> kMethods[] = {{"native", Kind::kNative},
                                                     {"time-slicing", Kind::kTimeSlicing},
                                                     {"mps", Kind::kMps},
                                                     {"gpushare", Kind::kInProcess},
                                                     {"gpushare-spatial", Kind::kSpatial},
                                                     {"gpushare-preload", Kind::kPreloaded}};

// Not rounded: to some libraries 0, from half a percent, means no limit at all.
std::string Percent(const std::optional<double>& part) {
  return std::string(absl::StripSuffix(spec::FormatShare(part.value_or(1)), "%"));
}

// Variables that a run sets itself.
constexpr const char* kOurs[] = {"LD_PRELOAD", "LD_LIBRARY_PATH", "GPUSHARE_DRIVER", "GPUSHARE_SIM",
                                 "GPUSHARE_SIM_DRIVER"};

constexpr std::string_view kPriority = "%PRIORITY:";

// Replaces each %PRIORITY:HIGH:NORMAL% by the word for the priority. nullopt: one is malformed.
std::optional<std::string> WithPriority(std::string value, bool high) {
  for (size_t at = value.find("%PRIORITY"); at != std::string::npos;
       at = value.find("%PRIORITY", at)) {
    const size_t words = at + kPriority.size();
    const size_t between = value.find(':', words), end = value.find('%', words);
    if (value.compare(at, kPriority.size(), kPriority) != 0 || between == std::string::npos ||
        end == std::string::npos || between > end) {
      return std::nullopt;
    }
    const std::string word =
        high ? value.substr(words, between - words) : value.substr(between + 1, end - between - 1);
    value.replace(at, end + 1 - at, word);
    at += word.size();
  }
  return value;
}

constexpr const char* kWords[] = {"%SHARE%",        "%CAP%",    "%MEMORY_MIB%",
                                  "%MEMORY_BYTES%", "%TENANT%", "%FOLDER%"};

// The first placeholder that is not known, which would be passed to the library literally; empty if there is none.
std::string UnknownWord(const std::string& value) {
  for (size_t at = value.find('%'); at != std::string::npos; at = value.find('%', at)) {
    const size_t end = value.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at + 1);
    if (end == std::string::npos || value[end] != '%' || end < at + 3) {
      ++at;
      continue;
    }
    const std::string word = value.substr(at, end + 1 - at);
    const auto is_it = [&](const char* ours) { return word == ours; };
    if (std::none_of(std::begin(kWords), std::end(kWords), is_it)) return word;
    at = end + 1;
  }
  return "";
}

bool Says(const Method& method, const char* what) {
  for (const auto& [variable, value] : method.environment) {
    if (absl::StrContains(value, what)) return true;
  }
  return false;
}

// Why a case's programs cannot be run: there are too many, or the case needs separate programs and the method has one.
std::string WhyNoPrograms(const Method& method, const Case& one, Ground ground) {
  const bool on_gpu = ground == Ground::kGpu;
  if (on_gpu && IsApart(one)) return "each program wants a simulated GPU of its own";
  if (!on_gpu && method.kind == Kind::kMps) return "the simulated GPU has no MPS";
  if (!HasProcesses(method)) return IsApart(one) ? "its tenants are one program" : "";
  const size_t processes = one.tenants.size() + (method.kind == Kind::kPreloaded ? 1 : 0);
  const size_t most = on_gpu ? kMostProcessesOnGpu : kMostProcesses;
  if (IsApart(one) || processes <= most) return "";
  return absl::StrCat(
      processes, " processes; ",
      on_gpu ? "of a GPU's contexts no more are tried than " : "the simulated GPU has room for ",
      most);
}

// Whether the tenant uses allocation families for which the SDK has no calls.
bool AsksBeyondTheSdk(const Tenant& tenant) {
  for (const MemoryFamily family : tenant.allocations.families) {
    if (family == MemoryFamily::kManaged || family == MemoryFamily::kVirtual) return true;
  }
  return false;
}

// The variables of NVIDIA's MPS. It has one compute limit: the percentage of the SMs that a client may use at a time.
std::vector<std::pair<std::string, std::string>> ForMps(const Ask& ask) {
  std::vector<std::pair<std::string, std::string>> environment = {
      {"CUDA_MPS_CLIENT_PRIORITY", ask.high_priority ? "0" : "1"}};
  if (ask.share.has_value() || ask.cap.has_value()) {
    environment.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
                             Percent(std::min(ask.share.value_or(1), ask.cap.value_or(1))));
  }
  if (ask.memory.has_value()) {
    environment.emplace_back("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
                             absl::StrCat("0=", *ask.memory >> 20, "M"));
  }
  return environment;
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
  for (const std::string& name : MethodNames()) {
    if (library.first != name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text), ": ", name, " is a method already; a library has another name"));
  }
  if (library.second.find_first_of(" :") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("method ", Quoted(library.first), ": ", Quoted(library.second),
                     " given; the loader preloads no path with a blank or a colon"));
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
    for (const char* const ours : kOurs) {
      if (variable.first != ours) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("method ", Quoted(method.name), ": ", ours, " is set by the harness"));
    }
    if (!WithPriority(variable.second, /*high=*/true).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("method ", Quoted(method.name), ": ", Quoted(variable.second),
                       " given; a priority is %PRIORITY:HIGH:NORMAL%, the words for either"));
    }
    if (const std::string word = UnknownWord(variable.second); !word.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "method ", Quoted(method.name), ": ", Quoted(variable.second), " given, and ",
          Quoted(word), " stands for nothing; allowed: ", absl::StrJoin(kWords, ", "),
          ", %PRIORITY:HIGH:NORMAL%"));
    }
    method.environment.push_back(variable);
  }
  return method;
}

absl::StatusOr<std::vector<Method>> FindMethods(const std::vector<std::string>& texts) {
  std::vector<Method> methods;
  for (size_t i = 0; i < texts.size(); ++i) {
    GPUSHARE_ASSIGN_OR_RETURN(Method method, FindMethod(texts[i]));
    for (size_t other = 0; other < i; ++other) {
      if (methods[other].name != method.name) continue;
      return absl::InvalidArgumentError(absl::StrCat("the method ", Quoted(method.name),
                                                     " is given twice: ", Quoted(texts[other]),
                                                     " and ", Quoted(texts[i])));
    }
    methods.push_back(std::move(method));
  }
  return methods;
}

absl::Status SetServer(std::string_view text, std::vector<Method>* methods) {
  const std::pair<std::string, std::string> server =
      absl::StrSplit(std::string(text), absl::MaxSplits('=', 1));
  if (server.first.empty() || server.second.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server ", Quoted(text), " given, NAME=COMMAND allowed"));
  }
  for (Method& method : *methods) {
    if (method.name != server.first || method.kind != Kind::kLibrary) continue;
    if (!method.server.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--server ", Quoted(text), ": ", method.name, " has one already"));
    }
    method.server = server.second;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--server ", Quoted(text), ": no --method ", server.first, "=LIBRARY is given"));
}

bool HasProcesses(const Method& method) {
  return method.kind != Kind::kNative && !IsLinked(method);
}

bool IsLinked(const Method& method) {
  return method.kind == Kind::kInProcess || method.kind == Kind::kSpatial;
}

std::string WhyNot(const Method& method, const Case& one, Ground ground) {
  if (std::string why = WhyNoPrograms(method, one, ground); !why.empty()) return why;
  for (const Tenant& tenant : one.tenants) {
    if (IsLinked(method) && AsksBeyondTheSdk(tenant)) {
      return "no managed or virtual memory in the SDK";
    }
    if (method.kind == Kind::kSpatial) {
      if (tenant.ask.high_priority) return "no priority: each has SMs of its own";
      if (tenant.ask.own_context) return "no context of its own beside SMs of its own";
    }
    if (method.kind != Kind::kLibrary) continue;
    if (tenant.ask.memory.has_value() && !Says(method, "%MEMORY_")) return "no memory quota";
    if (tenant.ask.cap.has_value() && !Says(method, "%CAP%")) return "no cap";
    if (tenant.ask.share.has_value() && !Says(method, "%SHARE%")) return "no share";
    if (tenant.ask.high_priority && !Says(method, kPriority.data())) return "no priority";
  }
  return "";
}

std::string SpecOf(const Ask& ask) {
  std::vector<std::string> parts;
  // A share is relative to the sum of the shares of tenants with work, so it is passed as a weight.
  if (ask.share.has_value()) parts.push_back(absl::StrCat("weight=", Percent(ask.share)));
  if (ask.cap.has_value()) parts.push_back(absl::StrCat("cap=", spec::FormatShare(*ask.cap)));
  if (ask.high_priority) parts.emplace_back("priority=high");
  if (ask.delay.has_value()) parts.push_back(absl::StrCat("delay=", spec::FormatShare(*ask.delay)));
  if (ask.memory.has_value()) {
    parts.push_back(absl::StrCat("memory=", spec::FormatBytes(*ask.memory)));
  }
  if (ask.own_context) parts.emplace_back("isolation=context");
  return absl::StrJoin(parts, ",");
}

std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Method& method, const Ask& ask,
                                                               const std::string& tenant,
                                                               const std::string& folder) {
  if (method.kind == Kind::kMps) return ForMps(ask);
  std::vector<std::pair<std::string, std::string>> environment = method.environment;
  for (auto& [variable, value] : environment) {
    const uint64_t memory = ask.memory.value_or(0);
    value = absl::StrReplaceAll(value, {{"%SHARE%", Percent(ask.share)},
                                        {"%CAP%", Percent(ask.cap)},
                                        {"%MEMORY_MIB%", absl::StrCat(memory >> 20)},
                                        {"%MEMORY_BYTES%", absl::StrCat(memory)},
                                        {"%TENANT%", tenant},
                                        {"%FOLDER%", folder}});
    value = WithPriority(value, ask.high_priority).value_or(value);
  }
  return environment;
}

}  // namespace gpushare::harness
