// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/array.h"

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

// The limits of compute capability 9.0. Surfaces have the same as textures, except for single rows.
struct Limit {
  int texture, surface;  // CUdevice_attribute; 0: none
  uint64_t value;
};
constexpr Limit k1dWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
                         CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 131072};
constexpr Limit k2dWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
                         CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072};
constexpr Limit k2dHeight{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT,
                          CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536};
constexpr Limit k3dWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH,
                         CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384};
constexpr Limit k3dHeight{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT,
                          CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384};
constexpr Limit k3dDepth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH,
                         CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384};
constexpr Limit k1dLayeredWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH,
                                CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768};
constexpr Limit k1dLayers{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS,
                          CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048};
constexpr Limit k2dLayeredWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                                CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768};
constexpr Limit k2dLayeredHeight{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                                 CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768};
constexpr Limit k2dLayers{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
                          CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048};
constexpr Limit kCubeWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
                           CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH, 32768};
constexpr Limit kCubeLayeredWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                                  CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, 32768};
constexpr Limit kCubeLayers{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
                            CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS, 2046};
constexpr Limit kGatherWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, 0, 32768};
constexpr Limit kGatherHeight{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 0, 32768};
constexpr Limit k1dMipWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH, 0, 32768};
constexpr Limit k2dMipWidth{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, 0, 32768};
constexpr Limit k2dMipHeight{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 0, 32768};
constexpr Limit kLimits[] = {
    k1dWidth,      k2dWidth,        k2dHeight,         k3dWidth,        k3dHeight,
    k3dDepth,      k1dLayeredWidth, k1dLayers,         k2dLayeredWidth, k2dLayeredHeight,
    k2dLayers,     kCubeWidth,      kCubeLayeredWidth, kCubeLayers,     kGatherWidth,
    kGatherHeight, k1dMipWidth,     k2dMipWidth,       k2dMipHeight,
};

// Bytes of one channel; 0: unknown. If the format determines the number of channels, `fixed` gets it.
uint64_t ChannelBytes(unsigned format, unsigned* fixed) {
  constexpr unsigned kFirstNormalised = CU_AD_FORMAT_UNORM_INT8X1;
  *fixed = 0;
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      // 1, 2 and 4 channels of 8 bits, of 16 bits, and the same signed.
      if (format < kFirstNormalised || format > CU_AD_FORMAT_SNORM_INT16X4) return 0;
      *fixed = 1u << ((format - kFirstNormalised) % 3);
      return (format - kFirstNormalised) / 3 % 2 == 0 ? 1 : 2;
  }
}

constexpr unsigned kKnownFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                 CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                 CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
constexpr unsigned kNotModelled = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING | 0x100;

bool Within(uint64_t extent, const Limit& limit) { return extent >= 1 && extent <= limit.value; }

bool ExtentsFit(const ArrayShape& s, bool mipmapped) {
  const bool layered = (s.flags & CUDA_ARRAY3D_LAYERED) != 0;
  if ((s.flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0) {
    return s.depth == 0 && Within(s.width, kGatherWidth) && Within(s.height, kGatherHeight);
  }
  if ((s.flags & CUDA_ARRAY3D_CUBEMAP) != 0) {
    if (s.width != s.height || s.depth == 0 || s.depth % 6 != 0) return false;
    if (!layered) return s.depth == 6 && Within(s.width, kCubeWidth);
    return Within(s.width, kCubeLayeredWidth) && Within(s.depth, kCubeLayers);
  }
  if (layered) {
    if (s.height == 0) return Within(s.width, k1dLayeredWidth) && Within(s.depth, k1dLayers);
    return Within(s.width, k2dLayeredWidth) && Within(s.height, k2dLayeredHeight) &&
           Within(s.depth, k2dLayers);
  }
  if (s.height == 0) {
    return s.depth == 0 && Within(s.width, mipmapped ? k1dMipWidth : k1dWidth);
  }
  if (s.depth == 0) {
    return Within(s.width, mipmapped ? k2dMipWidth : k2dWidth) &&
           Within(s.height, mipmapped ? k2dMipHeight : k2dHeight);
  }
  return Within(s.width, k3dWidth) && Within(s.height, k3dHeight) && Within(s.depth, k3dDepth);
}

uint64_t Rounded(uint64_t bytes) {
  return (bytes + DeviceMemory::kAlignment - 1) & ~(DeviceMemory::kAlignment - 1);
}

// 0 when the device has no room.
uint64_t AllocateHidden(Context* context, uint64_t bytes) {
  Block* const block = context->device->memory.Allocate(bytes, context);
  if (block == nullptr) return 0;
  block->hidden = true;
  return block->address;
}

void Give(Array* array, Context* context, const ArrayShape& shape, uint64_t address) {
  array->shape = shape;
  array->context = context;
  array->device = context->device;
  array->address = address;
  array->handle = state().arrays.Add(array);
}

void Forget(MipmappedArray* array) {
  for (const auto& level : array->levels) state().arrays.Remove(level->handle);
  state().mipmapped_arrays.Remove(array->handle);
  delete array;
}

ArrayShape Level(const ArrayShape& shape, unsigned level) {
  ArrayShape result = shape;
  const auto halve = [&](uint64_t* extent) {
    if (*extent != 0) *extent = std::max<uint64_t>(*extent >> level, 1);
  };
  halve(&result.width);
  halve(&result.height);
  if ((shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) halve(&result.depth);
  return result;
}

}  // namespace

int CheckArrayShape(ArrayShape* shape, bool mipmapped) {
  if ((shape->flags & ~(kKnownFlags | kNotModelled)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((shape->flags & kNotModelled) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (shape->channels != 1 && shape->channels != 2 && shape->channels != 4) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned fixed;
  const uint64_t channel = ChannelBytes(shape->format, &fixed);
  if (channel == 0) {
    // Planar and compressed formats are recognised and not supported.
    return shape->format >= 0x50 && shape->format <= 0xff ? CUDA_ERROR_NOT_SUPPORTED
                                                          : CUDA_ERROR_INVALID_VALUE;
  }
  if (fixed != 0 && fixed != shape->channels) return CUDA_ERROR_INVALID_VALUE;
  shape->element = channel * shape->channels;
  return ExtentsFit(*shape, mipmapped) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

unsigned MostLevels(const ArrayShape& shape) {
  uint64_t longest = std::max(shape.width, shape.height);
  if ((shape.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) == 0) {
    longest = std::max(longest, shape.depth);
  }
  unsigned levels = 1;
  while (longest >>= 1) ++levels;
  return levels;
}

Array* CreateArray(Context* context, const ArrayShape& shape) {
  const uint64_t address = AllocateHidden(context, Rounded(shape.bytes()));
  if (address == 0) return nullptr;
  auto* const array = new Array;
  Give(array, context, shape, address);
  return array;
}

uint64_t MipmappedBytes(const ArrayShape& shape, unsigned levels) {
  uint64_t bytes = 0;
  for (unsigned i = 0; i < levels; ++i) bytes += Rounded(Level(shape, i).bytes());
  return bytes;
}

MipmappedArray* CreateMipmappedArray(Context* context, const ArrayShape& shape, unsigned levels) {
  const uint64_t address = AllocateHidden(context, MipmappedBytes(shape, levels));
  if (address == 0) return nullptr;
  MipmappedArray* const array = MapMipmappedArray(context, shape, levels, address);
  array->mapped = false;
  return array;
}

MipmappedArray* MapMipmappedArray(Context* context, const ArrayShape& shape, unsigned levels,
                                  uint64_t address) {
  auto* const array = new MipmappedArray;
  array->handle = state().mipmapped_arrays.Add(array);
  array->context = context;
  array->device = context->device;
  array->address = address;
  array->mapped = true;
  for (unsigned i = 0; i < levels; ++i) {
    array->levels.push_back(std::make_unique<Array>());
    Array* const level = array->levels.back().get();
    Give(level, context, Level(shape, i), address);
    level->owner = array;
    address += Rounded(level->shape.bytes());
  }
  return array;
}

void DestroyArray(Array* array) {
  array->device->memory.Free(array->address);
  state().arrays.Remove(array->handle);
  delete array;
}

void DestroyMipmappedArray(MipmappedArray* array) {
  if (array->mapped) {
    state().virtual_memory.FreeBuffer(array->address);
  } else {
    array->device->memory.Free(array->address);
  }
  Forget(array);
}

void ForgetArraysOf(const Context* context) {
  for (MipmappedArray* array : state().mipmapped_arrays.All()) {
    if (array->context == context) Forget(array);
  }
  for (Array* array : state().arrays.All()) {
    if (array->context != context) continue;
    state().arrays.Remove(array->handle);
    delete array;
  }
}

bool ArrayLimit(int attribute, int* value) {
  for (const Limit& limit : kLimits) {
    if (attribute == 0 || (limit.texture != attribute && limit.surface != attribute)) continue;
    *value = static_cast<int>(limit.value);
    return true;
  }
  return false;
}

}  // namespace gpushare::sim
