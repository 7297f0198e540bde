// SPDX-License-Identifier: Apache-2.0
// For LD_AUDIT: whenever the loader looks for the driver or NVML, by any name and without regard to preloaded objects, it gets
// the object that replaces the library. Only those objects themselves get the real one.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shim/preload/library_names.h"

using namespace gpushare::preload;  // NOLINT: the entry points are global names

namespace {

// Paths of the replacing objects, beside this object; "" if there is none.
char driver_stand_in[4096], nvml_stand_in[4096];

void FindStandIn(const char* folder, int length, const char* file, char (&path)[4096]) {
  const int written = snprintf(path, sizeof(path), "%.*s/%s", length, folder, file);
  if (written < 0 || static_cast<size_t>(written) >= sizeof(path)) path[0] = '\0';
}

void FindStandIns() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&FindStandIns), &info) == 0 || info.dli_fname == nullptr)
    return;
  const char* slash = strrchr(info.dli_fname, '/');
  if (slash == nullptr) return;
  const int length = static_cast<int>(slash - info.dli_fname);
  FindStandIn(info.dli_fname, length, kDriverStandIn, driver_stand_in);
  FindStandIn(info.dli_fname, length, kNvmlStandIn, nvml_stand_in);
}

constexpr uintptr_t kOfStandIn = 1;

char* InsteadOf(const char* name, char* stand_in) {
  return stand_in[0] == '\0' ? const_cast<char*>(name) : stand_in;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) unsigned la_version(unsigned version);
__attribute__((visibility("default"))) unsigned la_objopen(struct link_map* map, Lmid_t space,
                                                           uintptr_t* cookie);
__attribute__((visibility("default"))) char* la_objsearch(const char* name, uintptr_t* cookie,
                                                          unsigned flag);

unsigned la_version(unsigned version) {
  FindStandIns();
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map* map, Lmid_t, uintptr_t* cookie) {
  const char* const name = NameOf(map->l_name);
  *cookie = strcmp(name, kDriverStandIn) == 0 || strcmp(name, kNvmlStandIn) == 0 ? kOfStandIn : 0;
  return 0;  // no symbol bindings are audited
}

char* la_objsearch(const char* name, uintptr_t* cookie, unsigned) {
  if (*cookie != kOfStandIn) {
    if (IsDriver(name)) return InsteadOf(name, driver_stand_in);
    if (IsNvml(name)) return InsteadOf(name, nvml_stand_in);
  }
  return const_cast<char*>(name);
}

}  // extern "C"
