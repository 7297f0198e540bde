/* SPDX-License-Identifier: Apache-2.0 */
/* Uses only the C ABI: a quota, a kernel, the counters. Needs neither C++ nor Abseil. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpushare/c/gpushare.h"

static const char kSpin[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    "//gpushare.sim cost=20us blocks_per_sm=1\n"
    ".visible .entry nothing()\n{\n  ret;\n}\n";

static void check(gpushare_status status, const char* what) {
  if (status == GPUSHARE_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, gpushare_status_name(status), gpushare_last_message());
  exit(1);
}

int main(void) {
  gpushare_runtime runtime;
  check(gpushare_runtime_create(NULL, &runtime), "runtime");
  gpushare_gpu gpu;
  check(gpushare_gpu_open(runtime, "0", NULL, &gpu), "gpu");

  gpushare_tenant tenant;
  gpushare_tenant_options options = {.struct_size = sizeof(options), .name = "c-program"};
  check(gpushare_tenant_create(runtime, &options, &tenant), "tenant");

  gpushare_spec spec = {.struct_size = sizeof(spec)};
  const char* text = "memory=256MiB,compute=30%";
  check(gpushare_spec_parse(text, strlen(text), &spec), "spec");
  gpushare_vdev device;
  check(gpushare_vdev_create(gpu, tenant, &spec, &device), "virtual device");

  gpushare_allocator allocator;
  check(gpushare_allocator_create(device, NULL, &allocator), "allocator");
  gpushare_device_ptr memory, too_much;
  check(gpushare_alloc(allocator, 200u << 20, &memory), "alloc");
  if (gpushare_alloc(allocator, 100u << 20, &too_much) != GPUSHARE_RESOURCE_EXHAUSTED) return 1;
  printf("100 MiB more: %s\n", gpushare_last_message());

  gpushare_stream stream;
  check(gpushare_stream_create(device, &stream), "stream");
  check(gpushare_stream_set_async(stream, memory, 42, 1 << 20), "set");
  unsigned char byte = 0;
  check(gpushare_stream_copy_d2h(stream, &byte, memory + 12345, 1), "copy");
  printf("a byte of it: %d\n", byte);

  gpushare_module module;
  check(gpushare_module_load(gpu, kSpin, &module), "module");
  struct CUfunc_st* function;
  check(gpushare_module_function(module, "nothing", &function), "function");
  const gpushare_shape shape = {.grid = {64, 1, 1}, .block = {128, 1, 1}};
  for (int i = 0; i < 1000; ++i) {
    check(gpushare_stream_launch(stream, function, &shape, NULL, GPUSHARE_FOREVER), "launch");
  }
  check(gpushare_stream_synchronize(stream), "synchronize");

  gpushare_vdev_stats stats = {.struct_size = sizeof(stats)};
  check(gpushare_vdev_get_stats(device, &stats), "stats");
  printf("%s: %" PRIu64 " launches, %" PRIu64 " MiB of %" PRIu64 " MiB in use, %" PRIu64
         " refused\n",
         stats.tenant, stats.launches, stats.memory_used >> 20, stats.memory_limit >> 20,
         stats.memory_denied);

  check(gpushare_free(allocator, memory), "free");
  check(gpushare_module_unload(module), "unload");
  check(gpushare_stream_destroy(stream), "stream");
  check(gpushare_allocator_destroy(allocator), "allocator");
  check(gpushare_vdev_destroy(device), "virtual device");
  check(gpushare_tenant_destroy(tenant), "tenant");
  check(gpushare_gpu_close(gpu), "gpu");
  check(gpushare_runtime_destroy(runtime), "runtime");
  return 0;
}
