// SPDX-License-Identifier: Apache-2.0
#include "broker/config.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "broker/account.h"
#include "broker/config_parents.h"
#include "broker/tenant_spec.h"
#include "spec/spec.h"
#include "spec/text.h"
#include "yaml/reader.h"

namespace gpushare::broker {
namespace {

using YamlNode = yaml::Node;
using YamlReader = yaml::Reader;
using Kind = YamlNode::Kind;

constexpr size_t kMostTenants = 10'000;
constexpr size_t kMostLabels = 32;
constexpr size_t kMostLabelText = 256;
// Labels that the metrics or their collector set on every series, or on those of a histogram. A collector that finds one twice
// takes none of the metrics.
constexpr const char* kTakenLabels[] = {"device_uuid", "tenant",   "parent", "pid",
                                        "job",         "instance", "le"};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

absl::Status CheckGpu(std::string_view uuid) {
  const bool begins = uuid.substr(0, 4) == "GPU-" || uuid.substr(0, 4) == "MIG-";
  const bool goes_on = std::all_of(uuid.begin(), uuid.end(), [](char c) {
    return IsLetter(c) || IsDigit(c) || c == '-' || c == '/';
  });
  if (begins && goes_on && uuid.size() > 4 && uuid.size() <= 96) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "allowed: a GPU by its UUID, GPU-... or MIG-..., as `gpushare probe` shows it");
}

absl::Status CheckLabel(std::string_view name) {
  const bool good = !name.empty() && name.size() <= 64 && !IsDigit(name[0]) &&
                    name.substr(0, 2) != "__" && std::all_of(name.begin(), name.end(), [](char c) {
                      return IsLetter(c) || IsDigit(c) || c == '_';
                    });
  const bool taken =
      std::find(std::begin(kTakenLabels), std::end(kTakenLabels), name) != std::end(kTakenLabels);
  if (good && !taken) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "allowed: a name that a label of a metric can have, up to 64 letters, digits and '_', not "
      "beginning with a digit or '__', and none of ",
      absl::StrJoin(kTakenLabels, ", ")));
}

// Reads a spec as text or as a YAML map with its keys. `change`: it is merged into another spec.
absl::Status ReadSpec(const YamlReader& in, const YamlNode& value, const std::string& place,
                      bool change, std::string* out) {
  if (value.kind == Kind::kList) {
    return in.Wrong(value, place, "allowed: a spec, as in memory=8GiB,compute=30%, or its keys");
  }
  std::string text = value.text;
  const absl::Status read =
      in.Entries(value.kind == Kind::kMap ? value : YamlNode(), place, "",
                 [&](const YamlNode& key, const YamlNode& each, const std::string& below) {
                   std::string one;
                   GPUSHARE_RETURN_IF_ERROR(in.Text(each, below, "one value, as in 8GiB", &one));
                   if (absl::StrCat(key.text, one).find_first_of(",=") != std::string::npos) {
                     return in.Wrong(each, below, "allowed: one value without ',' and '='");
                   }
                   absl::StrAppend(&text, text.empty() ? "" : ",", key.text, "=", one);
                   return absl::OkStatus();
                 });
  if (!read.ok()) return read;
  const absl::StatusOr<gpushare_spec> spec = spec::ParseSpec(text);
  absl::Status valid = spec.status();
  if (valid.ok()) valid = change ? CheckTenantKeys(*spec) : CheckTenantSpec(*spec);
  if (!valid.ok()) return in.Error(value.line, place, std::string(valid.message()));
  *out = spec::FormatSpec(*spec);
  return absl::OkStatus();
}

absl::Status ReadAccounts(const YamlReader& in, const YamlNode& value, const std::string& place,
                          absl::StatusOr<uint32_t> (*id)(const std::string&),
                          std::vector<uint32_t>* ids) {
  // An empty list would look like nobody, but a list that is left out means everybody.
  const bool nobody =
      value.kind == Kind::kNothing || (value.kind == Kind::kList && value.values.empty());
  if (nobody) {
    return in.Error(value.line, place,
                    "it names nobody; allowed: a list of names or numbers, or no such key, which "
                    "docs/broker.md says the meaning of");
  }
  return in.List(value, place, "a list of names or numbers",
                 [&](const YamlNode& each, const std::string& below) {
                   std::string text;
                   GPUSHARE_RETURN_IF_ERROR(in.Text(each, below, "a name or a number", &text));
                   const absl::StatusOr<uint32_t> found = id(text);
                   if (!found.ok()) return in.At(each, below, found.status());
                   ids->push_back(*found);
                   return absl::OkStatus();
                 });
}

absl::Status ReadLabels(const YamlReader& in, const YamlNode& map, const std::string& place,
                        std::map<std::string, std::string>* labels) {
  if (map.keys.size() > kMostLabels) {
    return in.Error(map.line, place,
                    absl::StrCat(map.keys.size(), " given; allowed: up to ", kMostLabels));
  }
  return in.Entries(map, place, "names and values",
                    [&](const YamlNode& key, const YamlNode& value, const std::string& below) {
                      GPUSHARE_RETURN_IF_ERROR(in.At(key, below, CheckLabel(key.text)));
                      if (value.kind != Kind::kText || value.text.size() > kMostLabelText) {
                        return in.Wrong(
                            value, below,
                            absl::StrCat("allowed: text of up to ", kMostLabelText, " bytes"));
                      }
                      (*labels)[key.text] = value.text;
                      return absl::OkStatus();
                    });
}

absl::Status ReadReserve(const YamlReader& in, const YamlNode& map, const std::string& place,
                         std::map<std::string, std::string>* reserve) {
  return in.Entries(
      map, place, "sizes by the UUID of a GPU, or by \"*\" for all others",
      [&](const YamlNode& key, const YamlNode& value, const std::string& below) {
        if (key.text != "*") GPUSHARE_RETURN_IF_ERROR(in.At(key, below, CheckGpu(key.text)));
        std::string text;
        GPUSHARE_RETURN_IF_ERROR(in.Text(value, below, "a size, as in 512MiB", &text));
        const absl::StatusOr<uint64_t> bytes = spec::ParseMemory(text);
        if (!bytes.ok()) {
          return in.Wrong(
              value, below,
              absl::StrCat(bytes.status().message(), "; allowed: a size, as in 512MiB or 0B"));
        }
        (*reserve)[key.text] = spec::FormatBytes(*bytes);
        return absl::OkStatus();
      });
}

// Reads "off" or a time such as 10s.
absl::Status ReadInterval(const YamlReader& in, const YamlNode& value, const std::string& place,
                          Nanos* interval) {
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, "a time, as in 10s", &text));
  absl::Duration parsed;
  if (text == "off") {
    *interval = Nanos(0);
  } else if (absl::ParseDuration(text, &parsed) && parsed >= absl::Milliseconds(100) &&
             parsed <= absl::Hours(24)) {
    *interval = absl::ToChronoNanoseconds(parsed);
  } else {
    return in.Wrong(value, place, "allowed: 100ms to 24h, as in 10s, or off");
  }
  return absl::OkStatus();
}

absl::Status ReadAudit(const YamlReader& in, const YamlNode& map, const std::string& place,
                       Config* config) {
  return in.Keys(map, place,
                 {{"interval",
                   [&](const YamlNode& value, const std::string& below) {
                     return ReadInterval(in, value, below, &config->audit_interval);
                   }},
                  {"allowance", [&](const YamlNode& value, const std::string& below) {
                     std::string text;
                     GPUSHARE_RETURN_IF_ERROR(in.Text(value, below, "a size, as in 1GiB", &text));
                     const absl::StatusOr<uint64_t> bytes = spec::ParseMemory(text);
                     if (bytes.ok()) config->audit_allowance = *bytes;
                     return bytes.ok() ? absl::OkStatus()
                                       : in.Wrong(value, below,
                                                  absl::StrCat(bytes.status().message(),
                                                               "; allowed: a size, as in 1GiB"));
                   }}});
}

absl::Status ReadReclaim(const YamlReader& in, const YamlNode& map, const std::string& place,
                         Config* config) {
  const auto read = [&in](const YamlNode& value, const std::string& below, Nanos* time) {
    std::string text;
    GPUSHARE_RETURN_IF_ERROR(in.Text(value, below, "a time, as in 500ms", &text));
    absl::Duration parsed;
    if (!absl::ParseDuration(text, &parsed) || parsed < absl::ZeroDuration() ||
        parsed > absl::Seconds(10)) {
      return in.Wrong(value, below, "allowed: 0s to 10s, as in 500ms");
    }
    *time = absl::ToChronoNanoseconds(parsed);
    return absl::OkStatus();
  };
  return in.Keys(map, place,
                 {{"after",
                   [&](const YamlNode& value, const std::string& below) {
                     return read(value, below, &config->reclaim_after.emplace());
                   }},
                  {"most", [&](const YamlNode& value, const std::string& below) {
                     return read(value, below, &config->reclaim_most);
                   }}});
}

absl::Status ReadSlice(const YamlReader& in, const YamlNode& value, const std::string& place,
                       Nanos* slice) {
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, "a time, as in 4ms", &text));
  absl::Duration parsed;
  if (!absl::ParseDuration(text, &parsed) || parsed < absl::Microseconds(500) ||
      parsed > absl::Milliseconds(100)) {
    return in.Wrong(value, place, "allowed: 500us to 100ms, as in 4ms");
  }
  *slice = absl::ToChronoNanoseconds(parsed);
  return absl::OkStatus();
}

absl::Status ReadFloor(const YamlReader& in, const YamlNode& value, const std::string& place,
                       double* floor) {
  std::string text;
  GPUSHARE_RETURN_IF_ERROR(in.Text(value, place, "a part of the device's time, as in 5%", &text));
  const absl::StatusOr<double> part = spec::ParseShare(text);
  if (!part.ok() || *part < 0 || *part > 0.5) {
    return in.Wrong(value, place, "allowed: 0% to 50%, as in 5%");
  }
  *floor = *part;
  return absl::OkStatus();
}

// A tenant's promised share of a GPU, as far as it is known without the GPU.
struct Promise {
  double guarantee = 0;
  double memory = 0;  // only quotas that are given as a share of the GPU
  int line = 1;
};

absl::StatusOr<Promise> PromiseOf(const std::string& text, const std::string& change, int line) {
  GPUSHARE_ASSIGN_OR_RETURN(gpushare_spec spec, spec::ParseSpec(text));
  GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec changed, spec::ParseSpec(change));
  spec = spec::MergeSpec(spec, changed);
  GPUSHARE_ASSIGN_OR_RETURN(
      const spec::Limits limits,
      spec::ResolveSpec(spec, GPUSHARE_PRIORITY_UNSET, static_cast<uint64_t>(INT64_MAX)));
  return Promise{limits.compute.guarantee,
                 (spec.set & GPUSHARE_SPEC_MEMORY_SHARE) != 0 ? spec.memory_share : 0, line};
}

// The promises to all tenants, for each GPU that is named and for any other.
class Promises {
 public:
  void Add(const std::string& tenant, const Promise& promise) {
    Add(&everywhere_, promise, Promise());
    made_.push_back({tenant, promise, {}});
  }
  // On this GPU, replaces the promise to the tenant that was added last.
  void Instead(const std::string& gpu, const Promise& promise) {
    Add(&on_[gpu], promise, made_.back().everywhere);
    made_.back().on[gpu] = promise;
  }

  absl::Status Check(const YamlReader& in) const {
    GPUSHARE_RETURN_IF_ERROR(Check(in, everywhere_, ""));
    for (const auto& [gpu, more] : on_) {
      Promise sum = everywhere_;
      Add(&sum, more, Promise());
      GPUSHARE_RETURN_IF_ERROR(Check(in, sum, gpu));
    }
    return absl::OkStatus();
  }

 private:
  struct Made {
    std::string tenant;
    Promise everywhere;
    std::map<std::string, Promise> on;
  };
  static constexpr double kAll = 1 + 1e-6;  // rounding: ten times 10 % is a little more than 1

  static void Add(Promise* sum, const Promise& promise, const Promise& instead_of) {
    sum->guarantee += promise.guarantee - instead_of.guarantee;
    sum->memory += promise.memory - instead_of.memory;
  }
  // `gpu` empty: any GPU that is not named.
  absl::Status Check(const YamlReader& in, const Promise& sum, const std::string& gpu) const {
    if (sum.guarantee > kAll) return TooMuch(in, "guarantees", &Promise::guarantee, gpu);
    if (sum.memory > kAll) return TooMuch(in, "memory quotas", &Promise::memory, gpu);
    return absl::OkStatus();
  }
  // The message names the first tenant that exceeds the GPU.
  absl::Status TooMuch(const YamlReader& in, const char* what, double Promise::*part,
                       const std::string& gpu) const {
    double sum = 0;
    const Made* with = nullptr;
    int line = 1;
    for (const Made& made : made_) {
      const auto there = made.on.find(gpu);
      const Promise& promise = there == made.on.end() ? made.everywhere : there->second;
      if (promise.*part <= 0) continue;
      sum += promise.*part;
      with = &made;
      line = promise.line;
      if (sum > kAll) break;
    }
    return in.Error(line, "tenants",
                    absl::StrCat("with ", Quoted(with == nullptr ? "" : with->tenant), " ", what,
                                 " are ", spec::FormatShare(std::round(sum * 1e6) / 1e6), " of ",
                                 gpu.empty() ? "a GPU" : gpu,
                                 "; allowed: up to 100% for all tenants together"));
  }

  Promise everywhere_;
  std::map<std::string, Promise> on_;  // added to `everywhere_`
  std::vector<Made> made_;
};

// Reads one document.
class ConfigReader {
 public:
  explicit ConfigReader(std::string_view file) : in_(file) {}

  absl::StatusOr<Config> Read(const YamlNode& document) {
    const absl::Status read = in_.Keys(
        document, "",
        {{"socket",
          [this](const YamlNode& value, const std::string& place) {
            GPUSHARE_RETURN_IF_ERROR(in_.Text(value, place, "a path", &config_.socket));
            return in_.At(value, place, CheckSocketPath(config_.socket));
          }},
         {"metrics",
          [this](const YamlNode& value, const std::string& place) {
            GPUSHARE_RETURN_IF_ERROR(in_.Text(value, place, "an address", &config_.metrics));
            const absl::StatusOr<std::string> address = ParseAddress(config_.metrics);
            if (address.ok()) config_.metrics = *address;
            return in_.At(value, place, address.status());
          }},
         {"operators",
          [this](const YamlNode& value, const std::string& place) {
            return ReadAccounts(in_, value, place, UserId, &config_.operators.emplace());
          }},
         {"unlisted",
          [this](const YamlNode& value, const std::string& place) {
            return in_.Bool(value, place, &config_.unlisted);
          }},
         {"reserve",
          [this](const YamlNode& value, const std::string& place) {
            return ReadReserve(in_, value, place, &config_.reserve);
          }},
         {"audit",
          [this](const YamlNode& value, const std::string& place) {
            return ReadAudit(in_, value, place, &config_);
          }},
         {"reclaim",
          [this](const YamlNode& value, const std::string& place) {
            return ReadReclaim(in_, value, place, &config_);
          }},
         {"slice",
          [this](
              const YamlNode& value,
              const std::string& place) { return ReadSlice(in_, value, place, &config_.slice); }},
         {"floor",
          [this](
              const YamlNode& value,
              const std::string& place) { return ReadFloor(in_, value, place, &config_.floor); }},
         {"tenants", [this](const YamlNode& value, const std::string& place) {
            return ReadTenants(value, place);
          }}});
    if (!read.ok()) return read;
    GPUSHARE_RETURN_IF_ERROR(promises_.Check(in_));
    GPUSHARE_RETURN_IF_ERROR(CheckParents(in_, config_.tenants, lines_));
    return std::move(config_);
  }

 private:
  absl::Status ReadTenants(const YamlNode& list, const std::string& place) {
    if (list.values.size() > kMostTenants) {
      return in_.Error(list.line, place,
                       absl::StrCat(list.values.size(), " given; allowed: up to ", kMostTenants));
    }
    return in_.List(list, place, "a list of tenants",
                    [this](const YamlNode& value, const std::string& below) {
                      return ReadTenant(value, below);
                    });
  }

  absl::Status ReadTenant(const YamlNode& map, const std::string& place) {
    TenantConfig tenant;
    TenantLines lines{.tenant = map.line, .parent = map.line};
    const YamlNode* specs = nullptr;
    const absl::Status read =
        in_.Keys(map, place,
                 {{"name",
                   [&](const YamlNode& value, const std::string& below) {
                     GPUSHARE_RETURN_IF_ERROR(in_.Text(value, below, "a name", &tenant.name));
                     return in_.At(value, below, spec::ValidateTenantName(tenant.name));
                   }},
                  {"spec",
                   [&](const YamlNode& value, const std::string& below) {
                     return ReadSpec(in_, value, below, /*change=*/false, &tenant.spec);
                   }},
                  {"on",
                   [&](const YamlNode& value, const std::string& below) {
                     specs = &value;
                     return in_.Entries(
                         value, below, "specs by the UUID of a GPU",
                         [&](const YamlNode& key, const YamlNode& spec, const std::string& under) {
                           GPUSHARE_RETURN_IF_ERROR(in_.At(key, under, CheckGpu(key.text)));
                           return ReadSpec(in_, spec, under, /*change=*/true, &tenant.on[key.text]);
                         });
                   }},
                  {"parent",
                   [&](const YamlNode& value, const std::string& below) {
                     lines.parent = value.line;
                     GPUSHARE_RETURN_IF_ERROR(
                         in_.Text(value, below, "the name of a tenant", &tenant.parent));
                     return in_.At(value, below, spec::ValidateTenantName(tenant.parent));
                   }},
                  {"users",
                   [&](const YamlNode& value, const std::string& below) {
                     return ReadAccounts(in_, value, below, UserId, &tenant.uids);
                   }},
                  {"groups",
                   [&](const YamlNode& value, const std::string& below) {
                     return ReadAccounts(in_, value, below, GroupId, &tenant.gids);
                   }},
                  {"labels", [&](const YamlNode& value, const std::string& below) {
                     return ReadLabels(in_, value, below, &tenant.labels);
                   }}});
    if (!read.ok()) return read;
    if (tenant.name.empty()) {
      return in_.Error(map.line, place, "it has no name; allowed: 'name' and other keys");
    }
    if (!names_.insert(tenant.name).second) {
      return in_.Error(map.line, absl::StrCat(place, ".name"),
                       absl::StrCat("there is a tenant ", Quoted(tenant.name), " already"));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const Promise promise, PromiseOf(tenant.spec, "", map.line));
    // What a child is promised comes out of its parent's, so it takes nothing of the GPU's.
    if (tenant.parent.empty()) promises_.Add(tenant.name, promise);
    // The keys for a GPU must be valid together with the keys of the spec that they do not override.
    for (size_t i = 0; specs != nullptr && i < specs->keys.size(); ++i) {
      const std::string& gpu = specs->keys[i].text;
      const absl::StatusOr<Promise> there =
          PromiseOf(tenant.spec, tenant.on[gpu], specs->keys[i].line);
      if (!there.ok()) {
        return in_.Error(specs->keys[i].line, absl::StrCat(place, ".on.", gpu),
                         absl::StrCat(there.status().message(), " (with 'spec' beneath)"));
      }
      if (tenant.parent.empty()) promises_.Instead(gpu, *there);
    }
    config_.tenants.push_back(std::move(tenant));
    lines_.push_back(lines);
    return absl::OkStatus();
  }

  const YamlReader in_;
  Config config_;
  std::set<std::string> names_;
  std::vector<TenantLines> lines_;  // of the tenants
  Promises promises_;
};

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view yaml, std::string_view file) {
  GPUSHARE_ASSIGN_OR_RETURN(const YamlNode document, yaml::Parse(yaml, file));
  return ConfigReader(file).Read(document);
}

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  GPUSHARE_ASSIGN_OR_RETURN(const std::string text, yaml::ReadFile(path));
  return ParseConfig(text, path);
}

absl::Status CheckSocketPath(std::string_view path) {
  constexpr size_t kMostPath = 4095, kMostName = 80;  // kMostName is the limit of ipc::Listener
  const size_t name = path.size() - (path.rfind('/') + 1);
  if (!path.empty() && path.front() == '/' && name > 0 && name <= kMostName &&
      path.size() <= kMostPath && !HasZeroByte(path)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("allowed: an absolute path whose last name has up to ", kMostName,
                   " bytes, as in /run/gpushare/broker.sock"));
}

absl::StatusOr<std::string> ParseAddress(std::string_view text) {
  const size_t colon = text.rfind(':');
  const bool port_alone = colon == std::string_view::npos;
  const std::string host(port_alone ? "127.0.0.1" : text.substr(0, colon));
  const std::string_view digits = port_alone ? text : text.substr(colon + 1);
  in_addr v4;
  in6_addr v6;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool is_host =
      !HasZeroByte(host) &&
      (bracketed ? inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) == 1
                 : inet_pton(AF_INET, host.c_str(), &v4) == 1);
  uint32_t port = 0;
  const bool is_port = !digits.empty() && digits.size() <= 5 &&
                       std::all_of(digits.begin(), digits.end(), IsDigit) &&
                       absl::SimpleAtoi(std::string(digits), &port) && port <= 65535;
  if (is_host && is_port) return absl::StrCat(host, ":", port);
  return absl::InvalidArgumentError(
      "allowed: an IP address and a port, as in 127.0.0.1:9410 or [::1]:9410, or a port alone, "
      "which is of 127.0.0.1; 0 takes a free one");
}

}  // namespace gpushare::broker
