// SPDX-License-Identifier: Apache-2.0
#include "base/limit_variables.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/strings/ascii.h"
#include "base/env.h"
#include "base/text.h"

namespace gpushare::base {
namespace {

constexpr char kMpsMemory[] = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";
constexpr char kPolicy[] = "GPU_CORE_UTILIZATION_POLICY";

using Get = std::function<std::optional<std::string>(const std::string&)>;

// `text` as a number, if all of it is one.
std::optional<uint64_t> Number(std::string_view text) {
  if (text.empty()) return std::nullopt;
  uint64_t number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<uint64_t>(c - '0');
    if (number > (std::numeric_limits<uint64_t>::max() - digit) / 10) return std::nullopt;
    number = number * 10 + digit;
  }
  return number;
}

// A number followed by the spec's `unit`; nullopt for "0", which means no limit. Text that is not a number stays unchanged.
std::optional<std::string> InUnits(const std::string& text, const char* unit) {
  const std::optional<uint64_t> number = Number(text);
  if (number == 0) return std::nullopt;
  return text + unit;
}

// "1g", "1024m", "1048576k" or bytes.
std::optional<std::string> WithSuffix(const std::string& text) {
  const char last = absl::ascii_tolower(static_cast<unsigned char>(text.back()));
  const char* const unit = last == 'g' ? "GiB" : last == 'm' ? "MiB" : last == 'k' ? "KiB" : "";
  return InUnits(*unit == 0 ? text : text.substr(0, text.size() - 1), *unit == 0 ? "B" : unit);
}

// The value of the variable for one GPU ("..._0") if it is set, else of the one for all GPUs.
struct Value {
  std::string variable, text;
};
std::optional<Value> Of(const Get& get, const std::string& name, int ordinal) {
  for (const std::string& each : {name + "_" + std::to_string(ordinal), name}) {
    if (std::optional<std::string> text = get(each)) return Value{each, *std::move(text)};
  }
  return std::nullopt;
}

std::optional<Value> OfAll(const Get& get, const std::string& name) {
  if (std::optional<std::string> text = get(name)) return Value{name, *std::move(text)};
  return std::nullopt;
}

// MPS's notation: "2G" counts in powers of 1024, and a number without a unit in bytes. The spec's parser reads other forms.
std::string WithMpsSuffix(std::string size) {
  if (Number(size).has_value()) return size + "B";
  const char last = absl::ascii_toupper(static_cast<unsigned char>(size.back()));
  if (last != 'G' && last != 'M' && last != 'K') return size;
  size.back() = last;
  return size + "iB";
}

// Makes `text` invalid as the value of any key.
std::string Unreadable(std::string text) {
  std::replace(text.begin(), text.end(), ',', ';');
  return "=" + text;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Whether a broker divides the GPU among processes.
bool UnderABroker(const Get& get) {
  const std::string broker = get("GPUSHARE_BROKER").value_or("");
  return !broker.empty() && broker != "none";
}

struct Family {
  std::string_view limit;                     // the key that is filled in
  std::array<std::string_view, 6> spec_keys;  // a spec with one of these already sets the limit
};
constexpr Family kFamilies[] = {
    {"memory", {"memory", "memory_cap"}},
    {"cap", {"compute", "guarantee", "weight", "cap", "burst", "policy"}},
    {"priority", {"priority"}},
};

// The key in "key=value".
std::string_view KeyOf(std::string_view pair) {
  while (!pair.empty() && pair.front() == ' ') pair.remove_prefix(1);
  std::string_view key = pair.substr(0, pair.find('='));
  while (!key.empty() && key.back() == ' ') key.remove_suffix(1);
  return key;
}

bool Says(std::string_view spec, std::string_view key) {
  while (!spec.empty()) {
    const size_t comma = spec.find(',');
    if (KeyOf(spec.substr(0, comma)) == key) return true;
    spec = comma == std::string_view::npos ? std::string_view() : spec.substr(comma + 1);
  }
  return false;
}

// Whether `spec` has a key about the same subject as `key`.
bool SaysOfSubject(std::string_view spec, std::string_view key) {
  for (const Family& family : kFamilies) {
    const auto& keys = family.spec_keys;
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) continue;
    return std::any_of(keys.begin(), keys.end(),
                       [spec](std::string_view each) { return Says(spec, each); });
  }
  return Says(spec, key);
}

}  // namespace

std::optional<std::string> MpsMemoryLimit(const std::string& text, int ordinal) {
  std::optional<std::string> found;
  for (std::string_view rest = text; !Trim(rest).empty();) {
    const size_t comma = rest.find(',');
    const std::string_view item = Trim(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return Unreadable(text);
    const std::optional<uint64_t> gpu = Number(Trim(item.substr(0, equals)));
    const std::string size(Trim(item.substr(equals + 1)));
    if (!gpu.has_value() || size.empty()) return Unreadable(text);
    if (*gpu == static_cast<uint64_t>(ordinal)) found = WithMpsSuffix(size);
  }
  return found;
}

std::vector<Limit> FindLimits(int ordinal, const Get& get) {
  std::vector<Limit> found;
  const auto add = [&](const char* key, const Value& from, std::optional<std::string> value,
                       const char* allowed) {
    if (!value.has_value()) return;
    found.push_back({key, *std::move(value), from.variable, from.text, allowed, ""});
  };
  if (const auto mib = OfAll(get, "NVIDIA_GPU_MEMORY_LIMIT")) {
    add("memory", *mib, InUnits(mib->text, "MiB"), "a number of MiB, as in 4096");
  } else if (const auto limit = Of(get, "CUDA_DEVICE_MEMORY_LIMIT", ordinal)) {
    add("memory", *limit, WithSuffix(limit->text), "as in 1g, 1024m or 1048576k, or bytes");
  } else if (const auto gib = OfAll(get, "ALIYUN_COM_GPU_MEM_CONTAINER")) {
    add("memory", *gib, InUnits(gib->text, "GiB"), "a number of GiB, as in 3");
  } else if (const auto pinned = OfAll(get, kMpsMemory)) {
    add("memory", *pinned, MpsMemoryLimit(pinned->text, ordinal), kMpsMemoryAllowed);
  }
  // HAMi's "default" policy lends idle time to the only tenant. Without a broker, other tenants are unknown, so it is a cap.
  const std::string policy = absl::AsciiStrToLower(get(kPolicy).value_or("default"));
  if (const auto limit = Of(get, "CUDA_DEVICE_SM_LIMIT", ordinal);
      policy != "disable" && limit.has_value()) {
    const std::optional<uint64_t> percent = Number(limit->text);
    constexpr char kAllowed[] = "percent, 0 to 100";
    // NOLINTNEXTLINE(misc-redundant-expression): clang-tidy 14 takes comparisons of an optional for one another
    const bool limits = percent != 0 && percent != 100;
    if (limits && policy == "default" && UnderABroker(get)) {
      add("compute", *limit, limit->text + "%", kAllowed);
      add("policy", OfAll(get, kPolicy).value_or(*limit), "default", kAllowed);
    } else if (limits) {
      add("cap", *limit, limit->text + "%", kAllowed);
      if (policy == "default") {
        found.back().note =
            "holds also while no other tenant has work, as without a broker nobody knows "
            "(GPU_CORE_UTILIZATION_POLICY, whose default lets it have the rest then)";
      }
    }
  }
  if (const auto priority = OfAll(get, "CUDA_TASK_PRIORITY")) {
    const std::string& text = priority->text;
    add("priority", *priority,
        text == "0"   ? "high"
        : text == "1" ? "low"
                      : text,
        "0, which is high, or 1, low");
  }
  return found;
}

std::vector<Limit> FindLimits(int ordinal) {
  return FindLimits(ordinal, [](const std::string& name) { return GetEnv(name.c_str()); });
}

std::string AddSpec(const std::string& spec, const std::string& wider) {
  std::string text = spec;
  for (std::string_view rest = wider; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view pair = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (SaysOfSubject(spec, KeyOf(pair))) continue;
    if (!text.empty()) text += ",";
    text += pair;
  }
  return text;
}

std::string AddLimits(const std::string& spec, const std::vector<Limit>& limits,
                      std::vector<Limit>* used) {
  std::string text = spec;
  for (const Limit& limit : limits) {
    if (SaysOfSubject(spec, limit.key)) continue;
    if (!text.empty()) text += ",";
    text += limit.key + "=" + limit.value;
    if (used != nullptr) used->push_back(limit);
  }
  return text;
}

std::string WrongLimit(const std::vector<Limit>& limits,
                       const std::function<bool(const std::string& spec)>& is_spec) {
  for (const Limit& limit : limits) {
    if (is_spec(limit.key + "=" + limit.value)) continue;
    return limit.variable + ": " + Quoted(limit.text) + " given; allowed: " + limit.allowed;
  }
  return "";
}

}  // namespace gpushare::base
