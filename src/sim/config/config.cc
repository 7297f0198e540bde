// SPDX-License-Identifier: Apache-2.0
#include "sim/config/config.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "sim/config/profile.h"
#include "sim/processes/layout.h"

namespace gpushare::sim {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t' || text.front() == '\r')) {
    text.remove_prefix(1);
  }
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
    text.remove_suffix(1);
  }
  return text;
}

// Splits "12.5us" into 12.5 and "us".
bool SplitNumber(std::string_view text, double* value, std::string_view* unit) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || !std::isfinite(*value) || *value < 0) return false;
  *unit = Trim(text.substr(static_cast<size_t>(end - text.data())));
  return true;
}

bool ParseSize(std::string_view text, uint64_t* bytes) {
  double value = 0;
  std::string_view unit;
  if (!SplitNumber(text, &value, &unit)) return false;
  if (unit == "KiB") {
    value *= 1024.0;
  } else if (unit == "MiB") {
    value *= 1024.0 * 1024.0;
  } else if (unit == "GiB") {
    value *= 1024.0 * 1024.0 * 1024.0;
  } else if (unit != "B" && !unit.empty()) {
    return false;
  }
  if (value > 1e15) return false;
  *bytes = static_cast<uint64_t>(value);
  return true;
}

constexpr uint64_t kMostOfOne = uint64_t{4} << 30;  // the maximum for a context or a module

bool ParseRate(std::string_view text, double* bytes_per_ns) {
  std::string_view unit;
  // With less, the time of a copy would exceed the clock's range.
  return SplitNumber(text, bytes_per_ns, &unit) && unit == "GB/s" && *bytes_per_ns >= 1e-6 &&
         *bytes_per_ns <= 1e6;
}

// The time of a call. The limit keeps sums of such times in range.
bool ParseTime(std::string_view text, uint64_t* ns) {
  constexpr uint64_t kHour = 3'600'000'000'000;
  return ParseDuration(text, ns) && *ns <= kHour;
}

template <typename T>
bool ParseInt(std::string_view text, uint64_t least, uint64_t most, T* value) {
  uint64_t parsed = 0;
  if (!ParseUnsigned(text, &parsed) || parsed < least || parsed > most) return false;
  *value = static_cast<T>(parsed);
  return true;
}

// The name of a device that processes share: it becomes part of a file name.
bool IsName(std::string_view text) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  return text.size() <= 64 && text.find_first_not_of(kAllowed) == text.npos &&
         (text.empty() || text.front() != '.');
}

// The name of a device in the form that drivers use. A caller with a short buffer gets its beginning.
bool IsPrintableAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// True when the key is known; `*ok` says whether the value is valid.
bool Set(std::string_view key, std::string_view value, Config& c, bool* ok) {
  *ok = true;
  if (key == "clock") {
    *ok = value == "wall" || value == "virtual";
    c.virtual_clock = value == "virtual";
  } else if (key == "pin") {
    *ok = ParseInt(value, 0, 1, &c.pin);
  } else if (key == "cancellable") {
    *ok = ParseInt(value, 0, 1, &c.cancellable);
  } else if (key == "name") {
    *ok = !value.empty() && IsPrintableAscii(value);
    c.name = std::string(value);
  } else if (key == "devices") {
    *ok = ParseInt(value, 1, 64, &c.devices);
  } else if (key == "sms") {
    *ok = ParseInt(value, 1, 4096, &c.sms);
  } else if (key == "memory") {
    *ok = ParseSize(value, &c.memory) && c.memory >= (1 << 20) && c.memory <= (1ull << 42);
  } else if (key == "compute_capability") {
    const size_t dot = value.find('.');
    *ok = dot != value.npos && ParseInt(value.substr(0, dot), 1, 99, &c.compute_major) &&
          ParseInt(value.substr(dot + 1), 0, 9, &c.compute_minor);
  } else if (key == "max_threads_per_sm") {
    *ok = ParseInt(value, 32, 1 << 20, &c.max_threads_per_sm);
  } else if (key == "shared_per_sm") {
    *ok = ParseSize(value, &c.shared_per_sm) && c.shared_per_sm <= (1ull << 30);
  } else if (key == "overlap") {
    *ok = value == "footprint" || value == "serial";
    c.serial = value == "serial";
  } else if (key == "h2d") {
    *ok = ParseRate(value, &c.h2d);
  } else if (key == "d2h") {
    *ok = ParseRate(value, &c.d2h);
  } else if (key == "d2d") {
    *ok = ParseRate(value, &c.d2d);
  } else if (key == "noise") {
    std::string_view unit;
    *ok = SplitNumber(value, &c.noise, &unit) && unit.empty() && c.noise <= 10;
  } else if (key == "seed") {
    *ok = ParseUnsigned(value, &c.seed);
  } else if (key == "launch_host") {
    *ok = ParseTime(value, &c.launch_host);
  } else if (key == "call_host") {
    *ok = ParseTime(value, &c.call_host);
  } else if (key == "query_host") {
    *ok = ParseTime(value, &c.query_host);
  } else if (key == "record_host") {
    *ok = ParseTime(value, &c.record_host);
  } else if (key == "record_device") {
    *ok = ParseTime(value, &c.record_device);
  } else if (key == "launch_latency") {
    *ok = ParseTime(value, &c.launch_latency);
  } else if (key == "first_launch_host") {
    *ok = ParseTime(value, &c.first_launch_host);
  } else if (key == "first_launch_device") {
    *ok = ParseTime(value, &c.first_launch_device);
  } else if (key == "sync_return") {
    *ok = ParseTime(value, &c.sync_return);
  } else if (key == "wake_spin") {
    *ok = ParseTime(value, &c.wake_spin);
  } else if (key == "wake_sleep") {
    *ok = ParseTime(value, &c.wake_sleep);
  } else if (key == "timer_late") {
    *ok = ParseTime(value, &c.timer_late);
  } else if (key == "queue_depth") {
    *ok = ParseInt(value, 1, 1 << 24, &c.queue_depth);
  } else if (key == "pool_granule") {
    *ok = ParseSize(value, &c.pool_granule) && c.pool_granule >= (64 << 10) &&
          c.pool_granule <= (4ull << 30) && c.pool_granule % 4096 == 0;
  } else if (key == "page") {
    *ok = ParseSize(value, &c.page) &&
          (c.page == 0 ||
           (std::has_single_bit(c.page) && c.page >= (64 << 10) && c.page <= (1 << 30)));
  } else if (key == "context_memory") {
    *ok = ParseSize(value, &c.context_memory) && c.context_memory <= kMostOfOne;
  } else if (key == "module_memory") {
    *ok = ParseSize(value, &c.module_memory) && c.module_memory <= kMostOfOne;
  } else if (key == "watchdog") {
    *ok = ParseTime(value, &c.watchdog);
  } else if (key == "shared") {
    *ok = IsName(value);
    c.shared = std::string(value);
  } else if (key == "place") {
    *ok = ParseInt(value, 0, 63, &c.place);
  } else if (key == "processes") {
    *ok = ParseInt(value, 1, 64, &c.processes);
  } else if (key == "teardown") {
    *ok = ParseTime(value, &c.teardown);
  } else if (key == "slice") {
    *ok = ParseTime(value, &c.slice) && c.slice > 0;
  } else if (key == "slice_switch") {
    *ok = ParseTime(value, &c.slice_switch);
  } else {
    return false;
  }
  return true;
}

// What the value of a known key may be, for messages.
const char* Allowed(std::string_view key) {
  constexpr struct {
    std::string_view key;
    const char* allowed;
  } kAllowed[] = {{"clock", "virtual or wall"},
                  {"pin", "0 or 1"},
                  {"cancellable", "0 or 1"},
                  {"name", "one printable ASCII character or more"},
                  {"devices", "1 to 64"},
                  {"sms", "1 to 4096"},
                  {"memory", "1MiB to 4096GiB, in B, KiB, MiB or GiB"},
                  {"compute_capability", "1.0 to 99.9"},
                  {"max_threads_per_sm", "32 to 1048576"},
                  {"shared_per_sm", "0B to 1GiB, in B, KiB, MiB or GiB"},
                  {"overlap", "footprint or serial"},
                  {"h2d", "0.000001GB/s to 1000000GB/s"},
                  {"d2h", "0.000001GB/s to 1000000GB/s"},
                  {"d2d", "0.000001GB/s to 1000000GB/s"},
                  {"noise", "0 to 10"},
                  {"seed", "0 to 18446744073709551615"},
                  {"queue_depth", "1 to 16777216"},
                  {"shared", "up to 64 letters, digits, '-', '_' and '.', the first no '.'"},
                  {"place", "0 to 63"},
                  {"processes", "1 to 64"},
                  {"slice", "above 0 to 3600s, in ns, us, ms or s"},
                  {"context_memory", "0B to 4GiB, in B, KiB, MiB or GiB"},
                  {"module_memory", "0B to 4GiB, in B, KiB, MiB or GiB"},
                  {"pool_granule", "64KiB to 4GiB in steps of 4KiB, in B, KiB, MiB or GiB"},
                  {"page", "0B or a power of two of 64KiB to 1GiB, in B, KiB, MiB or GiB"}};
  for (const auto& [known, allowed] : kAllowed) {
    if (known == key) return allowed;
  }
  return "0 to 3600s, in ns, us, ms or s";  // the others are durations
}

// Applies the setting to `config`. Empty on success, else what is wrong.
std::string SetOrSay(std::string_view key, std::string_view value, Config& config) {
  bool ok = false;
  if (!Set(key, value, config, &ok)) {
    return "unknown key '" + std::string(key) + "' (the keys are listed in gpushare/testing/sim.h)";
  }
  if (ok) return std::string();
  return "bad value '" + std::string(value) + "' of '" + std::string(key) +
         "'; allowed: " + Allowed(key);
}

// A profile describes a device, not a run on it.
std::string SetFromProfile(std::string_view key, std::string_view value, Config& config) {
  constexpr std::string_view kOfARun[] = {"clock",     "pin",      "cancellable", "devices",
                                          "seed",      "watchdog", "place",       "shared",
                                          "processes", "profile"};
  for (const std::string_view own : kOfARun) {
    if (key != own) continue;
    return "'" + std::string(key) + "' is of a run and not of a device: GPUSHARE_SIM sets it";
  }
  return SetOrSay(key, value, config);
}

}  // namespace

bool ParseUnsigned(std::string_view text, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseDuration(std::string_view text, uint64_t* ns) {
  double value = 0;
  std::string_view unit;
  if (!SplitNumber(text, &value, &unit)) return false;
  if (unit == "us") {
    value *= 1e3;
  } else if (unit == "ms") {
    value *= 1e6;
  } else if (unit == "s") {
    value *= 1e9;
  } else if (unit != "ns" && !(unit.empty() && value == 0)) {
    return false;
  }
  if (value > 1e18) return false;
  *ns = static_cast<uint64_t>(std::llround(value));
  return true;
}

std::string ParseConfig(std::string_view text, Config* config) {
  Config parsed = *config;
  while (!text.empty()) {
    const size_t end = text.find_first_of(",\n");
    const std::string_view item = Trim(text.substr(0, end));
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == item.npos) return "'" + std::string(item) + "' is not of the form key=value";
    const std::string_view key = Trim(item.substr(0, equals));
    const std::string_view value = Trim(item.substr(equals + 1));
    if (key == "profile" && value.empty()) {
      return "bad value '' of 'profile'; allowed: the path of a file";
    }
    std::string why = key == "profile"
                          ? ReadProfile(std::string(value),
                                        [&](std::string_view its_key, std::string_view its_value) {
                                          return SetFromProfile(its_key, its_value, parsed);
                                        })
                          : SetOrSay(key, value, parsed);
    if (!why.empty()) return why;
  }
  if (!parsed.shared.empty() && parsed.devices > static_cast<int>(kGpus)) {
    return "'shared' is of " + std::to_string(kGpus) + " GPUs at most";
  }
  *config = std::move(parsed);
  return std::string();
}

std::string ReadConfig(std::string_view text, Config* config) {
  Config read;
  std::string error;
  if (const char* const environment = std::getenv("GPUSHARE_SIM"); environment != nullptr) {
    error = ParseConfig(environment, &read);
    if (!error.empty()) return "GPUSHARE_SIM: " + error;
  }
  error = ParseConfig(text, &read);
  if (error.empty()) *config = std::move(read);
  return error;
}

}  // namespace gpushare::sim
