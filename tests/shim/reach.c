/* SPDX-License-Identifier: Apache-2.0 */
/* A program that reaches the driver, or NVML (REACH_NVML), in one of the ways that programs use, and reports whether the limit of its
 * share applies there: reach WAY FOLDER, where FOLDER/sim contains the library. */
#define _GNU_SOURCE
#include "tests/shim/reach.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef REACH_NVML
#define REACH_SUFFIX "_nvml"
#else
#define REACH_SUFFIX ""
#endif

static char library_path[4096], plugin_path[4096], loose_plugin_path[4096];

static int BySymbolsOf(void* handle) {
  Driver driver;
  GPUSHARE_REACH_BY_DLSYM(&driver, handle);
  return GPUSHARE_REACH_IS_WHOLE(&driver) ? Try(&driver) : kFailed;
}

static int BySymbols(void* handle) { return handle == NULL ? kFailed : BySymbolsOf(handle); }

#ifndef REACH_NVML
typedef CUresult (*GetProc)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);

static int ByProcAddress(GetProc get, int through_itself) {
  Driver driver;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (get == NULL) return kFailed;
  if (through_itself) {
    GetProc again = NULL;
    if (get("cuGetProcAddress", (void**)&again, 12000, 0, &found) != CUDA_SUCCESS ||
        again == NULL || found != CU_GET_PROC_ADDRESS_SUCCESS) {
      return kFailed;
    }
    get = again;
  }
#define GET(field, name)                                                    \
  if (get(name, (void**)&driver.field, 12000, 0, &found) != CUDA_SUCCESS || \
      found != CU_GET_PROC_ADDRESS_SUCCESS)                                 \
  return kFailed
  GET(init, "cuInit");
  GET(device_get, "cuDeviceGet");
  GET(retain, "cuDevicePrimaryCtxRetain");
  GET(set_current, "cuCtxSetCurrent");
  GET(alloc, "cuMemAlloc");
  GET(free, "cuMemFree");
  return Try(&driver);
}
#endif

static int ByPlugin(const char* path, int flags, const char* function, const char* argument) {
  int (*run)(const char*);
  void* plugin = dlopen(path, RTLD_NOW | flags);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return kFailed;
  }
  *(void**)&run = dlsym(plugin, function);
  return run == NULL ? kFailed : run(argument);
}

static int Run(const char* way) {
  if (strcmp(way, "linked") == 0) {
    const Driver linked = GPUSHARE_REACH_LINKED;
    return Try(&linked);
  }
  if (strcmp(way, "dlopen") == 0) return BySymbols(dlopen(REACH_LIBRARY ".1", RTLD_NOW));
  if (strcmp(way, "unversioned") == 0) return BySymbols(dlopen(REACH_LIBRARY, RTLD_NOW));
  if (strcmp(way, "absolute") == 0) return BySymbols(dlopen(library_path, RTLD_NOW));
  if (strcmp(way, "dlmopen") == 0)
    return BySymbols(dlmopen(LM_ID_NEWLM, REACH_LIBRARY ".1", RTLD_NOW));
  if (strcmp(way, "dlmopen_absolute") == 0) {
    return BySymbols(dlmopen(LM_ID_NEWLM, library_path, RTLD_NOW));
  }
  if (strcmp(way, "default") == 0) return BySymbolsOf(RTLD_DEFAULT);
#ifndef REACH_NVML
  if (strcmp(way, "proc_address") == 0) {
    return ByProcAddress(
        (GetProc)dlsym(dlopen(REACH_LIBRARY ".1", RTLD_NOW), "cuGetProcAddress_v2"), 0);
  }
  if (strcmp(way, "proc_address_through_itself") == 0) {
    return ByProcAddress(
        (GetProc)dlsym(dlopen(REACH_LIBRARY ".1", RTLD_NOW), "cuGetProcAddress_v2"), 1);
  }
#endif
  if (strcmp(way, "plugin") == 0) return ByPlugin(plugin_path, 0, "RunLinked", "");
  if (strcmp(way, "deepbind_plugin") == 0) {
    return ByPlugin(plugin_path, RTLD_DEEPBIND, "RunLinked", "");
  }
  if (strcmp(way, "deepbind_plugin_dlopen") == 0) {
    return ByPlugin(loose_plugin_path, RTLD_DEEPBIND, "RunOpened", REACH_LIBRARY ".1");
  }
  if (strcmp(way, "deepbind_plugin_absolute") == 0) {
    return ByPlugin(loose_plugin_path, RTLD_DEEPBIND, "RunOpened", library_path);
  }
  /* The plugin's constructor has already tried. */
  if (strcmp(way, "constructor") == 0) return ByPlugin(loose_plugin_path, 0, "OfConstructor", "");
  if (strcmp(way, "fork") == 0 || strcmp(way, "vfork_exec") == 0) {
    int status = 0;
    const pid_t child = way[0] == 'v' ? vfork() : fork();
    if (child == 0) {
      if (way[0] == 'v') {
        execl("/proc/self/exe", "reach", "linked", "", (char*)NULL);
        _exit(kFailed);
      }
      _exit(Run("linked"));
    }
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
               ? WEXITSTATUS(status)
               : kFailed;
  }
  fprintf(stderr, "there is no way '%s'\n", way);
  return kFailed;
}

int main(int argc, char** argv) {
  int result;
  if (argc != 3) return kFailed;
  snprintf(library_path, sizeof(library_path), "%s/sim/" REACH_LIBRARY ".1", argv[2]);
  snprintf(plugin_path, sizeof(plugin_path), "%s/libreach" REACH_SUFFIX "_plugin.so",
           getenv("REACH_PLUGINS"));
  snprintf(loose_plugin_path, sizeof(loose_plugin_path),
           "%s/libreach" REACH_SUFFIX "_loose_plugin.so", getenv("REACH_PLUGINS"));
  result = Run(argv[1]);
  puts(result == kLimited ? "limited" : result == kNotLimited ? "not limited" : "failed");
  return result;
}
