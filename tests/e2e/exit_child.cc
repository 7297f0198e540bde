// SPDX-License-Identifier: Apache-2.0
// A program that ends, or closes the library, while its threads launch. It is not linked with the library.
//
//   exit_child LIBRARY MODE      return | exit | quick_exit | atexit | order | dlclose
//
// Exits 0 when nothing went wrong.
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "gpushare/c/gpushare.h"

namespace {

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
//gpushare.sim cost=param:0 blocks_per_sm=1
.visible .entry spin(.param .u64 ns)
{
  ret;
}
)";
constexpr int kThreads = 3;
constexpr unsigned kSome = 50;

void* library = nullptr;
gpushare_runtime runtime = nullptr;
gpushare_gpu gpu = nullptr;
gpushare_vdev vdev = nullptr;
CUfunc_st* function = nullptr;
std::atomic<unsigned> launches[kThreads];

template <typename F>
F* Find(const char* name) {
  void* const found = dlsym(library, name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s is missing\n", name);
    std::_Exit(3);
  }
  return reinterpret_cast<F*>(found);
}
#define CALL(name, ...) Find<decltype(name)>(#name)(__VA_ARGS__)

void Must(gpushare_status status, const char* what) {
  if (status == GPUSHARE_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, CALL(gpushare_last_message));
  std::_Exit(3);
}

void SetUp() {
  gpushare_runtime_options options = {};
  options.struct_size = sizeof(options);
  options.driver = "sim";
  options.simulation = "sms=100,memory=8GiB,clock=wall";
  Must(CALL(gpushare_runtime_create, &options, &runtime), "runtime");
  Must(CALL(gpushare_gpu_open, runtime, "0", nullptr, &gpu), "gpu");
  gpushare_tenant tenant = nullptr;
  gpushare_tenant_options named = {};
  named.struct_size = sizeof(named);
  named.name = "a";
  Must(CALL(gpushare_tenant_create, runtime, &named, &tenant), "tenant");
  gpushare_spec spec = {};
  spec.struct_size = sizeof(spec);
  Must(CALL(gpushare_vdev_create, gpu, tenant, &spec, &vdev), "virtual device");
  gpushare_module module = nullptr;
  Must(CALL(gpushare_module_load, gpu, kPtx, &module), "module");
  Must(CALL(gpushare_module_function, module, "spin", &function), "function");
}

// Looked up in advance, since the library may be closed meanwhile.
void Launch(int thread) {
  auto* const create = Find<decltype(gpushare_stream_create)>("gpushare_stream_create");
  auto* const launch = Find<decltype(gpushare_stream_launch)>("gpushare_stream_launch");
  gpushare_stream stream = nullptr;
  if (create(vdev, &stream) != GPUSHARE_OK) return;
  gpushare_shape shape = {};
  shape.grid[0] = shape.grid[1] = shape.grid[2] = 1;
  shape.block[0] = 32;
  shape.block[1] = shape.block[2] = 1;
  for (;;) {
    uint64_t ns = 5000;
    void* params[] = {&ns};
    // Once the handles are gone (order), every launch is refused and not counted.
    if (launch(stream, function, &shape, params, GPUSHARE_FOREVER) == GPUSHARE_OK) {
      ++launches[thread];
    }
  }
}

void WaitForMore() {
  unsigned before[kThreads];
  for (int i = 0; i < kThreads; ++i) before[i] = launches[i];
  for (int i = 0; i < kThreads; ++i) {
    while (launches[i] < before[i] + kSome) std::this_thread::yield();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* const mode = argv[2];
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 3;
  }
  SetUp();
  for (int i = 0; i < kThreads; ++i) std::thread(&Launch, i).detach();
  WaitForMore();
  if (std::strcmp(mode, "return") == 0) return 0;
  if (std::strcmp(mode, "exit") == 0) {  // by another thread
    std::thread([] { std::exit(0); }).join();
  }
  if (std::strcmp(mode, "quick_exit") == 0) std::quick_exit(0);
  if (std::strcmp(mode, "atexit") == 0) {
    std::atexit([] { WaitForMore(); });  // the library still works during this
    return 0;
  }
  if (std::strcmp(mode, "order") == 0) {  // parents first, while their children are in use
    std::atexit([] {
      Must(CALL(gpushare_runtime_destroy, runtime), "runtime");
      Must(CALL(gpushare_gpu_close, gpu), "gpu");
      Must(CALL(gpushare_vdev_destroy, vdev), "virtual device");
    });
    return 0;
  }
  if (std::strcmp(mode, "dlclose") == 0) {
    if (dlclose(library) != 0) return 4;
    WaitForMore();  // the library stays in memory and keeps working
    return 0;
  }
  return 2;
}
