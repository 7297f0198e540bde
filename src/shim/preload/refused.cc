// SPDX-License-Identifier: Apache-2.0
// Without a share or a driver, programs that look up entry points by cuGetProcAddress still find entry points that return the
// error.
#include "shim/preload/refused.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "shim/preload/unseen.h"

namespace gpushare::preload {
namespace {

// Values of CUresult, defined here so that no CUDA header is needed.
constexpr int kInvalidValue = 1;
constexpr int kNotFound = 500;

constexpr int kFound = 0, kNoSuchSymbol = 1;  // CUdriverProcAddressQueryResult
using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);

// This object's own entry point, which asks for a share again when it is called.
void* OwnEntryPoint(size_t index) {
  FindNextLoader();
  if (gpushare_preload_next_dlopen == nullptr) return nullptr;
  void* const self = gpushare_preload_next_dlopen(OwnPath(), RTLD_NOW | RTLD_NOLOAD);
  return self == nullptr ? nullptr : dlsym(self, kEntryPoints[index].name);
}

int GetProcAddressOfRefused(const char* name, void** function, int version, uint64_t flags,
                            int* status) {
  int ignored = 0;
  if (status == nullptr) status = &ignored;
  if (name == nullptr || function == nullptr) return kInvalidValue;
  if (Driver() == nullptr) {
    const size_t at = FindAnyVersion(name);
    *function = at == PRELOAD_ENTRY_COUNT ? nullptr : OwnEntryPoint(at);
    *status = *function == nullptr ? kNoSuchSymbol : kFound;
    return *function == nullptr ? kNotFound : 0;
  }
  const auto ask =
      reinterpret_cast<GetProcAddress>(RealEntryPoint(FindEntryPoint("cuGetProcAddress_v2")));
  const int result = ask(name, function, version, flags, status);
  if (result != 0 || *function == nullptr) return result;
  for (size_t i = 0; i < PRELOAD_ENTRY_COUNT; ++i) {
    if (RealEntryPoint(i) != *function) continue;
    if (!PassesRefused(kEntryPoints[i])) *function = OwnEntryPoint(i);
    return result;
  }
  // A function that the driver does not export by name.
  if (OnlyChangesContexts(name)) {
    ContextsChangeUnseen();
    return result;
  }
  const size_t at = FindAnyVersion(name);
  if (at == PRELOAD_ENTRY_COUNT || PassesRefused(kEntryPoints[at])) return result;
  *function = reinterpret_cast<void*>(&Refuse);
  return result;
}
int OldGetProcAddressOfRefused(const char* name, void** function, int version, uint64_t flags) {
  return GetProcAddressOfRefused(name, function, version, flags, nullptr);
}

}  // namespace

bool PassesRefused(const EntryPoint& entry) {
  return entry.hooked == 0 && strcmp(entry.name, "cuInit") != 0;
}

void* TellerOfRefused(const char* name) {
  if (strcmp(name, "cuGetProcAddress_v2") == 0) {
    return reinterpret_cast<void*>(&GetProcAddressOfRefused);
  }
  if (strcmp(name, "cuGetProcAddress") == 0) {
    return reinterpret_cast<void*>(&OldGetProcAddressOfRefused);
  }
  return nullptr;
}

}  // namespace gpushare::preload
