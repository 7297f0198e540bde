/* SPDX-License-Identifier: Apache-2.0 */
/* Uses gpushare from C: a quota of 1 GiB on a simulated GPU of 8 GiB, kept to the byte. */
#include <gpushare/c/gpushare.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(const char* what, gpushare_status got, gpushare_status wanted) {
  if (got == wanted) return;
  ++failures;
  printf("%s: %s instead of %s: %s\n", what, gpushare_status_name(got),
         gpushare_status_name(wanted), gpushare_last_message());
}

int main(void) {
  const uint64_t gib = (uint64_t)1 << 30;
  gpushare_runtime_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.driver = "sim";
  options.simulation = "memory=8GiB";
  gpushare_runtime runtime;
  expect("runtime", gpushare_runtime_create(&options, &runtime), GPUSHARE_OK);
  if (failures) return 1;
  printf("gpushare %s, ABI %u\n", gpushare_version(), (unsigned)gpushare_abi_version());

  gpushare_gpu gpu;
  expect("gpu", gpushare_gpu_open(runtime, "0", NULL, &gpu), GPUSHARE_OK);
  gpushare_tenant_options named;
  memset(&named, 0, sizeof(named));
  named.struct_size = sizeof(named);
  named.name = "consumer";
  gpushare_tenant tenant;
  expect("tenant", gpushare_tenant_create(runtime, &named, &tenant), GPUSHARE_OK);

  const char text[] = "memory=1GiB,compute=30%";
  gpushare_spec spec;
  memset(&spec, 0, sizeof(spec));
  spec.struct_size = sizeof(spec);
  expect("spec", gpushare_spec_parse(text, strlen(text), &spec), GPUSHARE_OK);
  gpushare_vdev device;
  expect("virtual device", gpushare_vdev_create(gpu, tenant, &spec, &device), GPUSHARE_OK);

  gpushare_allocator_options defaults;
  memset(&defaults, 0, sizeof(defaults));
  defaults.struct_size = sizeof(defaults);
  gpushare_allocator allocator;
  expect("allocator", gpushare_allocator_create(device, &defaults, &allocator), GPUSHARE_OK);
  if (failures) return 1;

  gpushare_device_ptr all = 0, more = 0;
  expect("the whole quota", gpushare_alloc(allocator, gib, &all), GPUSHARE_OK);
  expect("one byte more", gpushare_alloc(allocator, 1, &more), GPUSHARE_RESOURCE_EXHAUSTED);
  printf("%s\n", gpushare_last_message());
  expect("free", gpushare_free(allocator, all), GPUSHARE_OK);

  expect("allocator", gpushare_allocator_destroy(allocator), GPUSHARE_OK);
  expect("virtual device", gpushare_vdev_destroy(device), GPUSHARE_OK);
  expect("tenant", gpushare_tenant_destroy(tenant), GPUSHARE_OK);
  expect("gpu", gpushare_gpu_close(gpu), GPUSHARE_OK);
  expect("runtime", gpushare_runtime_destroy(runtime), GPUSHARE_OK);
  if (failures == 0) puts("consumer: ok");
  return failures != 0;
}
