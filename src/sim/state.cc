// SPDX-License-Identifier: Apache-2.0
#include "sim/state.h"

#include <cstring>

namespace gpushare::sim {
namespace {

constexpr const char* kApiNames[] = {
#define GPUSHARE_SIM_ENTRY(symbol, name, since, per_thread) #symbol,
#include "entry_points.inc"
#undef GPUSHARE_SIM_ENTRY
};

}  // namespace

State::State() : clock(&RunDueEvents) {}

alignas(State) unsigned char g_state[sizeof(State)];
namespace {
[[maybe_unused]] const State* const created = new (g_state) State;
}  // namespace

const char* ApiName(size_t api) { return kApiNames[api]; }

size_t FindApi(const char* name) {
  for (size_t i = 0; i < kApiCount; ++i) {
    if (std::strcmp(kApiNames[i], name) == 0) return i;
  }
  return kApiCount;
}

std::string EnsureConfigured() {
  State& s = state();
  if (s.configured) return std::string();
  Config config;
  const std::string error = ReadConfig(s.config_text, &config);
  s.config = config;
  s.configured = error.empty();
  s.clock.Configure(config.virtual_clock, config.pin, config.wake_spin, config.wake_sleep,
                    config.watchdog);
  return error;
}

}  // namespace gpushare::sim
