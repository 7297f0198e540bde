// SPDX-License-Identifier: Apache-2.0
// A virtual device's memory as a memory resource of CCCL (cuda::mr), for RMM, Thrust, CUB and cuDF.
//
//   absl::StatusOr<Allocator> pool =
//       Allocator::Create(*device, {.strategy = AllocationStrategy::kSuballocating});
//   CudaMemoryResource resource(*pool);
//   static_assert(cuda::mr::resource_with<CudaMemoryResource, cuda::mr::device_accessible>);
//   cuda::mr::resource_ref<cuda::mr::device_accessible> ref = resource;   // what libraries take
//   void* p = resource.allocate(stream, 1 << 20);
//   resource.deallocate(stream, p, 1 << 20);
//
// Needs CCCL 3.1 or newer in the include path and CUDA's headers, but no CUDA library: this header calls only gpushare. The
// CUDA toolkit brings CCCL 3.1 from 13.1 on, and nvcc finds it there; 13.0 has CCCL 3.0. With an older toolkit take CCCL
// from NVIDIA's wheel nvidia-cuda-cccl (13.1 or newer) or its sources, and put it before the toolkit's.
//
// Sizes are in bytes. Errors are exceptions, as usual in cuda::mr. OutOfMemory, a std::bad_alloc with gpushare's message:
// the quota is used up, after the allocator has waited or reclaimed according to its options, or the device is full.
// std::invalid_argument: the alignment is not a power of two up to 256. std::runtime_error: everything else. Deallocating
// throws nothing.
//
// Threading: thread-safe. A copy refers to the same resource and compares equal. Memory that was allocated in the order of
// a stream is deallocated in the order of a stream that has been made to wait for it, or by deallocate_sync() when nothing
// uses it any more.
#ifndef GPUSHARE_CUDA_MR_H_
#define GPUSHARE_CUDA_MR_H_

#if !__has_include(<cuda/memory_resource>)
#error "gpushare/cuda_mr.h needs CCCL 3.1 or newer (<cuda/memory_resource>) in the include path"
#endif

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#if CCCL_VERSION < 3001000
#error \
    "gpushare/cuda_mr.h needs CCCL 3.1 or newer: older ones have other names for what a resource does"
#endif

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/allocator.h"
#include "gpushare/units.h"

namespace gpushare {

// The quota is used up, or the device is full; what() says what was asked and what was left.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(const absl::Status& status)
      : message_(std::make_shared<const std::string>(status.message())) {}
  const char* what() const noexcept override { return message_->c_str(); }

 private:
  std::shared_ptr<const std::string> message_;  // copying an exception must not throw
};

class CudaMemoryResource {
 public:
  using default_queries = cuda::mr::properties_list<cuda::mr::device_accessible>;

  explicit CudaMemoryResource(Allocator allocator) : allocator_(std::move(allocator)) {}

  // In the order of `stream`, which belongs to the GPU's primary context. 0 bytes: null.
  void* allocate(cuda::stream_ref stream, std::size_t bytes,
                 std::size_t alignment = cuda::mr::default_cuda_malloc_alignment) {
    return Allocate(bytes, {.native = stream.get(), .alignment = alignment});
  }
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t,
                  std::size_t = cuda::mr::default_cuda_malloc_alignment) noexcept {
    static_cast<void>(allocator_.FreeNative(ToDevice(pointer), stream.get()));
  }

  // Without a stream.
  void* allocate_sync(std::size_t bytes,
                      std::size_t alignment = cuda::mr::default_cuda_malloc_alignment) {
    return Allocate(bytes, {.alignment = alignment});
  }
  void deallocate_sync(void* pointer, std::size_t,
                       std::size_t = cuda::mr::default_cuda_malloc_alignment) noexcept {
    static_cast<void>(allocator_.Free(ToDevice(pointer)));
  }

  const Allocator& allocator() const { return allocator_; }

  friend bool operator==(const CudaMemoryResource& a, const CudaMemoryResource& b) noexcept {
    return a.allocator_.handle() == b.allocator_.handle();
  }
  friend bool operator!=(const CudaMemoryResource& a, const CudaMemoryResource& b) noexcept {
    return !(a == b);
  }
  friend void get_property(const CudaMemoryResource&, cuda::mr::device_accessible) noexcept {}

 private:
  static DevicePtr ToDevice(void* pointer) {
    return DevicePtr(reinterpret_cast<unsigned long long>(pointer));
  }
  void* Allocate(std::size_t bytes, const AllocateOptions& options) const {
    if (bytes == 0) return nullptr;
    const absl::StatusOr<DevicePtr> pointer = allocator_.AllocateRaw(Bytes(bytes), options);
    if (pointer.ok()) return reinterpret_cast<void*>(pointer->value());
    switch (pointer.status().code()) {
      case absl::StatusCode::kResourceExhausted:
      case absl::StatusCode::kDeadlineExceeded:
        throw OutOfMemory(pointer.status());
      case absl::StatusCode::kInvalidArgument:
        throw std::invalid_argument(std::string(pointer.status().message()));
      default:
        throw std::runtime_error(pointer.status().ToString());
    }
  }

  Allocator allocator_;
};

// For the temporary memory of Thrust's algorithms, which take an allocator of bytes:
//
//   ThrustTemporaries temporaries(*pool, cuda_stream);
//   thrust::sort(thrust::cuda::par_nosync(temporaries).on(cuda_stream), keys.begin(), keys.end());
//
// It must live until the calls of the algorithms have returned. Throws the same exceptions.
class ThrustTemporaries {
 public:
  using value_type = char;

  ThrustTemporaries(Allocator allocator, cuda::stream_ref stream)
      : resource_(std::move(allocator)), stream_(stream) {}

  char* allocate(std::ptrdiff_t bytes) {
    return static_cast<char*>(resource_.allocate(stream_, static_cast<std::size_t>(bytes)));
  }
  void deallocate(char* pointer, std::size_t bytes) {
    resource_.deallocate(stream_, pointer, bytes);
  }

 private:
  CudaMemoryResource resource_;
  cuda::stream_ref stream_;
};

}  // namespace gpushare

#endif  // GPUSHARE_CUDA_MR_H_
