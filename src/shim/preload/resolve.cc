// SPDX-License-Identifier: Apache-2.0
// The first call of the driver: opens the real driver, attaches the engine, and fills the slots.
//
// Until that is done every slot leads here, except those of calls that only ask about the driver itself (NeedsNoTenant()). The
// attaching thread gets the real functions meanwhile, since the libraries that it opens may call the driver (unseen.h). The
// other threads wait for it (first_call.h). Afterwards no slot leads here.
//
// Calls that cannot be limited are not let through: without the engine, the entry points that it would have hooked return an
// error. GPUSHARE_DISABLE=1 takes gpushare out of a process.
#include <stdint.h>
#include <string.h>

#include "shim/preload/first_call.h"
#include "shim/preload/main_thread.h"
#include "shim/preload/preload.h"
#include "shim/preload/refused.h"
#include "shim/preload/unseen.h"

extern "C" {

// Shows that this object is gpushare's and not the driver.
__attribute__((visibility("default"))) unsigned gpushare_preload_version();
// The real driver's handle and path; null before its first call, and if there is no driver. For a libgpushare.so that the
// program opens, which would get this object by name.
__attribute__((visibility("default"))) void* gpushare_preload_driver(const char** path);

}  // extern "C"

namespace gpushare::preload {
namespace {

// Values of CUresult, defined here so that no CUDA header is needed.
constexpr int kNoDevice = 100;
constexpr int kNotFound = 500;
constexpr int kSystemNotReady = 802;

template <int kResult>
int Answer() {
  return kResult;
}

void* real[PRELOAD_ENTRY_COUNT];
void* driver = nullptr;
char driver_path[4096];
bool looked_for_driver = false;
int in_place = 0;      // no slot leads here any more
int wants_engine = 0;  // a function was called that needs a tenant

void FindReal() {
  if (looked_for_driver) return;
  __atomic_store_n(&driver, OpenRealDriver(driver_path, sizeof(driver_path)), __ATOMIC_RELEASE);
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    void* found = driver == nullptr ? nullptr : dlsym(driver, kEntryPoints[i].name);
    // If the driver is older than the name, answer as it does for an unknown name.
    if (found == nullptr) {
      found = reinterpret_cast<void*>(driver == nullptr ? &Answer<kNoDevice> : &Answer<kNotFound>);
    }
    real[i] = found;
  }
  looked_for_driver = true;
}

// Attaches the engine and returns its CUresult.
int Attach() {
  auto* attach =
      reinterpret_cast<decltype(&gpushare_shim_attach)>(FindInEngine("gpushare_shim_attach"));
  if (attach == nullptr) return kSystemNotReady;
  const gpushare_shim_driver about = {GPUSHARE_SHIM_ABI_VERSION, 0, driver, driver_path, real,
                                      &contexts_unseen};
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
  __atomic_store_n(&in_place, 1, __ATOMIC_RELEASE);
  if (auto* left = reinterpret_cast<decltype(&gpushare_shim_main_thread_left)>(
          FindInEngine("gpushare_shim_main_thread_left"))) {
    TellOfMainThread(left);
  }
  return 0;
}

int refusal = kSystemNotReady;

// Functions that the driver answers without being initialised. A program that only asks for the version, itself or through
// NVML, may fork afterwards, or be a monitoring program that has to stay without a context.
bool NeedsNoTenant(const char* name) {
  return strcmp(name, "cuDriverGetVersion") == 0 || strcmp(name, "cuGetErrorName") == 0 ||
         strcmp(name, "cuGetErrorString") == 0;
}

}  // namespace

void* Driver() { return __atomic_load_n(&driver, __ATOMIC_ACQUIRE); }
void* RealEntryPoint(size_t index) { return real[index]; }

int Refuse() { return __atomic_load_n(&refusal, __ATOMIC_RELAXED); }

void SetUp() {
  FindReal();
  if (__atomic_load_n(&in_place, __ATOMIC_RELAXED) != 0) return;
  if (driver == nullptr || IsDisabled()) {
    for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
      void* const tells = driver == nullptr ? TellerOfRefused(kEntryPoints[i].name) : nullptr;
      SetSlot(i, tells != nullptr ? tells : real[i]);
    }
    __atomic_store_n(&in_place, 1, __ATOMIC_RELEASE);
  } else if (__atomic_load_n(&wants_engine, __ATOMIC_RELAXED) != 0) {
    // On failure the next call tries again: the cause, such as a driver that is not ready, may be gone by then.
    const int result = Attach();
    if (result != 0) __atomic_store_n(&refusal, result, __ATOMIC_RELAXED);
  }
}

}  // namespace gpushare::preload

void* gpushare_preload_resolve(size_t index) {
  using namespace gpushare::preload;
  if (IsSettingUp()) return Watched(index);
  const EntryPoint& entry = kEntryPoints[index];
  const bool needs_tenant = !NeedsNoTenant(entry.name);
  if (needs_tenant) __atomic_store_n(&wants_engine, 1, __ATOMIC_RELAXED);
  DoSetUp();
  if (__atomic_load_n(&in_place, __ATOMIC_ACQUIRE) != 0) return gpushare_preload_slots[index];
  if (!needs_tenant) {
    SetSlot(index, real[index]);
    return real[index];
  }
  if (PassesRefused(entry)) return real[index];
  if (void* const watched = WatchedOfRefused(index)) return watched;
  void* const tells = TellerOfRefused(entry.name);
  return tells != nullptr ? tells : reinterpret_cast<void*>(&Refuse);
}

unsigned gpushare_preload_version() { return GPUSHARE_SHIM_ABI_VERSION; }

void* gpushare_preload_driver(const char** path) {
  using namespace gpushare::preload;
  if (path != nullptr) *path = driver_path;
  return Driver();
}
