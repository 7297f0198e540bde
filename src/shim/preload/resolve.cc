// SPDX-License-Identifier: Apache-2.0
// The first call of the driver: opens the real one, attaches the engine, and fills the slots.
//
// Until all is in place every slot leads here, but for those that tell of the driver itself. The thread that attaches gets the real function meanwhile,
// since what it opens may call the driver; the others wait for it. After that nobody comes here again.
//
// What cannot be limited is not let through: where the engine cannot be had, the entry points that it would
// have hooked answer an error. GPUSHARE_DISABLE=1 is the switch that takes gpushare out of a process.
#include <pthread.h>
#include <string.h>

#include "shim/preload/preload.h"

extern "C" {

// Says that this is not the driver but gpushare in its place.
__attribute__((visibility("default"))) unsigned gpushare_preload_version();
// The real driver's handle and path; null before the first call of it, and where there is none. For a
// libgpushare.so that the program opens: by name it would get us.
__attribute__((visibility("default"))) void* gpushare_preload_driver(const char** path);

}  // extern "C"

namespace gpushare::preload {
namespace {

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

void FindReal() {
  if (looked_for_driver) return;
  driver = OpenRealDriver(driver_path, sizeof(driver_path));
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    void* found = driver == nullptr ? nullptr : dlsym(driver, kEntryPoints[i].name);
    // The driver is older than the name: what it says of names that it does not know.
    if (found == nullptr) {
      found = reinterpret_cast<void*>(driver == nullptr ? &Answer<kNoDevice> : &Answer<kNotFound>);
    }
    real[i] = found;
  }
  looked_for_driver = true;
}

// The CUresult of having tried.
int Attach() {
  auto* attach =
      reinterpret_cast<decltype(&gpushare_shim_attach)>(FindInEngine("gpushare_shim_attach"));
  if (attach == nullptr) return kSystemNotReady;
  const gpushare_shim_driver about = {GPUSHARE_SHIM_ABI_VERSION, 0, driver, driver_path};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  if (const int result = attach(&about, &hooks, &count); result != 0) return result;
  static void* targets[PRELOAD_ENTRY_COUNT];
  memcpy(targets, real, sizeof(targets));
  for (size_t i = 0; i < count; ++i) {
    if (const size_t at = FindEntryPoint(hooks[i].name); at != PRELOAD_ENTRY_COUNT) {
      targets[at] = hooks[i].function;
    }
  }
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) SetSlot(i, targets[i]);
  attached = true;
  return 0;
}

// What a hooked entry point answers that cannot be let through; kept for the functions below.
int refusal = kSystemNotReady;
int Refuse() { return __atomic_load_n(&refusal, __ATOMIC_RELAXED); }

// What a driver answers that was never initialised: a program that asks for its version alone, itself or through NVML,
// may fork afterwards, or be a monitor that is to stay without a context.
bool NeedsNoTenant(const char* name) {
  return strcmp(name, "cuDriverGetVersion") == 0 || strcmp(name, "cuGetErrorName") == 0 ||
         strcmp(name, "cuGetErrorString") == 0;
}

void* Resolve(size_t index) {
  FindReal();
  if (driver == nullptr || IsDisabled()) {
    for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) SetSlot(i, real[i]);
    return real[index];
  }
  if (NeedsNoTenant(kEntryPoints[index].name)) {
    SetSlot(index, real[index]);
    return real[index];
  }
  const int result = Attach();
  if (result == 0) return gpushare_preload_slots[index];
  // The next call tries again: what was in the way (a driver not ready) may be gone by then.
  __atomic_store_n(&refusal, result, __ATOMIC_RELAXED);
  const bool passes =
      kEntryPoints[index].hooked == 0 && strcmp(kEntryPoints[index].name, "cuInit") != 0;
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
