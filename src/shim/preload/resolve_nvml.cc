// SPDX-License-Identifier: Apache-2.0
// The first calls of NVML: the first of all opens the real one, and the first of what has to be answered for the share
// brings libgpushare.so in. Nothing here calls the driver: a monitor stays without a context.
//
// What gpushare has no answer for is not let through, as with the driver: it would be another's. GPUSHARE_DISABLE=1 is
// the switch that takes gpushare out of a process.
#include <pthread.h>

#include "shim/preload/preload.h"

extern "C" {

// Says that this is not NVML but gpushare in its place.
__attribute__((visibility("default"))) unsigned gpushare_preload_nvml_version();
// What the real one was opened by; "" before its first call, and where there is none.
__attribute__((visibility("default"))) const char* gpushare_preload_nvml_path();

}  // extern "C"

namespace gpushare::preload {
namespace {

// nvmlReturn_t's, which need no header.
constexpr int kLibraryNotFound = 12;
constexpr int kFunctionNotFound = 13;
constexpr int kUnknown = 999;

template <int kResult>
int Answer() {
  return kResult;
}

// The one that answers no code.
const char* ErrorString(int) { return "NVML is not here"; }

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t once = PTHREAD_ONCE_INIT;
int attaching = 0;   // by `attacher`
pthread_t attacher;  // valid while `attaching`
void* real[PRELOAD_ENTRY_COUNT];
void* nvml = nullptr;
char nvml_path[4096];
bool looked_for_nvml = false;
bool resolved[PRELOAD_ENTRY_COUNT];  // the slot does not lead here any more

void AfterForkInChild() {
  // The thread that held it is not here; what it had begun is begun anew.
  mutex = PTHREAD_MUTEX_INITIALIZER;
  __atomic_store_n(&attaching, 0, __ATOMIC_RELAXED);
}
void WatchForks() { pthread_atfork(nullptr, nullptr, &AfterForkInChild); }

void Resolved(size_t index, void* function) {
  SetSlot(index, function);
  resolved[index] = true;
}

void* Missing(size_t index) {
  static const size_t error_string = FindEntryPoint("nvmlErrorString");
  if (index == error_string) return reinterpret_cast<void*>(&ErrorString);
  return reinterpret_cast<void*>(nvml == nullptr ? &Answer<kLibraryNotFound>
                                                 : &Answer<kFunctionNotFound>);
}

void FindReal() {
  if (looked_for_nvml) return;
  nvml = OpenRealNvml(nvml_path, sizeof(nvml_path));
  const bool disabled = IsDisabled();
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    void* const found = nvml == nullptr ? nullptr : dlsym(nvml, kEntryPoints[i].name);
    real[i] = found != nullptr ? found : Missing(i);
  }
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    const bool ours = kEntryPoints[i].hooked != 0 && !disabled && nvml != nullptr &&
                      dlsym(nvml, kEntryPoints[i].name) != nullptr;
    if (!ours) Resolved(i, real[i]);
  }
  looked_for_nvml = true;
}

// Sets the slots of what is hooked. False: the engine is not to be had, and the next call tries again.
bool Attach() {
  auto* attach = reinterpret_cast<decltype(&gpushare_shim_attach_nvml)>(
      FindInEngine("gpushare_shim_attach_nvml"));
  if (attach == nullptr) return false;
  const gpushare_shim_driver about = {GPUSHARE_SHIM_ABI_VERSION, 0, nvml, nvml_path};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  if (attach(&about, &hooks, &count) != 0) return false;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = FindEntryPoint(hooks[i].name);
    if (at != PRELOAD_ENTRY_COUNT && !resolved[at]) Resolved(at, hooks[i].function);
  }
  return true;
}

void* Resolve(size_t index) {
  FindReal();
  if (!resolved[index] && (!Attach() || !resolved[index])) {
    return reinterpret_cast<void*>(&Answer<kUnknown>);
  }
  return gpushare_preload_slots[index];
}

}  // namespace
}  // namespace gpushare::preload

void* gpushare_preload_resolve(size_t index) {
  using namespace gpushare::preload;
  pthread_once(&once, &WatchForks);
  if (__atomic_load_n(&attaching, __ATOMIC_ACQUIRE) != 0 &&
      pthread_equal(attacher, pthread_self()) != 0) {
    return real[index] != nullptr ? real[index] : Missing(index);
  }
  pthread_mutex_lock(&mutex);
  void* target = gpushare_preload_slots[index];
  if (!resolved[index]) {
    attacher = pthread_self();
    __atomic_store_n(&attaching, 1, __ATOMIC_RELEASE);
    target = Resolve(index);
    __atomic_store_n(&attaching, 0, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return target;
}

unsigned gpushare_preload_nvml_version() { return GPUSHARE_SHIM_ABI_VERSION; }

const char* gpushare_preload_nvml_path() {
  using namespace gpushare::preload;
  pthread_mutex_lock(&mutex);
  const char* const path = nvml == nullptr ? "" : nvml_path;
  pthread_mutex_unlock(&mutex);
  return path;
}
