/* SPDX-License-Identifier: Apache-2.0 */
/* The calls from C with which overhead.py compares those from Python. Each function makes `n` calls
 * on a simulated GPU of its own and returns the seconds that they took; negative on failure. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "gpushare/c/gpushare.h"

#define SYNCHRONIZE_EVERY 256 /* keeps the queue from filling up; overhead.py does the same */

static const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n//gpushare.sim cost=1us\n"
    ".visible .entry saxpy(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 a) { ret; }\n";

struct World {
  gpushare_runtime runtime;
  gpushare_gpu gpu;
  gpushare_tenant tenant;
  gpushare_vdev vdev;
  gpushare_stream stream;
  gpushare_module module;
  gpushare_allocator allocator;
  struct CUfunc_st* function;
};

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int Open(struct World* w) {
  memset(w, 0, sizeof(*w));
  gpushare_runtime_options options = {
      .struct_size = sizeof(options), .driver = "sim", .simulation = "clock=wall"};
  gpushare_tenant_options tenant = {.struct_size = sizeof(tenant), .name = "c"};
  gpushare_spec spec = {.struct_size = sizeof(spec)};
  gpushare_allocator_options allocator = {.struct_size = sizeof(allocator)};
  return gpushare_runtime_create(&options, &w->runtime) == GPUSHARE_OK &&
         gpushare_gpu_open(w->runtime, "0", NULL, &w->gpu) == GPUSHARE_OK &&
         gpushare_tenant_create(w->runtime, &tenant, &w->tenant) == GPUSHARE_OK &&
         gpushare_spec_parse("memory=8GiB", strlen("memory=8GiB"), &spec) == GPUSHARE_OK &&
         gpushare_vdev_create(w->gpu, w->tenant, &spec, &w->vdev) == GPUSHARE_OK &&
         gpushare_stream_create(w->vdev, &w->stream) == GPUSHARE_OK &&
         gpushare_allocator_create(w->vdev, &allocator, &w->allocator) == GPUSHARE_OK &&
         gpushare_module_load(w->gpu, kPtx, &w->module) == GPUSHARE_OK &&
         gpushare_module_function(w->module, "saxpy", &w->function) == GPUSHARE_OK;
}

static void Close(struct World* w) {
  if (w->module != NULL) gpushare_module_unload(w->module);
  if (w->allocator != NULL) gpushare_allocator_destroy(w->allocator);
  if (w->stream != NULL) gpushare_stream_destroy(w->stream);
  if (w->vdev != NULL) gpushare_vdev_destroy(w->vdev);
  if (w->tenant != NULL) gpushare_tenant_destroy(w->tenant);
  if (w->gpu != NULL) gpushare_gpu_close(w->gpu);
  if (w->runtime == NULL) return;
  void* reset = NULL;
  gpushare_runtime_symbol(w->runtime, "gpushare_sim_reset", &reset);
  gpushare_runtime_destroy(w->runtime);
  if (reset != NULL) ((int (*)(void))reset)();
}

GPUSHARE_API double baseline_lease(long n) {
  struct World w;
  double seconds = -1;
  if (Open(&w)) {
    gpushare_lease_options options = {.struct_size = sizeof(options),
                                      .hint_ns = 1000,
                                      .timeout_ns = GPUSHARE_FOREVER,
                                      .streams = &w.stream,
                                      .stream_count = 1};
    const double began = Now();
    for (long i = 0; i < n; ++i) {
      gpushare_lease lease;
      gpushare_lease_result result = {.struct_size = sizeof(result)};
      if (gpushare_lease_acquire(w.vdev, &options, &lease) != GPUSHARE_OK) break;
      gpushare_lease_release(lease, &result);
    }
    seconds = Now() - began;
  }
  Close(&w);
  return seconds;
}

GPUSHARE_API double baseline_launch(long n) {
  struct World w;
  double seconds = -1;
  if (Open(&w)) {
    const gpushare_shape shape = {{1, 1, 1}, {256, 1, 1}, 0};
    uint64_t x = 0, y = 0;
    uint32_t count = 1000;
    float a = 2;
    void* params[] = {&x, &y, &count, &a, NULL};
    const double began = Now();
    for (long i = 0; i < n; ++i) {
      gpushare_stream_launch(w.stream, w.function, &shape, params, GPUSHARE_FOREVER);
      if (i % SYNCHRONIZE_EVERY == 0) gpushare_stream_synchronize(w.stream);
    }
    seconds = Now() - began;
  }
  Close(&w);
  return seconds;
}

GPUSHARE_API double baseline_alloc(long n) {
  struct World w;
  double seconds = -1;
  if (Open(&w)) {
    const double began = Now();
    for (long i = 0; i < n; ++i) {
      gpushare_device_ptr pointer = 0;
      gpushare_alloc(w.allocator, 1 << 20, &pointer);
      gpushare_free(w.allocator, pointer);
    }
    seconds = Now() - began;
  }
  Close(&w);
  return seconds;
}

/* The functions of Allocator.c_functions(), called as CuPy does. */
GPUSHARE_API double c_functions_alloc(long n, void* parameter,
                                      void* (*allocate)(void*, size_t, int),
                                      void (*release)(void*, void*, int)) {
  const double began = Now();
  for (long i = 0; i < n; ++i) release(parameter, allocate(parameter, 1 << 20, 0), 0);
  return Now() - began;
}
