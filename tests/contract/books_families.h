// SPDX-License-Identifier: Apache-2.0
// The families of allocations as values, for tests that run over all of them. Add a line for a new family.
#ifndef GPUSHARE_TESTS_CONTRACT_BOOKS_FAMILIES_H_
#define GPUSHARE_TESTS_CONTRACT_BOOKS_FAMILIES_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "books/books.h"
#include "tests/contract/books_composed.h"

namespace gpushare::books {

constexpr uint64_t kPoolSlack = 0;

struct Family {
  const char* name;
  // Allocates at least `bytes`, and sets `thing` to the value that frees the memory.
  Answer (*take)(Books& books, const Payer& payer, uint64_t bytes, CUstream stream,
                 uint64_t* thing);
  CUresult (*give)(Books& books, uint64_t thing, CUstream stream);
  // Allocate and free likewise, but directly with the driver.
  CUresult (*raw_take)(const driver::Table& cu, uint64_t bytes, CUstream stream, uint64_t* thing);
  CUresult (*raw_give)(const driver::Table& cu, uint64_t thing, CUstream stream);
  // Another legal way to free the memory; null if there is none.
  CUresult (*other_give)(Books& books, uint64_t thing, CUstream stream) = nullptr;
  uint64_t slack = 0;  // the charge may exceed the driver's count by this much
  // The driver computes the size before anything is charged, so the driver and not the quota refuses an impossible size.
  bool sized_before = false;
};

inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

// Rows of an odd width, for pitched allocations.
struct Rows {
  size_t width, height;
};
inline Rows RowsOf(uint64_t bytes) {
  return bytes < 4096 ? Rows{bytes, 1} : Rows{1000, (bytes + 999) / 1000};
}

// An array with two channels of 16 bits. The smallest arrays have no height.
inline CUDA_ARRAY_DESCRIPTOR ArrayOf(uint64_t bytes) {
  CUDA_ARRAY_DESCRIPTOR shape{};
  const uint64_t elements = (bytes + 3) / 4;
  shape.Width = elements < 1000 ? elements : 1000;
  shape.Height = elements < 1000 ? 0 : (elements + 999) / 1000;
  shape.Format = CU_AD_FORMAT_SIGNED_INT16;
  shape.NumChannels = 2;
  return shape;
}
// A volume with elements of four floats.
inline CUDA_ARRAY3D_DESCRIPTOR VolumeOf(uint64_t bytes) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  const uint64_t elements = (bytes + 15) / 16;
  shape.Width = elements < 60 ? elements : 60;
  shape.Height = elements == 0 ? 0 : elements < 60 ? 1 : 30;
  shape.Depth = elements == 0 ? 0 : elements < 60 ? 1 : (elements + 1799) / 1800;
  shape.Format = CU_AD_FORMAT_FLOAT;
  shape.NumChannels = 4;
  return shape;
}

// A file that stands for the memory of an exporter.
inline CUDA_EXTERNAL_MEMORY_HANDLE_DESC FileOf(uint64_t bytes) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC file{};
  file.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
  file.handle.fd = memfd_create("exporter", MFD_CLOEXEC);
  file.size = bytes;
  static_cast<void>(ftruncate(file.handle.fd, static_cast<off_t>(bytes)) ==
                    0);  // else it is too small
  return file;
}
inline CUexternalMemory* External(uint64_t* thing) {
  return reinterpret_cast<CUexternalMemory*>(thing);
}

inline CUmemAllocationProp OnDevice() {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  return properties;
}
inline uint64_t Granular(uint64_t bytes) { return (bytes + 0x1fffff) & ~uint64_t{0x1fffff}; }
inline CUmemGenericAllocationHandle* Handle(uint64_t* thing) {
  return reinterpret_cast<CUmemGenericAllocationHandle*>(thing);
}

inline CUresult FreeNow(Books& books, uint64_t pointer, CUstream) { return books.MemFree(pointer); }
inline CUresult FreeLater(Books& books, uint64_t pointer, CUstream stream) {
  return books.MemFreeAsync(pointer, stream);
}
inline CUresult RawFreeNow(const driver::Table& cu, uint64_t pointer, CUstream) {
  return cu.MemFree(pointer);
}
inline CUdeviceptr* Pointer(uint64_t* thing) { return reinterpret_cast<CUdeviceptr*>(thing); }

inline const std::vector<Family>& Families() {
  static const std::vector<Family> families = {
      {"direct",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         return books.MemAlloc(payer, Pointer(thing), bytes);
       },
       FreeNow,
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         return cu.MemAlloc(Pointer(thing), bytes);
       },
       RawFreeNow, FreeLater},
      {"pitched",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         size_t pitch;
         const Rows rows = RowsOf(bytes);
         return books.MemAllocPitch(payer, Pointer(thing), &pitch, rows.width, rows.height, 4);
       },
       FreeNow,
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         size_t pitch;
         const Rows rows = RowsOf(bytes);
         return cu.MemAllocPitch(Pointer(thing), &pitch, rows.width, rows.height, 4);
       },
       RawFreeNow},
      {"managed",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         return books.MemAllocManaged(payer, Pointer(thing), bytes, CU_MEM_ATTACH_GLOBAL);
       },
       FreeNow,
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         return cu.MemAllocManaged(Pointer(thing), bytes, CU_MEM_ATTACH_GLOBAL);
       },
       RawFreeNow},
      {"array",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY_DESCRIPTOR shape = ArrayOf(bytes);
         return books.ArrayCreate(payer, reinterpret_cast<CUarray*>(thing), &shape);
       },
       [](Books& books, uint64_t array, CUstream) {
         return books.ArrayDestroy(reinterpret_cast<CUarray>(array));
       },
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY_DESCRIPTOR shape = ArrayOf(bytes);
         return cu.ArrayCreate(reinterpret_cast<CUarray*>(thing), &shape);
       },
       [](const driver::Table& cu, uint64_t array, CUstream) {
         return cu.ArrayDestroy(reinterpret_cast<CUarray>(array));
       }},
      {"array_3d",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY3D_DESCRIPTOR shape = VolumeOf(bytes);
         return books.Array3DCreate(payer, reinterpret_cast<CUarray*>(thing), &shape);
       },
       [](Books& books, uint64_t array, CUstream) {
         return books.ArrayDestroy(reinterpret_cast<CUarray>(array));
       },
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY3D_DESCRIPTOR shape = VolumeOf(bytes);
         return cu.Array3DCreate(reinterpret_cast<CUarray*>(thing), &shape);
       },
       [](const driver::Table& cu, uint64_t array, CUstream) {
         return cu.ArrayDestroy(reinterpret_cast<CUarray>(array));
       }},
      {"mipmapped",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY3D_DESCRIPTOR shape = VolumeOf(bytes);
         return books.MipmappedArrayCreate(payer, reinterpret_cast<CUmipmappedArray*>(thing),
                                           &shape, 4);
       },
       [](Books& books, uint64_t array, CUstream) {
         return books.MipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(array));
       },
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_ARRAY3D_DESCRIPTOR shape = VolumeOf(bytes);
         return cu.MipmappedArrayCreate(reinterpret_cast<CUmipmappedArray*>(thing), &shape, 4);
       },
       [](const driver::Table& cu, uint64_t array, CUstream) {
         return cu.MipmappedArrayDestroy(reinterpret_cast<CUmipmappedArray>(array));
       }},
      {"virtual",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUmemAllocationProp properties = OnDevice();
         return books.MemCreate(payer, Handle(thing), Granular(bytes), &properties, 0);
       },
       [](Books& books, uint64_t handle, CUstream) { return books.MemRelease(handle); },
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUmemAllocationProp properties = OnDevice();
         return cu.MemCreate(Handle(thing), Granular(bytes), &properties, 0);
       },
       [](const driver::Table& cu, uint64_t handle, CUstream) { return cu.MemRelease(handle); }},
      {"pool",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return books.MemAllocAsync(payer, Pointer(thing), bytes, stream);
       },
       FreeLater,
       [](const driver::Table& cu, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return cu.MemAllocAsync(Pointer(thing), bytes, stream);
       },
       [](const driver::Table& cu, uint64_t pointer, CUstream stream) {
         return cu.MemFreeAsync(pointer, stream);
       },
       FreeNow, kPoolSlack},
      {"external",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = FileOf(bytes);
         const Answer answer = books.ImportExternalMemory(payer, External(thing), &file);
         if (!answer.ok()) close(file.handle.fd);
         return answer;
       },
       [](Books& books, uint64_t handle, CUstream) {
         return books.DestroyExternalMemory(reinterpret_cast<CUexternalMemory>(handle));
       },
       [](const driver::Table& cu, uint64_t bytes, CUstream, uint64_t* thing) {
         const CUDA_EXTERNAL_MEMORY_HANDLE_DESC file = FileOf(bytes);
         const CUresult result = cu.ImportExternalMemory(External(thing), &file);
         if (result != CUDA_SUCCESS) close(file.handle.fd);
         return result;
       },
       [](const driver::Table& cu, uint64_t handle, CUstream) {
         return cu.DestroyExternalMemory(reinterpret_cast<CUexternalMemory>(handle));
       }},
      {"own_pool",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeFromOwnPool({&books}, payer, bytes, stream, thing);
       },
       FreeLater,
       [](const driver::Table&, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeFromOwnPool({}, {}, bytes, stream, thing).result;
       },
       [](const driver::Table& cu, uint64_t pointer, CUstream stream) {
         return cu.MemFreeAsync(pointer, stream);
       },
       FreeNow, kPoolSlack},
      {"graph",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeByGraph({&books}, payer, bytes, stream, thing);
       },
       [](Books& books, uint64_t pointer, CUstream stream) {
         return GiveOfGraph({&books}, pointer, stream);
       },
       [](const driver::Table&, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeByGraph({}, {}, bytes, stream, thing).result;
       },
       [](const driver::Table&, uint64_t pointer, CUstream stream) {
         return GiveOfGraph({}, pointer, stream);
       },
       nullptr, 0, true},
      {"mapped",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         return TakeMapped({&books}, payer, Granular(bytes), thing);
       },
       [](Books& books, uint64_t thing, CUstream) { return GiveMapped({&books}, thing); },
       [](const driver::Table&, uint64_t bytes, CUstream, uint64_t* thing) {
         return TakeMapped({}, {}, Granular(bytes), thing).result;
       },
       [](const driver::Table&, uint64_t thing, CUstream) { return GiveMapped({}, thing); }},
      {"multicast",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream, uint64_t* thing) {
         return TakeBound({&books}, payer, Granular(bytes), thing);
       },
       [](Books& books, uint64_t handle, CUstream) { return books.MemRelease(handle); },
       [](const driver::Table&, uint64_t bytes, CUstream, uint64_t* thing) {
         return TakeBound({}, {}, Granular(bytes), thing).result;
       },
       [](const driver::Table& cu, uint64_t handle, CUstream) { return cu.MemRelease(handle); }},
      {"sparse",
       [](Books& books, const Payer& payer, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeSparse({&books}, payer, Granular(bytes), stream, thing);
       },
       [](Books& books, uint64_t array, CUstream) {
         return books.ArrayDestroy(reinterpret_cast<CUarray>(array));
       },
       [](const driver::Table&, uint64_t bytes, CUstream stream, uint64_t* thing) {
         return TakeSparse({}, {}, Granular(bytes), stream, thing).result;
       },
       [](const driver::Table& cu, uint64_t array, CUstream) {
         return cu.ArrayDestroy(reinterpret_cast<CUarray>(array));
       },
       [](Books& books, uint64_t array, CUstream stream) {
         return GiveUnmapped({&books}, array, stream);
       }},
  };
  return families;
}

}  // namespace gpushare::books

#endif  // GPUSHARE_TESTS_CONTRACT_BOOKS_FAMILIES_H_
