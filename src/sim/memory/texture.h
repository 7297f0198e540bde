// SPDX-License-Identifier: Apache-2.0
// Texture objects. Kernels do not execute, so nothing reads through a texture: the object only keeps its description.
#ifndef GPUSHARE_SIM_MEMORY_TEXTURE_H_
#define GPUSHARE_SIM_MEMORY_TEXTURE_H_

// As in api.h: this file uses both the old and the new names.
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
#include <cuda.h>

#include <cstdint>

namespace gpushare::sim {

struct Context;

struct Texture {
  uint64_t handle = 0;
  Context* context = nullptr;
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC sampling;
};

void DestroyTexturesOf(Context* context);

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_MEMORY_TEXTURE_H_
