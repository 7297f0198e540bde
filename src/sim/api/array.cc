// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays.
#include "sim/api/api.h"
#include "sim/graph/capture.h"

namespace gpushare::sim {
namespace {

ArrayShape ShapeOf(const CUDA_ARRAY_DESCRIPTOR& d) {
  return {.width = d.Width,
          .height = d.Height,
          .format = static_cast<unsigned>(d.Format),
          .channels = d.NumChannels};
}

ArrayShape ShapeOf(const CUDA_ARRAY3D_DESCRIPTOR& d) {
  return {.width = d.Width,
          .height = d.Height,
          .depth = d.Depth,
          .format = static_cast<unsigned>(d.Format),
          .channels = d.NumChannels,
          .flags = d.Flags};
}

// The first steps of every creation.
CUresult BeginCreate(const ThreadContext& thread, ArrayShape* shape, bool mipmapped,
                     Context** context) {
  CUresult result = CurrentContext(context);
  if (result != CUDA_SUCCESS) return result;
  result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  result = static_cast<CUresult>(CheckArrayShape(shape, mipmapped));
  if (result != CUDA_SUCCESS) return result;
  return state().faults.FailAllocation() ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

template <typename Descriptor>
CUresult Create(const ThreadContext& thread, CUarray* handle, const Descriptor* descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ArrayShape shape = ShapeOf(*descriptor);
  Context* context;
  const CUresult result = BeginCreate(thread, &shape, /*mipmapped=*/false, &context);
  if (result != CUDA_SUCCESS) return result;
  const Array* const array = CreateArray(context, shape);
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUarray>(array->handle);
  return CUDA_SUCCESS;
}

CUresult CreateMipmapped(const ThreadContext& thread, CUmipmappedArray* handle,
                         const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ArrayShape shape = ShapeOf(*descriptor);
  Context* context;
  const CUresult result = BeginCreate(thread, &shape, /*mipmapped=*/true, &context);
  if (result != CUDA_SUCCESS) return result;
  const MipmappedArray* const array =
      CreateMipmappedArray(context, shape, std::clamp(levels, 1u, MostLevels(shape)));
  if (array == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmipmappedArray>(array->handle);
  return CUDA_SUCCESS;
}

CUresult MapExternal(const ThreadContext& thread, CUmipmappedArray* handle, CUexternalMemory memory,
                     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* descriptor) {
  if (handle == nullptr || descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Allocation* const allocation =
      state().virtual_memory.FindExternal(reinterpret_cast<uint64_t>(memory));
  if (allocation == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  ArrayShape shape = ShapeOf(descriptor->arrayDesc);
  Context* context;
  const CUresult result = BeginCreate(thread, &shape, /*mipmapped=*/true, &context);
  if (result != CUDA_SUCCESS) return result;
  if (context != allocation->context) return CUDA_ERROR_INVALID_CONTEXT;  // they end together
  const unsigned levels = std::clamp(descriptor->numLevels, 1u, MostLevels(shape));
  const uint64_t bytes = MipmappedBytes(shape, levels);
  if (descriptor->offset > allocation->size || bytes > allocation->size - descriptor->offset) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t address = state().virtual_memory.MapBuffer(allocation, descriptor->offset, bytes);
  if (address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const MipmappedArray* const array = MapMipmappedArray(context, shape, levels, address);
  *handle = reinterpret_cast<CUmipmappedArray>(array->handle);
  return CUDA_SUCCESS;
}

// Destroying waits for the work of the array's context, as freeing does. Afterwards the array may be gone.
template <typename T, typename Handle, typename Find>
CUresult DrainAndFind(const ThreadContext& thread, Handle handle, Find find, T** array) {
  *array = find(handle);
  if (*array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult result = CheckUnsafe(thread);
  if (result != CUDA_SUCCESS) return result;
  result = WaitForContext((*array)->context, "the work before an array's end");
  if (result == CUDA_ERROR_CONTEXT_IS_DESTROYED) return result;
  *array = find(handle);
  return *array != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// An array that is not a level: a level belongs to its mipmapped array.
Array* FindOwn(CUarray handle) {
  Array* const array = state().arrays.Find(handle);
  return array != nullptr && array->owner == nullptr ? array : nullptr;
}

CUresult Destroy(const ThreadContext& thread, CUarray handle) {
  Array* array;
  const CUresult result = DrainAndFind(thread, handle, FindOwn, &array);
  if (result == CUDA_SUCCESS) DestroyArray(array);
  return result;
}

CUresult DestroyMipmapped(const ThreadContext& thread, CUmipmappedArray handle) {
  MipmappedArray* array;
  const auto find = [](CUmipmappedArray one) { return state().mipmapped_arrays.Find(one); };
  const CUresult result = DrainAndFind(thread, handle, find, &array);
  if (result == CUDA_SUCCESS) DestroyMipmappedArray(array);
  return result;
}

CUresult Describe(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray handle) {
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Array* const array = state().arrays.Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ArrayShape& shape = array->shape;
  *descriptor = {.Width = shape.width,
                 .Height = shape.height,
                 .Format = static_cast<CUarray_format>(shape.format),
                 .NumChannels = shape.channels};
  return CUDA_SUCCESS;
}

CUresult Describe(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray handle) {
  if (descriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Array* const array = state().arrays.Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const ArrayShape& shape = array->shape;
  *descriptor = {.Width = shape.width,
                 .Height = shape.height,
                 .Depth = shape.depth,
                 .Format = static_cast<CUarray_format>(shape.format),
                 .NumChannels = shape.channels,
                 .Flags = shape.flags};
  return CUDA_SUCCESS;
}

// For calls that only concern sparse and deferred arrays: no array here is one.
template <typename T>
CUresult NotOfThisKind(const void* out, const T* array) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return array == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuArrayCreate_v2)(CUarray* array, const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  SIM_ENTER(cuArrayCreate_v2, kCall);
  return Create(scope.thread(), array, descriptor);
}

SIM_API(cuArray3DCreate_v2)(CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  SIM_ENTER(cuArray3DCreate_v2, kCall);
  return Create(scope.thread(), array, descriptor);
}

SIM_API(cuArrayDestroy)(CUarray array) {
  SIM_ENTER(cuArrayDestroy, kCall);
  return Destroy(scope.thread(), array);
}

SIM_API(cuArrayGetDescriptor_v2)(CUDA_ARRAY_DESCRIPTOR* descriptor, CUarray array) {
  SIM_ENTER(cuArrayGetDescriptor_v2, kNone);
  return Describe(descriptor, array);
}

SIM_API(cuArray3DGetDescriptor_v2)(CUDA_ARRAY3D_DESCRIPTOR* descriptor, CUarray array) {
  SIM_ENTER(cuArray3DGetDescriptor_v2, kNone);
  return Describe(descriptor, array);
}

SIM_API(cuArrayGetMemoryRequirements)
(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUarray array, CUdevice) {
  SIM_ENTER(cuArrayGetMemoryRequirements, kNone);
  return NotOfThisKind(requirements, state().arrays.Find(array));
}

SIM_API(cuArrayGetSparseProperties)(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUarray array) {
  SIM_ENTER(cuArrayGetSparseProperties, kNone);
  return NotOfThisKind(properties, state().arrays.Find(array));
}

SIM_API(cuArrayGetPlane)(CUarray* plane, CUarray array, unsigned) {
  SIM_ENTER(cuArrayGetPlane, kNone);
  return NotOfThisKind(plane, state().arrays.Find(array));  // no format has planes
}

SIM_API(cuMipmappedArrayCreate)
(CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
  SIM_ENTER(cuMipmappedArrayCreate, kCall);
  return CreateMipmapped(scope.thread(), array, descriptor, levels);
}

SIM_API(cuExternalMemoryGetMappedMipmappedArray)
(CUmipmappedArray* array, CUexternalMemory memory,
 const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC* descriptor) {
  SIM_ENTER(cuExternalMemoryGetMappedMipmappedArray, kCall);
  return MapExternal(scope.thread(), array, memory, descriptor);
}

SIM_API(cuMipmappedArrayGetLevel)(CUarray* level, CUmipmappedArray handle, unsigned number) {
  SIM_ENTER(cuMipmappedArrayGetLevel, kNone);
  if (level == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MipmappedArray* const array = state().mipmapped_arrays.Find(handle);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (number >= array->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *level = reinterpret_cast<CUarray>(array->levels[number]->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuMipmappedArrayDestroy)(CUmipmappedArray array) {
  SIM_ENTER(cuMipmappedArrayDestroy, kCall);
  return DestroyMipmapped(scope.thread(), array);
}

SIM_API(cuMipmappedArrayGetMemoryRequirements)
(CUDA_ARRAY_MEMORY_REQUIREMENTS* requirements, CUmipmappedArray array, CUdevice) {
  SIM_ENTER(cuMipmappedArrayGetMemoryRequirements, kNone);
  return NotOfThisKind(requirements, state().mipmapped_arrays.Find(array));
}

SIM_API(cuMipmappedArrayGetSparseProperties)
(CUDA_ARRAY_SPARSE_PROPERTIES* properties, CUmipmappedArray array) {
  SIM_ENTER(cuMipmappedArrayGetSparseProperties, kNone);
  return NotOfThisKind(properties, state().mipmapped_arrays.Find(array));
}
