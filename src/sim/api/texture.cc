// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/texture.h"

#include "sim/api/api.h"
#include "sim/memory/address.h"

namespace gpushare::sim {
namespace {

bool IsLive(uint64_t address, uint64_t bytes) {
  return bytes > 0 && IsDeviceAddress(address) && IsUsableRange(address, bytes);
}

// The memory of a texture must exist when the texture is created. Keeping it is up to the program.
bool IsThere(const CUDA_RESOURCE_DESC& resource) {
  const auto& flat = resource.res.pitch2D;
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return state().arrays.Find(resource.res.array.hArray) != nullptr;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return state().mipmapped_arrays.Find(resource.res.mipmap.hMipmappedArray) != nullptr;
    case CU_RESOURCE_TYPE_LINEAR:
      return IsLive(resource.res.linear.devPtr, resource.res.linear.sizeInBytes);
    case CU_RESOURCE_TYPE_PITCH2D:
      // The last row may be shorter than the pitch.
      return flat.width > 0 && flat.height > 0 && flat.width <= flat.pitchInBytes &&
             flat.pitchInBytes <= UINT32_MAX && flat.height <= UINT32_MAX &&
             IsLive(flat.devPtr, flat.pitchInBytes * (flat.height - 1) + flat.width);
    default:
      return false;
  }
}

CUresult Create(CUtexObject* handle, const CUDA_RESOURCE_DESC* resource,
                const CUDA_TEXTURE_DESC* sampling, const CUDA_RESOURCE_VIEW_DESC* view) {
  if (handle == nullptr || resource == nullptr || sampling == nullptr || resource->flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context;
  const CUresult result = CurrentContext(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!IsThere(*resource)) return CUDA_ERROR_INVALID_VALUE;
  if (view != nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  auto* const texture = new Texture{0, context, *resource, *sampling};
  texture->handle = state().textures.Add(texture);
  *handle = texture->handle;
  return CUDA_SUCCESS;
}

CUresult Destroy(Texture* texture) {
  if (texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  state().textures.Remove(texture->handle);
  delete texture;
  return CUDA_SUCCESS;
}

template <typename T>
CUresult Describe(T* description, CUtexObject handle, T Texture::*part) {
  const Texture* const texture = state().textures.Find(handle);
  if (description == nullptr || texture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *description = texture->*part;
  return CUDA_SUCCESS;
}

}  // namespace

void DestroyTexturesOf(Context* context) {
  for (Texture* texture : state().textures.All()) {
    if (texture->context == context) Destroy(texture);
  }
}

}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuTexObjectCreate)
(CUtexObject* texture, const CUDA_RESOURCE_DESC* resource, const CUDA_TEXTURE_DESC* sampling,
 const CUDA_RESOURCE_VIEW_DESC* view) {
  SIM_ENTER(cuTexObjectCreate, kCall);
  return Create(texture, resource, sampling, view);
}

SIM_API(cuTexObjectDestroy)(CUtexObject texture) {
  SIM_ENTER(cuTexObjectDestroy, kCall);
  return Destroy(state().textures.Find(texture));
}

SIM_API(cuTexObjectGetResourceDesc)(CUDA_RESOURCE_DESC* resource, CUtexObject texture) {
  SIM_ENTER(cuTexObjectGetResourceDesc, kNone);
  return Describe(resource, texture, &Texture::resource);
}

SIM_API(cuTexObjectGetTextureDesc)(CUDA_TEXTURE_DESC* sampling, CUtexObject texture) {
  SIM_ENTER(cuTexObjectGetTextureDesc, kNone);
  return Describe(sampling, texture, &Texture::sampling);
}
