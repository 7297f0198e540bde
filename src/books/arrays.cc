// SPDX-License-Identifier: Apache-2.0
// Arrays and mipmapped arrays. They are known by handle, in a table of their own.
#include "books/array_bytes.h"
#include "books/books.h"

namespace gpushare::books {
namespace {

CUDA_ARRAY3D_DESCRIPTOR Widened(const CUDA_ARRAY_DESCRIPTOR& d) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = d.Width;
  wide.Height = d.Height;
  wide.Format = d.Format;
  wide.NumChannels = d.NumChannels;
  return wide;
}

// Newer than the oldest header.
constexpr unsigned kDeferredMapping = 0x80;

}  // namespace

// The driver tells the size only of arrays that get their memory later. So it is asked for an array of the same shape that does:
// this takes no memory, and 10 to 20 us on an H200, where arrays are padded by up to an eighth. If it cannot tell, the bytes are
// computed from the shape, as the simulated driver counts them.
uint64_t Books::BytesOfArray(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels) {
  const uint64_t computed = ArrayBytes(shape, levels);
  if (page_ == 0 || computed == 0 || computed == quota::kUnlimited) return computed;
  CUDA_ARRAY3D_DESCRIPTOR twin = shape;
  twin.Flags |= kDeferredMapping;
  CUDA_ARRAY_MEMORY_REQUIREMENTS told{};
  CUresult asked = CUDA_SUCCESS;
  CUdevice device = 0;
  if (driver_.CtxGetDevice(&device) != CUDA_SUCCESS) return computed;
  if (levels == 0) {
    CUarray array = nullptr;
    if (driver_.Array3DCreate(&array, &twin) != CUDA_SUCCESS) return computed;
    asked = driver_.ArrayGetMemoryRequirements(&told, array, device);
    driver_.ArrayDestroy(array);
  } else {
    CUmipmappedArray array = nullptr;
    if (driver_.MipmappedArrayCreate(&array, &twin, levels) != CUDA_SUCCESS) return computed;
    asked = driver_.MipmappedArrayGetMemoryRequirements(&told, array, device);
    driver_.MipmappedArrayDestroy(array);
  }
  return asked == CUDA_SUCCESS && told.size != 0 ? told.size : computed;
}

template <typename Handle, typename Create, typename Destroy>
Answer Books::TakeArray(const Payer& payer, Handle* array, uint64_t bytes, quota::Kind kind,
                        const Create& create, const Destroy& destroy) {
  if (bytes == 0) return {create()};
  bytes = ChargeOf(bytes);
  const Answer answer = Charged(payer, bytes, create);
  if (!answer.ok()) return answer;
  const quota::Allocation entry{bytes, payer.account, kind, payer.owner, TagOf(payer)};
  return Insert(arrays_, KeyOf(*array), entry, [&] { destroy(*array); });
}

template <typename Call>
CUresult Books::GiveArray(uint64_t key, const Call& call) {
  quota::Allocation allocation;
  const bool ours = arrays_.Take(key, &allocation);
  SparseArrays::List mapped = sparse_.TakeOf(key);
  const CUresult result = call();
  // If the driver no longer knows the handle, another thread has destroyed it and found no entry.
  const bool ended = result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE;
  if (ended) {
    for (const SparseArrays::Region& region : mapped) {
      Finish(physical_, physical_.Unuse(region.memory));
    }
  } else {
    sparse_.Map(std::move(mapped));
  }
  if (!ours) return result;
  if (ended) {
    Ended(allocation);
  } else {
    Restore(arrays_, key, allocation);
  }
  return result;
}

Answer Books::ArrayCreate(const Payer& payer, CUarray* array,
                          const CUDA_ARRAY_DESCRIPTOR* descriptor) {
  const auto create = [&] { return driver_.ArrayCreate(array, descriptor); };
  if (array == nullptr || descriptor == nullptr) return {create()};
  return TakeArray(payer, array, BytesOfArray(Widened(*descriptor), 0), quota::Kind::kArray, create,
                   driver_.ArrayDestroy);
}

Answer Books::Array3DCreate(const Payer& payer, CUarray* array,
                            const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
  const auto create = [&] { return driver_.Array3DCreate(array, descriptor); };
  if (array == nullptr || descriptor == nullptr) return {create()};
  return TakeArray(payer, array, BytesOfArray(*descriptor, 0), quota::Kind::kArray, create,
                   driver_.ArrayDestroy);
}

CUresult Books::ArrayDestroy(CUarray array) {
  return GiveArray(KeyOf(array), [&] { return driver_.ArrayDestroy(array); });
}

Answer Books::MipmappedArrayCreate(const Payer& payer, CUmipmappedArray* array,
                                   const CUDA_ARRAY3D_DESCRIPTOR* descriptor, unsigned levels) {
  const auto create = [&] { return driver_.MipmappedArrayCreate(array, descriptor, levels); };
  if (array == nullptr || descriptor == nullptr) return {create()};
  return TakeArray(payer, array, BytesOfArray(*descriptor, levels), quota::Kind::kMipmappedArray,
                   create, driver_.MipmappedArrayDestroy);
}

// The array has no memory of its own, only external memory.
CUresult Books::DestroyMapped(CUmipmappedArray array) {
  const SharedMemory::Mappings mapped = external_.TakeMappings(KeyOfMapped(array), 1);
  const CUresult result =
      GiveArray(KeyOf(array), [&] { return driver_.MipmappedArrayDestroy(array); });
  for (const SharedMemory::Mapping& one : mapped) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_HANDLE) {
      Finish(external_, external_.Unuse(one.memory));
    } else {
      Map(external_, one);
    }
  }
  return result;
}

CUresult Books::MipmappedArrayDestroy(CUmipmappedArray array) {
  if (has_mapped_arrays_.load(std::memory_order_relaxed)) return DestroyMapped(array);
  return GiveArray(KeyOf(array), [&] { return driver_.MipmappedArrayDestroy(array); });
}

}  // namespace gpushare::books
