// SPDX-License-Identifier: Apache-2.0
#include "sim/device/fault.h"

#include <algorithm>

#include "sim/config/config.h"
#include "sim/state.h"

namespace gpushare::sim {
namespace {

struct Options {
  std::string call, kernel;
  uint64_t after = 0, code = 0, nth = 0, host_ns = 0;
  bool has_host = false;
};

// Parses "key=value key=value".
std::string ParseOptions(std::string_view text, Options* options) {
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view item = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == item.npos) return "'" + std::string(item) + "' is not of the form key=value";
    const std::string_view key = item.substr(0, equals), value = item.substr(equals + 1);
    bool ok = !value.empty();
    if (key == "call") {
      options->call = std::string(value);
    } else if (key == "kernel") {
      options->kernel = std::string(value);
    } else if (key == "after") {
      ok = ParseUnsigned(value, &options->after);
    } else if (key == "code") {
      ok = ParseUnsigned(value, &options->code) && options->code <= 999;
    } else if (key == "nth") {
      ok = ParseUnsigned(value, &options->nth);
    } else if (key == "host") {
      ok = options->has_host = ParseDuration(value, &options->host_ns);
    } else {
      return "unknown key '" + std::string(key) + "'";
    }
    if (!ok) return "bad value '" + std::string(value) + "' of '" + std::string(key) + "'";
  }
  return std::string();
}

}  // namespace

bool Faults::Names(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string Faults::Inject(std::string_view text) {
  const size_t space = text.find(' ');
  const std::string kind(text.substr(0, space));
  Options options;
  if (space != text.npos) {
    const std::string error = ParseOptions(text.substr(space + 1), &options);
    if (!error.empty()) return error;
  }
  const uint64_t version = version_ + 1;
  if (kind == "clear") {
    Clear();
  } else if (kind == "oom") {
    oom_ = true;
    oom_after_ = options.after;
  } else if (kind == "error" || kind == "slow") {
    const size_t api = FindApi(options.call.c_str());
    if (api == kApiCount) return "'" + options.call + "' is no entry point (call=NAME as exported)";
    if (kind == "error" && options.code == 0) return "error needs code=NUMBER";
    if (kind == "slow" && !options.has_host) return "slow needs host=DURATION";
    calls_.push_back({api, static_cast<int>(kind == "error" ? options.code : 0), options.nth, 0,
                      options.host_ns});
  } else if (kind == "illegal_address" || kind == "hang") {
    if (options.kernel.empty()) return kind + " needs kernel=NAME";
    (kind == "hang" ? hang_ : illegal_address_).push_back(options.kernel);
  } else {
    return "unknown fault '" + kind +
           "' (oom, error, illegal_address, hang, slow or clear; see gpushare/testing/sim.h)";
  }
  version_ = version;
  return std::string();
}

int Faults::OnCall(size_t api, uint64_t* host_ns) {
  int code = 0;
  *host_ns = 0;
  for (Call& call : calls_) {
    if (call.api != api) continue;
    ++call.seen;
    if (call.nth != 0 && call.seen != call.nth) continue;
    *host_ns += call.host_ns;
    if (call.code != 0) code = call.code;
  }
  return code;
}

bool Faults::FailAllocation() {
  if (!oom_) return false;
  if (oom_after_ == 0) return true;
  --oom_after_;
  return false;
}

}  // namespace gpushare::sim
