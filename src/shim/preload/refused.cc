// SPDX-License-Identifier: Apache-2.0
// Where there is no share, or no driver, programs that ask for entry points by cuGetProcAddress still find those that
// tell them so.
#include "shim/preload/refused.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "shim/preload/unseen.h"

namespace gpushare::preload {
namespace {

// CUresults, which need no header.
constexpr int kInvalidValue = 1;
constexpr int kNotFound = 500;

constexpr int kFound = 0, kNoSuchSymbol = 1;  // CUdriverProcAddressQueryResult
using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);

// Our own entry point, which asks for a share again when it is called.
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
  // One that the driver does not give to those who look it up by name.
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
