// SPDX-License-Identifier: Apache-2.0
// The simulated GPU's configuration, parsed from `key=value` text. The keys and their defaults are documented in
// gpushare/testing/sim.h.
#ifndef GPUSHARE_SIM_CONFIG_CONFIG_H_
#define GPUSHARE_SIM_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace gpushare::sim {

struct Config {
  bool virtual_clock = true;
  bool pin = true;  // registered threads share one processor: a hand-over is then 8 times cheaper
  std::string name = "Simulated H200";
  int devices = 1;
  int sms = 132;
  uint64_t memory = 141ull << 30;
  int compute_major = 9, compute_minor = 0;
  int max_threads_per_sm = 2048;
  uint64_t shared_per_sm = 228 << 10;
  bool serial = false;
  double h2d = 50, d2h = 50, d2d = 2000;  // GB/s, which is bytes per nanosecond
  double noise = 0;
  uint64_t seed = 1;
  // Nanoseconds.
  uint64_t launch_host = 3000, call_host = 300, query_host = 300, record_host = 1000;
  uint64_t record_device = 1000, launch_latency = 2000, sync_return = 3000;
  uint64_t first_launch_host = 0, first_launch_device = 0;
  bool cancellable = false;  // waiting calls are cancellation points
  uint64_t wake_spin = 500, wake_sleep = 20000, timer_late = 0;
  uint32_t queue_depth = 1024;
  uint64_t pool_granule = 32 << 20;
  uint64_t page = 0;
  uint64_t context_memory = 0, module_memory = 0;
  uint64_t watchdog = 20'000'000'000;
  // For several processes on one GPU.
  std::string shared;      // its name; empty: only this process uses it
  int place = -1;          // in the order of processes; -1: the first free one
  uint32_t processes = 1;  // that must have joined before the virtual clock advances
  uint64_t teardown = 100'000'000;
  uint64_t slice = 2'000'000, slice_switch = 100'000;
};

// Applies `text` to `config`. Empty on success, else what is wrong (then `config` is unchanged).
std::string ParseConfig(std::string_view text, Config* config);

// Applies the environment variable GPUSHARE_SIM, then `text`, which takes precedence. Empty on success, else what is wrong
// (then `config` is unchanged).
std::string ReadConfig(std::string_view text, Config* config);

// "14us" -> 14000. False unless the whole of `text` is a number with one of the units ns, us, ms, s.
bool ParseDuration(std::string_view text, uint64_t* ns);
bool ParseUnsigned(std::string_view text, uint64_t* value);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_CONFIG_CONFIG_H_
