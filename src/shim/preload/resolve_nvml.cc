// SPDX-License-Identifier: Apache-2.0
// The first calls of NVML: the very first opens the real NVML, and the first one that has to be answered for the share loads
// libgpushare.so. Nothing here calls the driver, so a monitoring program stays without a context.
//
// As with the driver, a hooked call is not let through without the engine: it would show other tenants' values.
// GPUSHARE_DISABLE=1 takes gpushare out of a process.
#include "shim/preload/first_call.h"
#include "shim/preload/preload.h"

extern "C" {

// Shows that this object is gpushare's and not NVML.
__attribute__((visibility("default"))) unsigned gpushare_preload_nvml_version();
// The path of the real NVML; "" before its first call, and if there is none.
__attribute__((visibility("default"))) const char* gpushare_preload_nvml_path();

}  // extern "C"

namespace gpushare::preload {
namespace {

// Values of nvmlReturn_t, defined here so that no NVML header is needed.
constexpr int kLibraryNotFound = 12;
constexpr int kFunctionNotFound = 13;
constexpr int kUnknown = 999;

template <int kResult>
int Answer() {
  return kResult;
}

// Replaces the only entry point that does not return an nvmlReturn_t.
const char* ErrorString(int) { return "NVML is not here"; }

void* real[PRELOAD_ENTRY_COUNT];
void* nvml = nullptr;
char nvml_path[4096];
bool looked_for_nvml = false;
bool resolved[PRELOAD_ENTRY_COUNT];  // the slot does not lead here any more
bool attached = false;
int wants_engine = 0;  // a function was called that has to be answered for the share

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
  __atomic_store_n(&nvml, OpenRealNvml(nvml_path, sizeof(nvml_path)), __ATOMIC_RELEASE);
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

// Sets the slots of the hooked entry points. Without the engine, the next call tries again.
void Attach() {
  auto* attach = reinterpret_cast<decltype(&gpushare_shim_attach_nvml)>(
      FindInEngine("gpushare_shim_attach_nvml"));
  if (attach == nullptr) return;
  const gpushare_shim_driver about = {
      GPUSHARE_SHIM_ABI_VERSION, 0, nvml, nvml_path, nullptr, nullptr};
  const gpushare_shim_hook* hooks = nullptr;
  size_t count = 0;
  if (attach(&about, &hooks, &count) != 0) return;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = FindEntryPoint(hooks[i].name);
    if (at != PRELOAD_ENTRY_COUNT && !resolved[at]) Resolved(at, hooks[i].function);
  }
  attached = true;
}

}  // namespace

void SetUp() {
  FindReal();
  if (!attached && __atomic_load_n(&wants_engine, __ATOMIC_RELAXED) != 0) Attach();
}

}  // namespace gpushare::preload

void* gpushare_preload_resolve(size_t index) {
  using namespace gpushare::preload;
  if (IsSettingUp()) return real[index] != nullptr ? real[index] : Missing(index);
  DoSetUp();
  if (!resolved[index]) {
    __atomic_store_n(&wants_engine, 1, __ATOMIC_RELAXED);
    DoSetUp();
  }
  return resolved[index] ? gpushare_preload_slots[index]
                         : reinterpret_cast<void*>(&Answer<kUnknown>);
}

unsigned gpushare_preload_nvml_version() { return GPUSHARE_SHIM_ABI_VERSION; }

const char* gpushare_preload_nvml_path() {
  using namespace gpushare::preload;
  return __atomic_load_n(&nvml, __ATOMIC_ACQUIRE) == nullptr ? "" : nvml_path;
}
