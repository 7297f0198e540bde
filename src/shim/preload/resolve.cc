// SPDX-License-Identifier: Apache-2.0
// The first call of the driver: opens the real one, attaches the engine, and fills the slots.
//
// Until all is in place every slot leads here. The thread that attaches gets the real function meanwhile,
// since what it opens may call the driver; the others wait for it. After that nobody comes here again.
//
// What cannot be limited is not let through: where the engine cannot be had, the entry points that it would
// have hooked answer an error. GPUSHARE_DISABLE=1 is the switch that takes gpushare out of a process.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/attach_abi.h"
#include "shim/preload/preload.h"

extern "C" {

__attribute__((visibility("hidden"))) void* gpushare_preload_resolve(size_t index);

// Says that this is not the driver but gpushare in its place.
__attribute__((visibility("default"))) unsigned gpushare_preload_version();
// The real driver's handle and path; null before the first call of it, and where there is none. For a
// libgpushare.so that the program opens: by name it would get us.
__attribute__((visibility("default"))) void* gpushare_preload_driver(const char** path);

}  // extern "C"

namespace gpushare::preload {
namespace {

struct Entry {
  const char* name;
  unsigned char hooked;
};
constexpr Entry kEntries[PRELOAD_ENTRY_COUNT] = {
#define PRELOAD_ENTRY_NAME(name, hooked) {#name, hooked},
#include "shim/preload/preload_names.inc"
#undef PRELOAD_ENTRY_NAME
};

// CUresults, which need no header.
constexpr int kNoDevice = 100;
constexpr int kNotFound = 500;
constexpr int kSystemNotReady = 802;

template <int kResult>
int Answer() {
  return kResult;
}

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t once = PTHREAD_ONCE_INIT;
int attaching = 0;   // by `attacher`
pthread_t attacher;  // valid while `attaching`
void* real[PRELOAD_ENTRY_COUNT];
void* driver = nullptr;
char driver_path[4096];
bool looked_for_driver = false;
bool attached = false;

void AfterForkInChild() {
  // The thread that held it is not here; what it had begun is begun anew.
  mutex = PTHREAD_MUTEX_INITIALIZER;
  __atomic_store_n(&attaching, 0, __ATOMIC_RELAXED);
}
void WatchForks() { pthread_atfork(nullptr, nullptr, &AfterForkInChild); }

bool IsSet(const char* variable) {
  const char* value = getenv(variable);
  return value != nullptr && *value != '\0' && strcmp(value, "0") != 0;
}

void FindReal() {
  if (looked_for_driver) return;
  driver = OpenRealDriver(driver_path, sizeof(driver_path));
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    void* found = driver == nullptr ? nullptr : dlsym(driver, kEntries[i].name);
    // The driver is older than the name: what it says of names that it does not know.
    if (found == nullptr) {
      found = reinterpret_cast<void*>(driver == nullptr ? &Answer<kNoDevice> : &Answer<kNotFound>);
    }
    real[i] = found;
  }
  looked_for_driver = true;
}

// libgpushare.so: the program's own when it has one, else that beside us.
void* OpenEngine() {
  if (void* handle = gpushare_preload_next_dlopen(PRELOAD_ENGINE, RTLD_NOW | RTLD_NOLOAD)) {
    return handle;
  }
  char path[4096];
  const char* own = OwnPath();
  const char* slash = own == nullptr ? nullptr : strrchr(own, '/');
  if (slash == nullptr) return nullptr;
  const int written = snprintf(path, sizeof(path), "%.*s/../../" PRELOAD_ENGINE,
                               static_cast<int>(slash - own), own);
  if (written < 0 || static_cast<size_t>(written) >= sizeof(path)) return nullptr;
  if (void* handle = gpushare_preload_next_dlopen(path, RTLD_NOW | RTLD_LOCAL)) return handle;
  // In place of the driver, in a folder of the system's: where the loader finds it.
  return gpushare_preload_next_dlopen(PRELOAD_ENGINE, RTLD_NOW | RTLD_LOCAL);
}

void SetSlot(size_t index, void* function) {
  __atomic_store_n(&gpushare_preload_slots[index], function, __ATOMIC_RELEASE);
}

void SetHook(const gpushare_shim_hook& hook, void** target) {
  size_t low = 0, high = PRELOAD_ENTRY_COUNT;  // the names are sorted
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const int order = strcmp(kEntries[middle].name, hook.name);
    if (order == 0) {
      target[middle] = hook.function;
      return;
    }
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
}

// The CUresult of having tried.
int Attach() {
  void* engine = OpenEngine();
  auto* attach = engine == nullptr ? nullptr
                                   : reinterpret_cast<decltype(&gpushare_shim_attach)>(
                                         dlsym(engine, "gpushare_shim_attach"));
  if (attach == nullptr) return kSystemNotReady;
  const gpushare_shim_driver about = {GPUSHARE_SHIM_ABI_VERSION, 0, driver, driver_path};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  if (const int result = attach(&about, &hooks, &count); result != 0) return result;
  static void* targets[PRELOAD_ENTRY_COUNT];
  memcpy(targets, real, sizeof(targets));
  for (size_t i = 0; i < count; ++i) SetHook(hooks[i], targets);
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) SetSlot(i, targets[i]);
  attached = true;
  return 0;
}

// What a hooked entry point answers that cannot be let through; kept for the functions below.
int refusal = kSystemNotReady;
int Refuse() { return __atomic_load_n(&refusal, __ATOMIC_RELAXED); }

void* Resolve(size_t index) {
  FindReal();
  if (driver == nullptr || IsSet("GPUSHARE_DISABLE")) {
    for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) SetSlot(i, real[i]);
    return real[index];
  }
  const int result = Attach();
  if (result == 0) return gpushare_preload_slots[index];
  // The next call tries again: what was in the way (a driver not ready) may be gone by then.
  __atomic_store_n(&refusal, result, __ATOMIC_RELAXED);
  const bool passes = kEntries[index].hooked == 0 && strcmp(kEntries[index].name, "cuInit") != 0;
  return passes ? real[index] : reinterpret_cast<void*>(&Refuse);
}

}  // namespace
}  // namespace gpushare::preload

void* gpushare_preload_resolve(size_t index) {
  using namespace gpushare::preload;
  pthread_once(&once, &WatchForks);
  if (__atomic_load_n(&attaching, __ATOMIC_ACQUIRE) != 0 &&
      pthread_equal(attacher, pthread_self()) != 0) {
    return real[index];
  }
  pthread_mutex_lock(&mutex);
  void* target = gpushare_preload_slots[index];
  if (!attached) {
    attacher = pthread_self();
    __atomic_store_n(&attaching, 1, __ATOMIC_RELEASE);
    target = Resolve(index);
    __atomic_store_n(&attaching, 0, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return target;
}

unsigned gpushare_preload_version() { return GPUSHARE_SHIM_ABI_VERSION; }

void* gpushare_preload_driver(const char** path) {
  using namespace gpushare::preload;
  if (path != nullptr) *path = driver_path;
  return __atomic_load_n(&driver, __ATOMIC_ACQUIRE);
}
