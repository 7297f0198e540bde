// SPDX-License-Identifier: Apache-2.0
// gpushare_sim_*: configuration, clock, ground truth and faults. See gpushare/testing/sim.h.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "gpushare/testing/sim.h"
#include "sim/api/api.h"
#include "sim/module/library.h"
#include "sim/processes/device.h"
#include "sim/processes/file.h"

using namespace gpushare::sim;  // NOLINT: the entry points are global names

namespace {

int Answer(const std::string& message, char* error, size_t size) {
  if (message.empty()) return 0;
  if (error != nullptr && size > 0) std::snprintf(error, size, "%s", message.c_str());
  return -1;
}

timespec ToTimespec(uint64_t ns) {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

// Configures once, before the first use of the clock.
Clock& ReadyClock() {
  State& s = state();
  if (!s.configured && s.clock.registered() == 0) {
    const ControlScope scope;
    const std::string error = EnsureConfigured();
    if (!error.empty()) s.clock.Report(error);
  }
  return s.clock;
}

int WaitWordWall(const uint32_t* word, uint32_t expected, uint64_t deadline, uint64_t spin) {
  const Clock& clock = state().clock;
  const uint64_t spin_end = clock.Read() + spin;
  while (spin > 0 && clock.Read() < spin_end) {
    for (int i = 0; i < 64; ++i) {
      if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != expected) return 0;
    }
  }
  const timespec until = ToTimespec(deadline);
  for (;;) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != expected) return 0;
    if (deadline <= clock.Read()) return 1;
    if (syscall(SYS_futex, word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, expected,
                deadline == kForever ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY) == 0) {
      return 0;
    }
  }
}

}  // namespace

GPUSHARE_SIM_CONTROL uint32_t gpushare_sim_abi_version(void) { return GPUSHARE_SIM_ABI_VERSION; }

GPUSHARE_SIM_CONTROL int gpushare_sim_configure(const char* text, char* error, size_t error_size) {
  const ControlScope scope;
  State& s = state();
  if (text == nullptr) return Answer("no text", error, error_size);
  if (s.initialized) {
    return Answer("configured after cuInit(): call gpushare_sim_reset() first", error, error_size);
  }
  Config parsed;
  std::string message = ParseConfig(text, &parsed);
  if (!message.empty()) return Answer(message, error, error_size);
  if (s.configured && s.clock.registered() > 0 && parsed.virtual_clock != s.clock.is_virtual()) {
    return Answer("the clock cannot change while threads are registered", error, error_size);
  }
  s.config_text = text;
  s.configured = false;
  message = EnsureConfigured();
  return Answer(message, error, error_size);
}

GPUSHARE_SIM_CONTROL int gpushare_sim_check(const char* text, char* error, size_t error_size) {
  Config parsed;
  return Answer(text == nullptr ? "no text" : ParseConfig(text, &parsed), error, error_size);
}

GPUSHARE_SIM_CONTROL int gpushare_sim_forget_shared(const char* name) {
  Config named;
  if (name == nullptr || !ParseConfig(std::string("shared=") + name, &named).empty()) return -1;
  // It must be just a name, not text that is parsed as a configuration.
  if (named.shared.empty() || named.shared != name) return -1;
  return SharedFile::RemoveUnused(named.shared) ? 0 : -1;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_reset(void) {
  // The threads of the parent do not exist here, but may hold the turn.
  if (state().configured && state().process != getpid()) return -1;
  ReadyClock();
  const ControlScope scope;
  State& s = state();
  const int own = CurrentThread()->clock->registered ? 1 : 0;
  if (s.clock.registered() > own) return -1;
  for (const auto& device : s.devices) device->memory.ForgetPark();
  for (Context* context : s.contexts.All()) DestroyContext(context);
  for (Library* library : s.libraries.All()) DestroyLibrary(library);
  for (ResourceDescriptor* descriptor : s.resource_descriptors.All()) delete descriptor;
  s.resource_descriptors = {};
  s.orphans.clear();
  s.sm_splits.clear();
  s.partitions.clear();
  s.value_waits.clear();
  s.clock.SetBlocked(0);
  s.managed.Clear();
  s.virtual_memory.Clear();
  s.host_functions.Stop();
  s.timeline.Clear();
  s.clock.SetNextEvent(kForever);
  for (MemoryPool* pool : s.memory_pools.All()) s.memory_pools.Remove(pool->handle);
  s.devices.clear();
  s.faults.Clear();
  s.checkpoint.state = Checkpoint::State::kRunning;
  s.checkpoint.held = false;
  for (uint64_t& calls : s.calls) calls = 0;
  CurrentThread()->contexts.clear();
  CurrentThread()->per_thread_streams.clear();
  CurrentThread()->capture_mode = CaptureMode::kGlobal;
  s.initialized = false;
  s.config_text.clear();
  s.configured = own == 1;  // the caller uses the clock, which stays as it is
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_clock_is_virtual(void) {
  return ReadyClock().is_virtual() ? 1 : 0;
}

GPUSHARE_SIM_CONTROL uint64_t gpushare_sim_now(void) { return ReadyClock().Read(); }

GPUSHARE_SIM_CONTROL int gpushare_sim_thread_enter(const char* name) {
  ThreadContext* const self = CurrentThread();
  if (self->clock->registered) return -1;
  Clock& clock = state().clock;
  // A clock that processes share goes on as soon as it need not wait for this process, so the turn is kept.
  const bool first = !state().configured && clock.registered() == 0;
  if (first) {
    clock.Enter(self->clock);
    if (const std::string error = EnsureConfigured(); !error.empty()) clock.Report(error);
    if (!clock.is_virtual()) clock.Leave(self->clock);
  }
  clock.Register(self->clock, name == nullptr ? "" : name, first && clock.is_virtual());
  self->has_turn = clock.is_virtual();
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_thread_leave(void) {
  ThreadContext* const self = CurrentThread();
  if (!self->clock->registered || self->clock->external) return -1;
  self->has_turn = false;
  state().clock.Unregister(self->clock);
  return 0;
}

GPUSHARE_SIM_CONTROL uint64_t gpushare_sim_thread_announce(const char* name) {
  Clock& clock = ReadyClock();
  const ControlScope scope;
  return clock.Announce(name == nullptr ? "" : name)->announced;
}

GPUSHARE_SIM_CONTROL uint64_t gpushare_sim_thread_announce_service(const char* name) {
  Clock& clock = ReadyClock();
  const ControlScope scope;
  return clock.Announce(name == nullptr ? "" : name, Clock::Kind::kService)->announced;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_thread_enter_announced(uint64_t announced) {
  Clock& clock = ReadyClock();
  ThreadContext* const self = CurrentThread();
  if (self->clock->registered) return -1;
  Thread* const thread = clock.EnterAnnounced(announced);
  if (thread == nullptr) return -1;
  clock.DeleteThread(self->clock);
  self->clock = thread;
  self->has_turn = clock.is_virtual();
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_thread_withdraw(uint64_t announced) {
  Clock& clock = ReadyClock();
  if (clock.is_virtual() && !CurrentThread()->clock->registered) {
    // The turn may be given to the thread that does not come, and nobody else would get it. So this thread enters in its place
    // and hands the turn on.
    if (gpushare_sim_thread_enter_announced(announced) != 0) return -1;
    return gpushare_sim_thread_leave();
  }
  const ControlScope scope;
  Thread* const thread = clock.FindAnnounced(announced);
  if (thread == nullptr) return -1;
  clock.Withdraw(thread);
  return 0;
}

GPUSHARE_SIM_CONTROL void gpushare_sim_spend(uint64_t ns) {
  Clock& clock = ReadyClock();
  if (clock.is_virtual()) {
    const ControlScope scope;
    clock.Spend(ns);
    return;
  }
  const timespec until = ToTimespec(clock.Read() + ns);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

GPUSHARE_SIM_CONTROL int gpushare_sim_wait_word(const uint32_t* word, uint32_t expected,
                                                uint64_t deadline_ns, uint64_t spin_ns) {
  Clock& clock = ReadyClock();
  if (!clock.is_virtual()) return WaitWordWall(word, expected, deadline_ns, spin_ns);
  const ControlScope scope;
  return clock.WaitWord(word, expected, deadline_ns, spin_ns);
}

GPUSHARE_SIM_CONTROL void gpushare_sim_wake_word(const uint32_t* word, int count) {
  Clock& clock = ReadyClock();
  if (!clock.is_virtual()) {
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, nullptr, nullptr, 0);
    return;
  }
  const ControlScope scope;
  clock.WakeWord(word, count);
}

GPUSHARE_SIM_CONTROL void gpushare_sim_external_begin(void) {
  ThreadContext* const self = CurrentThread();
  if (!self->clock->registered || self->clock->external) return;
  self->has_turn = false;
  state().clock.BeginExternal(self->clock);
}

GPUSHARE_SIM_CONTROL void gpushare_sim_external_end(void) {
  ThreadContext* const self = CurrentThread();
  if (!self->clock->registered || !self->clock->external) return;
  state().clock.EndExternal(self->clock);
  self->has_turn = state().clock.is_virtual();
}

GPUSHARE_SIM_CONTROL void gpushare_sim_set_log(void (*log)(const char* line, void* context),
                                               void* context) {
  state().clock.SetLog(log, context);
}

GPUSHARE_SIM_CONTROL int gpushare_sim_set_account(CUstream_st* handle, uint32_t account) {
  const ControlScope scope;
  if (!state().initialized) return -1;
  Stream* stream;
  if (FindStream(handle, NullStream::kLegacy, &stream) != CUDA_SUCCESS) return -1;
  stream->account = stream->device->FindAccount(account);
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_account_truth(int ordinal, uint32_t account,
                                                    gpushare_sim_truth* truth) {
  const ControlScope scope;
  Device* const device = FindDevice(ordinal);
  if (device == nullptr || truth == nullptr) return -1;
  device->Integrate(state().clock.now());
  const Account& of = *device->FindAccount(account);
  *truth = {of.used_ns,   of.work_ns,   of.kernels,  of.queued,
            of.h2d_bytes, of.d2h_bytes, of.d2d_bytes};
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_account_sm_time(int ordinal, uint32_t account,
                                                      double* sm_ns) {
  const ControlScope scope;
  Device* const device = FindDevice(ordinal);
  if (device == nullptr || sm_ns == nullptr) return -1;
  device->Integrate(state().clock.now());
  *sm_ns = device->FindAccount(account)->sm_ns;
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_device_busy(int ordinal, double* busy_ns, double* sm_ns) {
  const ControlScope scope;
  Device* const device = FindDevice(ordinal);
  if (device == nullptr) return -1;
  device->Integrate(state().clock.now());
  if (busy_ns != nullptr) *busy_ns = device->busy_ns();
  if (sm_ns != nullptr) *sm_ns = device->sm_ns();
  return 0;
}

GPUSHARE_SIM_CONTROL uint64_t gpushare_sim_calls(const char* name) {
  const ControlScope scope;
  const size_t api = name == nullptr ? kApiCount : FindApi(name);
  return api == kApiCount ? UINT64_MAX : state().calls[api];
}

GPUSHARE_SIM_CONTROL uint64_t gpushare_sim_memory_used(int ordinal) {
  const ControlScope scope;
  state().virtual_memory.Collect();
  const Device* const device = FindDevice(ordinal);
  return device == nullptr ? 0 : device->memory.used();
}

GPUSHARE_SIM_CONTROL int gpushare_sim_pages(int ordinal, uint64_t* page, uint64_t* unused) {
  const ControlScope scope;
  const Device* const device = FindDevice(ordinal);
  if (device == nullptr) return -1;
  if (page != nullptr) *page = device->memory.page();
  if (unused != nullptr) *unused = device->memory.unused_of_pages();
  return 0;
}

GPUSHARE_SIM_CONTROL int gpushare_sim_holdings(int ordinal, gpushare_sim_holding* list, int size) {
  const ControlScope scope;
  const State& s = state();
  const Device* const device = FindDevice(ordinal);
  if (device == nullptr || size < 0 || (size > 0 && list == nullptr)) return -1;
  std::vector<Holding> holdings;
  if (s.shared != nullptr) {
    holdings = s.shared->Holdings(static_cast<uint32_t>(device->which));
  } else {
    holdings.push_back({.bytes = device->memory.used(), .pid = getpid(), .place = 0});
  }
  for (size_t i = 0; i < holdings.size() && i < static_cast<size_t>(size); ++i) {
    const Holding& from = holdings[i];
    list[i] = {.memory_bytes = from.bytes,
               .freed_at_ns = from.freed_at,
               .pid = from.pid,
               .place = from.place == kNobody ? -1 : static_cast<int32_t>(from.place)};
  }
  return static_cast<int>(holdings.size());
}

GPUSHARE_SIM_CONTROL int gpushare_sim_check_shared(char* error, size_t error_size) {
  const ControlScope scope;
  const State& s = state();
  return s.shared == nullptr ? 0 : Answer(s.shared->Check(), error, error_size);
}

GPUSHARE_SIM_CONTROL int gpushare_sim_inject(const char* text, char* error, size_t error_size) {
  const ControlScope scope;
  if (text == nullptr) return Answer("no text", error, error_size);
  State& s = state();
  const std::string wrong = s.faults.Inject(text);
  if (wrong.empty() && s.faults.none()) {
    for (const auto& device : s.devices) device->LetHungGo(s.timeline, s.clock.now());
    Settle();
  }
  return Answer(wrong, error, error_size);
}
