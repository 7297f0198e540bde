/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program that cannot be queried. When the program ends, this writes to the file WITNESS_FILE what the simulated GPU
 * saw of the program, if it used the GPU at all. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gpushare/testing/sim.h"

__attribute__((destructor)) static void Testify(void) {
  const char* const path = getenv("WITNESS_FILE");
  const char* const driver = getenv("GPUSHARE_SIMULATED");
  if (path == NULL || driver == NULL) return;
  void* const sim = dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
  if (sim == NULL) return;
  uint64_t (*const now)(void) = (uint64_t(*)(void))dlsym(sim, "gpushare_sim_now");
  uint64_t (*const calls)(const char*) = (uint64_t(*)(const char*))dlsym(sim, "gpushare_sim_calls");
  int (*const busy)(int, double*, double*) =
      (int (*)(int, double*, double*))dlsym(sim, "gpushare_sim_device_busy");
  double busy_ns = 0, sm_ns = 0;
  if (now == NULL || calls == NULL || busy == NULL || busy(0, &busy_ns, &sm_ns) != 0) return;
  FILE* const file = fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "ns=%" PRIu64 " busy_ns=%.0f cuLaunchKernel=%" PRIu64 "\n", now(), busy_ns,
          calls("cuLaunchKernel"));
  fclose(file);
}
