/* SPDX-License-Identifier: Apache-2.0 */
/* Built twice for the driver and twice for NVML: linked with the library, and not linked with it (REACH_LOOSE). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shim/reach.h"

#ifndef REACH_LOOSE
int RunLinked(const char* unused);
int RunLinked(const char* unused) {
  const Driver linked = GPUSHARE_REACH_LINKED;
  (void)unused;
  return Try(&linked);
}
#else
static int of_constructor = kFailed;

int RunOpened(const char* path);
int RunOpened(const char* path) {
  Driver driver;
  void* handle = dlopen(path, RTLD_NOW);
  if (handle == NULL) return kFailed;
  GPUSHARE_REACH_BY_DLSYM(&driver, handle);
  return GPUSHARE_REACH_IS_WHOLE(&driver) ? Try(&driver) : kFailed;
}

__attribute__((constructor)) static void Construct(void) {
  const char* way = getenv("REACH_WAY");
  if (way != NULL && strcmp(way, "constructor") == 0)
    of_constructor = RunOpened(REACH_LIBRARY ".1");
}

int OfConstructor(const char* unused);
int OfConstructor(const char* unused) {
  (void)unused;
  return of_constructor;
}
#endif
