// SPDX-License-Identifier: Apache-2.0
#include "driver_calls.h"

#include <dlfcn.h>
#include <time.h>

#include <cstdlib>
#include <cstring>

namespace gpushare::facts {
namespace {

uint64_t (*g_sim_now)() = nullptr;

template <class F>
void Find(void* library, const char* name, F& function) {
  static_assert(sizeof(function) == sizeof(void*));
  void* symbol = dlsym(library, name);
  std::memcpy(&function, &symbol, sizeof(symbol));
}

}  // namespace

DriverCalls OpenDriver() {
  const char* path = std::getenv("GPUSHARE_DRIVER");
  if (path == nullptr || *path == '\0') path = "libcuda.so.1";
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    StopFailed(std::string("there is no driver: ") + dlerror() +
               "; set GPUSHARE_DRIVER to a libcuda.so.1, for example the simulated GPU's");
  }
  DriverCalls cu;
#define X(name) Find(library, GPUSHARE_FACTS_TEXT(name), cu.name);
  GPUSHARE_FACTS_CALLS(X)
#undef X
  // The same call under its older name, for drivers before CUDA 12.8.
  if (cu.cuEventElapsedTime == nullptr) {
    void* symbol = dlsym(library, "cuEventElapsedTime");
    std::memcpy(&cu.cuEventElapsedTime, &symbol, sizeof(symbol));
  }
  Find(library, "cuCtxCreate_v2", cu.create_context);
  Find(library, "gpushare_sim_now", cu.sim_now);
  g_sim_now = cu.sim_now;
  return cu;
}

int64_t Now() {
  if (g_sim_now != nullptr) return static_cast<int64_t>(g_sim_now());
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string ErrorName(const DriverCalls& cu, CUresult result) {
  const char* name = nullptr;
  if (cu.cuGetErrorName == nullptr || cu.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr) {
    return "error " + std::to_string(static_cast<int>(result));
  }
  return name;
}

}  // namespace gpushare::facts
