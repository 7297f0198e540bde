// SPDX-License-Identifier: Apache-2.0
// A program that contains NVIDIA's run-time library, which finds the driver's functions by cuGetProcAddress. It allocates more than
// LIMIT MiB, gets cudaErrorMemoryAllocation, and continues with less. Prints the total MiB, the error, and the sum.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

__global__ void Add(unsigned long long* sum) { atomicAdd(sum, 1ull); }

int main(int argc, char** argv) {
  const size_t mib = argc > 1 ? strtoull(argv[1], nullptr, 10) : 0;
  size_t left = 0, total = 0;
  void* block = nullptr;
  unsigned long long *sum = nullptr, seen = 0;
  if (cudaMemGetInfo(&left, &total) != cudaSuccess) return 1;
  const cudaError_t error = cudaMalloc(&block, (mib + mib / 2) << 20);
  if (error == cudaSuccess) cudaFree(block);
  cudaGetLastError();
  if (cudaMalloc(&block, (mib / 2) << 20) != cudaSuccess) return 2;
  if (cudaMemset(block, 1, (mib / 2) << 20) != cudaSuccess) return 3;
  if (cudaMalloc(&sum, sizeof *sum) != cudaSuccess) return 4;
  if (cudaMemset(sum, 0, sizeof *sum) != cudaSuccess) return 5;
  Add<<<10, 100>>>(sum);
  if (cudaMemcpy(&seen, sum, sizeof seen, cudaMemcpyDeviceToHost) != cudaSuccess) return 6;
  std::printf("%zu %d %llu\n", total >> 20, static_cast<int>(error), seen);
  return 0;
}
