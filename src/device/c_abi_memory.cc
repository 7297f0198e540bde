// SPDX-License-Identifier: Apache-2.0
// The C ABI: memory.
#include "device/allocator.h"
#include "device/c_abi.h"
#include "device/gpu.h"
#include "device/stream.h"
#include "device/virtual_device.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_allocator_create(gpushare_vdev vdev,
                                          const gpushare_allocator_options* options,
                                          gpushare_allocator* allocator) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(allocator);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_allocator_options known,
                              ReadStruct(options, "options", /*optional=*/true));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Allocator> made, Allocator::Create(device, known));
    return NewHandle(allocator, std::move(made));
  });
}

gpushare_status gpushare_allocator_destroy(gpushare_allocator allocator) {
  return Destroy(allocator);
}

gpushare_status gpushare_alloc(gpushare_allocator allocator, uint64_t bytes,
                               gpushare_device_ptr* pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_NOT_NULL(pointer);
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, from->Allocate(bytes, nullptr));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_free(gpushare_allocator allocator, gpushare_device_ptr pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    return from->Free(pointer, nullptr);
  });
}

gpushare_status gpushare_alloc_on(gpushare_allocator allocator, uint64_t bytes,
                                  gpushare_stream stream, gpushare_device_ptr* pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_BORROW(on, stream);
    GPUSHARE_NOT_NULL(pointer);
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, from->Allocate(bytes, on));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_free_on(gpushare_allocator allocator, gpushare_device_ptr pointer,
                                 gpushare_stream stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_BORROW(on, stream);
    return from->Free(pointer, on);
  });
}

gpushare_status gpushare_allocator_trim(gpushare_allocator allocator, uint64_t bytes) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(of, allocator);
    return of->Trim(bytes);
  });
}

gpushare_status gpushare_allocator_get_stats(gpushare_allocator allocator,
                                             gpushare_allocator_stats* stats) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(of, allocator);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_allocator_stats now, of->Stats());
    return WriteStruct(stats, now, "stats");
  });
}

gpushare_status gpushare_gpu_alloc(gpushare_gpu gpu, uint64_t bytes, gpushare_device_ptr* pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(pointer);
    GPUSHARE_ASSIGN_OR_RETURN(const std::shared_ptr<VirtualDevice> device,
                              opened->Resolve(nullptr));
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, device->Allocate({.bytes = bytes}));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_gpu_free(gpushare_gpu gpu, gpushare_device_ptr pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    return FreePointer(*opened, nullptr, pointer);
  });
}

gpushare_status gpushare_gpu_pointer(gpushare_gpu gpu, gpushare_device_ptr pointer, uint64_t* bytes,
                                     gpushare_vdev* vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    std::shared_ptr<VirtualDevice> owner;
    GPUSHARE_ASSIGN_OR_RETURN(const uint64_t size, opened->FindPointer(pointer, &owner));
    if (vdev != nullptr) {
      if (owner == nullptr) {
        return absl::FailedPreconditionError(
            "the virtual device that allocated it has been destroyed");
      }
      GPUSHARE_RETURN_IF_ERROR(NewHandle(vdev, std::move(owner)));
    }
    if (bytes != nullptr) *bytes = size;
    return absl::OkStatus();
  });
}
