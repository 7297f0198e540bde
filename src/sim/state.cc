// SPDX-License-Identifier: Apache-2.0
#include "sim/state.h"

#include <pthread.h>
#include <unistd.h>

#include <cstring>

#include "sim/clock/thread.h"
#include "sim/processes/device.h"

namespace gpushare::sim {
namespace {

constexpr const char* kApiNames[] = {
#define X(symbol, ...) #symbol,
#include "../driver/symbols.def"
#undef X
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

namespace {

// For a forked child: the other processes keep the device, and the child's state becomes its own.
void ForgetShared() {
  State& s = state();
  if (s.shared != nullptr) s.shared->Forget();
  s.virtual_memory.KeepToItself();
  s.shared = nullptr;
  s.clock.Unshare();
  for (const auto& device : s.devices) device->Share(nullptr);
}

[[gnu::destructor]] void LeaveShared() {
  State& s = state();
  if (s.shared == nullptr) return;
  s.shared->Leave();
  // Objects destroyed later may still call the driver. If another thread has the turn, it keeps it.
  const Thread* const running = s.clock.running();
  if (running == nullptr || (t_thread != nullptr && running == t_thread->clock)) s.clock.Unshare();
}

// Joins or leaves the processes that share a device, as the configuration says.
std::string ShareDevice() {
  State& s = state();
  if (s.shared != nullptr) s.shared->Leave();  // never deleted: its threads may still look at it
  s.shared = nullptr;
  s.clock.Unshare();
  if (s.config.shared.empty()) return std::string();
  std::string error;
  s.shared = SharedDevice::Join(s.config, s.clock, &error).release();
  static const int at_fork = pthread_atfork(nullptr, nullptr, &ForgetShared);
  (void)at_fork;
  if (s.shared != nullptr && s.config.virtual_clock) s.clock.Share(&s.shared->turn());
  return error;
}

}  // namespace

std::string EnsureConfigured() {
  State& s = state();
  if (s.configured) return std::string();
  Config config;
  std::string error = ReadConfig(s.config_text, &config);
  s.config = config;
  s.process = getpid();
  s.clock.SetCancellable(config.cancellable);
  s.clock.Configure(config.virtual_clock, config.pin,
                    {config.wake_spin, config.wake_sleep, config.timer_late}, config.watchdog);
  if (error.empty()) error = ShareDevice();
  s.configured = error.empty();
  return error;
}

}  // namespace gpushare::sim
