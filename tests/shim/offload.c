/* SPDX-License-Identifier: Apache-2.0
 * A program of OpenMP's target regions, as anybody writes one: offload ROUNDS ELEMENTS. Compiled by the test itself, since
 * not every compiler can. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int rounds = atoi(argv[1]), n = atoi(argv[2]);
  float* const x = malloc((size_t)n * sizeof *x);
  float* const y = malloc((size_t)n * sizeof *y);
  if (x == NULL || y == NULL) return 2;
  for (int i = 0; i < n; ++i) x[i] = y[i] = (float)(i % 100);
#pragma omp target data map(to : x [0:n]) map(tofrom : y [0:n])
  for (int round = 0; round < rounds; ++round) {
#pragma omp target teams distribute parallel for
    for (int i = 0; i < n; ++i) y[i] += 2 * x[i];
  }
  /* Copied to the device and back. Kernels on the simulated GPU do not change memory. */
  printf("%g\n", (double)y[n - 1]);
  free(x);
  free(y);
  return 0;
}
