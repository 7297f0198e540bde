// SPDX-License-Identifier: Apache-2.0
#include "harness/scenario.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "harness/questions/question.h"
#include "harness/stretches.h"
#include "harness/timing.h"
#include "harness/values.h"
#include "harness/work.h"
#include "spec/text.h"
#include "yaml/reader.h"

namespace gpushare::harness {
namespace {

using yaml::Node;
using Place = const std::string&;

// Names are used in files, columns and environment variables.
bool IsName(std::string_view text) {
  if (text.empty() || text.size() > 64) return false;
  for (const char c : text) {
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
  }
  return true;
}

absl::Status ReadName(const yaml::Reader& in, const Node& value, Place place, std::string* out) {
  if (value.kind == Node::Kind::kText && IsName(value.text)) {
    *out = value.text;
    return absl::OkStatus();
  }
  return in.Wrong(value, place, "allowed: 1 to 64 of a-z, 0-9 and '-'");
}

// The path of a device profile is relative to the scenario, like that of a trace.
std::string WithProfilesIn(const std::string& folder, const std::string& settings) {
  std::vector<std::string> items = absl::StrSplit(settings, absl::ByAnyChar(",\n"));
  for (std::string& item : items) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    if (absl::StripAsciiWhitespace(pair.first) != "profile") continue;
    const absl::string_view path = absl::StripAsciiWhitespace(pair.second);
    if (!path.empty() && path.front() != '/') item = absl::StrCat("profile=", folder, path);
  }
  return absl::StrJoin(items, ",");
}

class ScenarioReader {
 public:
  ScenarioReader(const std::string& file, const CheckGpu& check_gpu, Length length,
                 Scenario* scenario)
      : in_(file),
        folder_(file.substr(0, file.rfind('/') + 1)),
        scenario_(*scenario),
        check_gpu_(check_gpu),
        length_(length) {}

  absl::Status Read(const Node& document) {
    int length_line = document.line;
    const auto time = [this](Nanos least, Nanos most, Nanos* out) {
      return [=, this](const Node& value, Place place) {
        return ReadTime(in_, value, place, least, most, kSample, out);
      };
    };
    // The question comes first, since it decides which other keys are allowed.
    for (size_t i = 0; i < document.keys.size(); ++i) {
      if (document.keys[i].text != "question" || i >= document.values.size()) continue;
      scenario_.question = FindQuestion(document.values[i].text);
    }
    std::vector<yaml::Reader::Rule> rules = {
        {"about", [&](const Node& value,
                      Place place) { return in_.Text(value, place, "text", &scenario_.about); }},
        {"question",
         [&](const Node& value, Place place) {
           size_t which = 0;
           return ReadWord(in_, value, place, Names().c_str(), &which);
         }},
        {"length",
         [&](const Node& value, Place place) {
           length_line = value.line;
           return ReadTime(in_, value, place, Millis(10), kLongestRun, kSample, &scenario_.length);
         }},
        {"warm_up", time(Nanos(0), kLongestRun, &scenario_.warm_up)},
        {"window", time(Millis(10), kLongestRun, &scenario_.window)},
        {"short", [&](const Node& value, Place place) { return ReadShort(value, place); }},
        {"cases", [&](const Node& value, Place place) {
           return in_.List(value, place, "a list of cases",
                           [&](const Node& each, Place below) { return ReadCase(each, below); });
         }}};
    AddOwn(OwnKey::Of::kScenario, &scenario_.settings, &rules);
    GPUSHARE_RETURN_IF_ERROR(in_.Keys(document, "", rules));
    if (scenario_.question == nullptr) return in_.Error(document.line, "question", "it is missing");
    if (scenario_.cases.empty()) return in_.Error(document.line, "cases", "at least one is wanted");
    GPUSHARE_RETURN_IF_ERROR(CheckWhole(length_line, "length"));
    // Both lengths are checked, whichever is asked for.
    Scenario shorter = scenario_;
    GPUSHARE_RETURN_IF_ERROR(Shorten(&shorter));
    std::swap(scenario_, shorter);
    GPUSHARE_RETURN_IF_ERROR(CheckWhole(short_.line, "short"));
    if (length_ == Length::kFull) std::swap(scenario_, shorter);
    return absl::OkStatus();
  }

 private:
  // The `short:` section: what changes when the scenario is taken short.
  struct Short {
    int line = 1;
    std::optional<Nanos> length, warm_up, window;
    std::vector<std::string> cases;  // empty: all
  };

  absl::Status ReadShort(const Node& map, Place place) {
    short_.line = map.line;
    const auto time = [this](Nanos least, std::optional<Nanos>* out) {
      return [this, least, out](const Node& value, Place below) {
        return ReadTime(in_, value, below, least, kLongestRun, kSample, &out->emplace());
      };
    };
    return in_.Keys(map, place,
                    {{"length", time(Millis(10), &short_.length)},
                     {"warm_up", time(Nanos(0), &short_.warm_up)},
                     {"window", time(Millis(10), &short_.window)},
                     {"cases", [&](const Node& value, Place below) {
                        return in_.List(value, below, "a list of names of cases",
                                        [&](const Node& each, Place under) {
                                          return ReadName(in_, each, under,
                                                          &short_.cases.emplace_back());
                                        });
                      }}});
  }

  absl::Status Shorten(Scenario* scenario) const {
    scenario->length = short_.length.value_or(scenario->length);
    scenario->warm_up = short_.warm_up.value_or(scenario->warm_up);
    scenario->window = short_.window.value_or(scenario->window);
    GPUSHARE_RETURN_IF_ERROR(ShortenCases(scenario));
    for (Case& one : scenario->cases) {
      for (Tenant& tenant : one.tenants) {
        if (tenant.active.empty()) continue;
        tenant.active = Within(tenant.active, {Nanos(0), scenario->length});
        if (!tenant.active.empty()) continue;
        return in_.Error(
            short_.line, "short.length",
            absl::StrCat("'", tenant.name, "' of '", one.name, "' is not active within it"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ShortenCases(Scenario* scenario) const {
    if (short_.cases.empty()) return absl::OkStatus();
    std::vector<Case> cases;
    for (const std::string& name : short_.cases) {
      const auto is_it = [&](const Case& one) { return one.name == name; };
      const auto found = std::find_if(scenario_.cases.begin(), scenario_.cases.end(), is_it);
      if (found == scenario_.cases.end() || std::any_of(cases.begin(), cases.end(), is_it)) {
        return in_.Error(short_.line, "short.cases",
                         absl::StrCat("'", name, "' given; allowed: names of cases, each once"));
      }
      cases.push_back(*found);
    }
    scenario->cases = std::move(cases);
    return absl::OkStatus();
  }

  absl::Status CheckWhole(int line, Place place) const {
    if (scenario_.warm_up + scenario_.window > scenario_.length) {
      return in_.Error(line, place,
                       absl::StrCat("it has no window after the warm-up: ",
                                    spec::FormatDuration(scenario_.length), " of length, ",
                                    spec::FormatDuration(scenario_.warm_up), " of warm_up and ",
                                    spec::FormatDuration(scenario_.window),
                                    " of window given; allowed: a length of the other two together "
                                    "or more"));
    }
    for (size_t i = 0; i < scenario_.cases.size(); ++i) {
      GPUSHARE_RETURN_IF_ERROR(CheckCase(scenario_.cases[i], absl::StrCat("cases[", i, "]")));
    }
    return absl::OkStatus();
  }

  static std::string Names() {
    std::vector<std::string> names;
    for (const Question* question : Questions()) names.emplace_back(question->name);
    return absl::StrJoin(names, "|");
  }

  // Adds rules for the keys of this question, and their default values.
  void AddOwn(OwnKey::Of of, Settings* settings, std::vector<yaml::Reader::Rule>* rules) const {
    if (scenario_.question == nullptr) return;
    for (const OwnKey& key : scenario_.question->keys) {
      if (key.of != of) continue;
      double* const out = &settings->emplace(key.name, key.otherwise).first->second;
      rules->push_back({key.name, [this, &key, out](const Node& value, Place place) {
                          return key.read(in_, value, place, out);
                        }});
    }
  }

  absl::Status ReadCase(const Node& map, Place place) {
    if (scenario_.cases.size() == kMostCases) {
      return in_.Error(map.line, place, absl::StrCat("at most ", kMostCases, " are allowed"));
    }
    Case one;
    std::vector<yaml::Reader::Rule> rules = {
        {"name",
         [&](const Node& value, Place below) { return ReadName(in_, value, below, &one.name); }},
        {"gpu",
         [&](const Node& value, Place below) {
           GPUSHARE_RETURN_IF_ERROR(
               in_.Text(value, below, "settings of the simulated GPU", &one.gpu));
           one.gpu = WithProfilesIn(folder_, one.gpu);
           return check_gpu_ ? in_.At(value, below, check_gpu_(one.gpu)) : absl::OkStatus();
         }},
        {"tenants", [&](const Node& value, Place below) {
           return in_.List(value, below, "a list of tenants", [&](const Node& each, Place under) {
             return ReadTenant(each, under, &one);
           });
         }}};
    AddOwn(OwnKey::Of::kCase, &one.settings, &rules);
    GPUSHARE_RETURN_IF_ERROR(in_.Keys(map, place, rules));
    if (one.name.empty()) return in_.Error(map.line, place, "'name' is missing");
    GPUSHARE_RETURN_IF_ERROR(CheckNew(map.line, place, "case", one.name, &case_lines_));
    const bool wants_tenants = scenario_.question == nullptr || scenario_.question->has_tenants;
    if (one.tenants.empty() && wants_tenants) {
      return in_.Error(map.line, place, "'tenants' is missing");
    }
    tenant_lines_.clear();
    entry_lines_.clear();
    scenario_.cases.push_back(std::move(one));
    return absl::OkStatus();
  }

  absl::Status ReadTenant(const Node& map, Place place, Case* of) {
    const size_t most =
        scenario_.question == nullptr ? kMostTenants : scenario_.question->most_tenants;
    if (of->tenants.size() >= most) {
      return in_.Error(map.line, place, absl::StrCat("at most ", most, " are allowed"));
    }
    Tenant tenant;
    int64_t count = 0;  // 0: not given, which makes one tenant with the entry's name
    const auto part = [this](std::optional<double>* out) {
      return [this, out](const Node& value, Place below) {
        double read = 0;
        GPUSHARE_RETURN_IF_ERROR(ReadPart(in_, value, below, &read));
        *out = read;
        return absl::OkStatus();
      };
    };
    bool high = false;
    workload::KernelTrace batched;
    std::vector<yaml::Reader::Rule> rules = {
        {"name",
         [&](const Node& value, Place below) { return ReadName(in_, value, below, &tenant.name); }},
        {"share", part(&tenant.ask.share)},
        {"cap", part(&tenant.ask.cap)},
        {"priority",
         [&](const Node& value, Place below) {
           size_t which = 0;
           GPUSHARE_RETURN_IF_ERROR(ReadWord(in_, value, below, "normal|high", &which));
           high = which == 1;
           return absl::OkStatus();
         }},
        {"delay",
         [&](const Node& value, Place below) {
           return ReadDelay(in_, value, below, &tenant.ask.delay.emplace());
         }},
        {"work", [&](const Node& value,
                     Place below) { return ReadWork(in_, value, below, folder_, &tenant.work); }},
        {"batches", [&](const Node& value, Place below) {
           return ReadBatches(in_, value, below, folder_, &batched, &tenant.batches);
         }}};
    const std::vector<yaml::Reader::Rule> of_some = {
        {"memory",
         [&](const Node& value, Place below) {
           return ReadMemory(in_, value, below, &tenant.ask.memory.emplace());
         }},
        {"allocate",
         [&](const Node& value, Place below) {
           return ReadAllocations(in_, value, below, &tenant.allocations);
         }},
        {"fault",
         [&](const Node& value, Place below) {
           return ReadFault(in_, value, below, kSample, &tenant.fault);
         }},
        {"isolation",
         [&](const Node& value, Place below) {
           size_t which = 0;
           GPUSHARE_RETURN_IF_ERROR(ReadWord(in_, value, below, "shared|context", &which));
           tenant.ask.own_context = which == 1;
           return absl::OkStatus();
         }},
        {"count", [&](const Node& value, Place below) {
           return ReadCount(in_, value, below, 1, static_cast<int64_t>(most), &count);
         }}};
    for (const yaml::Reader::Rule& rule : of_some) {
      if (HasTenantKey(rule.key)) rules.push_back(rule);
    }
    for (yaml::Reader::Rule& rule : TimingRules(in_, folder_, &tenant))
      rules.push_back(std::move(rule));
    GPUSHARE_RETURN_IF_ERROR(in_.Keys(map, place, rules));
    tenant.ask.high_priority = high;
    if (tenant.ask.delay.has_value() && !high) {
      return in_.Error(map.line, place, "'delay' is of 'priority: high'");
    }
    if (tenant.name.empty()) return in_.Error(map.line, place, "'name' is missing");
    GPUSHARE_RETURN_IF_ERROR(CheckNew(map.line, place, "tenant", tenant.name, &entry_lines_));
    if (!tenant.batches.empty()) {
      if (!tenant.work.empty()) {
        return in_.Error(map.line, place, "either 'work' or 'batches', which have work each");
      }
      tenant.work = std::move(batched);
    }
    if (tenant.work.empty() && tenant.allocations.empty()) {
      return in_.Error(
          map.line, place,
          HasTenantKey("allocate") ? "'work' or 'allocate' is missing" : "'work' is missing");
    }
    if (const std::string wrong = CheckTiming(tenant); !wrong.empty()) {
      return in_.Error(map.line, place, wrong);
    }
    return AddTenants(map, place, std::move(tenant), count, most, of);
  }

  bool HasTenantKey(std::string_view key) const {
    if (scenario_.question == nullptr) return false;
    const std::vector<std::string_view>& keys = scenario_.question->tenant_keys;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }

  // Adds `count` tenants, each with an equal part of the share.
  absl::Status AddTenants(const Node& map, Place place, Tenant tenant, int64_t count, size_t most,
                          Case* of) {
    tenant.entry = tenant.name;
    tenant.group = of->tenants.empty() ? 0 : of->tenants.back().group + 1;
    if (count == 0) {
      GPUSHARE_RETURN_IF_ERROR(CheckNew(map.line, place, "tenant", tenant.name, &tenant_lines_));
      of->tenants.push_back(std::move(tenant));
      return absl::OkStatus();
    }
    if (of->tenants.size() + static_cast<size_t>(count) > most) {
      return in_.Error(map.line, place, absl::StrCat("at most ", most, " tenants are allowed"));
    }
    const auto kernels = static_cast<int64_t>(tenant.work.kernels().size());
    if (kernels * count > kMostKernels) {
      return in_.Error(map.line, place,
                       absl::StrCat("at most ", kMostKernels,
                                    " kernels of all tenants together: "
                                    "less 'count' or less 'work'"));
    }
    if (tenant.ask.share.has_value()) *tenant.ask.share /= static_cast<double>(count);
    for (int64_t i = 1; i <= count; ++i) {
      of->tenants.push_back(tenant);
      of->tenants.back().name = absl::StrCat(tenant.name, "-", i);
      // A generated name may equal one that another entry has.
      GPUSHARE_RETURN_IF_ERROR(
          CheckNew(map.line, place, "tenant", of->tenants.back().name, &tenant_lines_));
    }
    return absl::OkStatus();
  }

  // `lines` has the line of each name met so far.
  absl::Status CheckNew(int line, Place place, const char* what, const std::string& name,
                        std::map<std::string, int>* lines) const {
    const auto [known, is_new] = lines->emplace(name, line);
    if (is_new) return absl::OkStatus();
    return in_.Error(
        line, place,
        absl::StrCat("there is a ", what, " '", name, "' already, in line ", known->second));
  }

  // Checks that involve several keys, which may stand in any order.
  absl::Status CheckCase(const Case& one, Place place) const {
    const int line = case_lines_.at(one.name);
    if (scenario_.question->check != nullptr) {
      const std::string wrong = scenario_.question->check(scenario_, one);
      if (!wrong.empty()) return in_.Error(line, place, wrong);
    }
    double shares = 0, expected = 0;
    for (const Tenant& tenant : one.tenants) {
      if (const std::string wrong = CheckTiming(tenant, scenario_.length); !wrong.empty()) {
        return in_.Error(line, place, wrong);
      }
      if (ServesRequests(tenant)) {
        expected += RequestsExpected(tenant, scenario_.length);
      }
      shares += tenant.ask.share.value_or(0);
    }
    if (shares > 1.001) {
      return in_.Error(line, place,
                       absl::StrCat("the shares of its tenants add up to ",
                                    spec::FormatShare(std::round(shares * 1e5) / 1e5),
                                    "; at most 100% is wanted"));
    }
    if (expected > kMostRequests) {
      return in_.Error(line, place,
                       absl::StrCat("some ", static_cast<int64_t>(expected), " requests in ",
                                    spec::FormatDuration(scenario_.length), "; at most ",
                                    static_cast<int64_t>(kMostRequests),
                                    " are allowed: less 'load' or 'rate', longer 'work' or a "
                                    "shorter 'length'"));
    }
    return absl::OkStatus();
  }

  const yaml::Reader in_;
  const std::string folder_;
  Scenario& scenario_;
  const CheckGpu& check_gpu_;
  const Length length_;
  Short short_;
  std::map<std::string, int> case_lines_;                  // by name
  std::map<std::string, int> entry_lines_, tenant_lines_;  // of the case being read
};

}  // namespace

bool ServesRequests(const Tenant& tenant) {
  return tenant.mode == player::PlayMode::kOpenLoop || tenant.mode == player::PlayMode::kBatches;
}

bool IsApart(const Case& one) {
  const auto apart = one.settings.find("apart");
  return apart != one.settings.end() && apart->second != 0;
}

absl::StatusOr<Scenario> ParseScenario(std::string_view text, const std::string& file,
                                       const CheckGpu& check_gpu, Length length) {
  GPUSHARE_ASSIGN_OR_RETURN(const Node document, yaml::Parse(text, file));
  Scenario scenario;
  GPUSHARE_RETURN_IF_ERROR(ScenarioReader(file, check_gpu, length, &scenario).Read(document));
  const size_t slash = file.rfind('/');
  scenario.name = file.substr(slash == std::string::npos ? 0 : slash + 1);
  scenario.name.resize(std::min(scenario.name.size(), scenario.name.rfind('.')));
  return scenario;
}

absl::StatusOr<Scenario> LoadScenario(const std::string& file, const CheckGpu& check_gpu,
                                      Length length) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string text, yaml::ReadFile(file));
  return ParseScenario(text, file, check_gpu, length);
}

absl::StatusOr<std::vector<Scenario>> LoadScenarios(const std::vector<std::string>& files,
                                                    const CheckGpu& check_gpu, Length length) {
  std::vector<Scenario> scenarios;
  std::map<std::string, std::string> known;
  for (const std::string& file : files) {
    GPUSHARE_ASSIGN_OR_RETURN(Scenario scenario, LoadScenario(file, check_gpu, length));
    const auto [other, is_new] = known.emplace(scenario.name, file);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat(Printable(file, 256), ": there is a scenario ",
                                                     Quoted(scenario.name),
                                                     " already: ", Printable(other->second, 256)));
    }
    scenarios.push_back(std::move(scenario));
  }
  return scenarios;
}

}  // namespace gpushare::harness
