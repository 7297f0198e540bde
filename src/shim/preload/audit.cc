// SPDX-License-Identifier: Apache-2.0
// For LD_AUDIT: whoever has the loader look for the driver, by whatever name and past whatever was preloaded,
// gets the object that stands in for it. Only that object itself gets the real one.
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "shim/preload/driver_name.h"

using gpushare::preload::IsDriver;
using gpushare::preload::NameOf;

namespace {

char stand_in[4096];  // path of libgpushare_preload.so, beside this object

void FindStandIn() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&FindStandIn), &info) == 0 || info.dli_fname == nullptr)
    return;
  const char* slash = strrchr(info.dli_fname, '/');
  if (slash == nullptr) return;
  const int written = snprintf(stand_in, sizeof(stand_in), "%.*s/libgpushare_preload.so",
                               static_cast<int>(slash - info.dli_fname), info.dli_fname);
  if (written < 0 || static_cast<size_t>(written) >= sizeof(stand_in)) stand_in[0] = '\0';
}

constexpr uintptr_t kOfStandIn = 1;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) unsigned la_version(unsigned version);
__attribute__((visibility("default"))) unsigned la_objopen(struct link_map* map, Lmid_t space,
                                                           uintptr_t* cookie);
__attribute__((visibility("default"))) char* la_objsearch(const char* name, uintptr_t* cookie,
                                                          unsigned flag);

unsigned la_version(unsigned version) {
  FindStandIn();
  return version < LAV_CURRENT ? version : LAV_CURRENT;
}

unsigned la_objopen(struct link_map* map, Lmid_t, uintptr_t* cookie) {
  *cookie = strcmp(NameOf(map->l_name), "libgpushare_preload.so") == 0 ? kOfStandIn : 0;
  return 0;  // no calls are looked at
}

char* la_objsearch(const char* name, uintptr_t* cookie, unsigned) {
  if (stand_in[0] == '\0' || *cookie == kOfStandIn || !IsDriver(name)) {
    return const_cast<char*>(name);
  }
  return stand_in;
}

}  // extern "C"
