// SPDX-License-Identifier: Apache-2.0
// The C ABI: memory.
#include "device/abi/c_abi.h"
#include "device/gpu/gpu.h"
#include "device/memory/allocator.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"

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
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, from->Allocate({.bytes = bytes}));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_free(gpushare_allocator allocator, gpushare_device_ptr pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    return from->Free(pointer, {});
  });
}

gpushare_status gpushare_alloc_on(gpushare_allocator allocator, uint64_t bytes,
                                  gpushare_stream stream, gpushare_device_ptr* pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_BORROW(on, stream);
    GPUSHARE_NOT_NULL(pointer);
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, from->Allocate({.bytes = bytes, .order = {.stream = on}}));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_free_on(gpushare_allocator allocator, gpushare_device_ptr pointer,
                                 gpushare_stream stream) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_BORROW(on, stream);
    return from->Free(pointer, {.stream = on});
  });
}

gpushare_status gpushare_alloc_with(gpushare_allocator allocator, uint64_t bytes,
                                    const gpushare_alloc_options* options,
                                    gpushare_device_ptr* pointer) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    GPUSHARE_NOT_NULL(pointer);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_alloc_options known,
                              ReadStruct(options, "options", /*optional=*/true));
    constexpr uint32_t kAll = GPUSHARE_ALLOC_NATIVE | GPUSHARE_ALLOC_TIMEOUT;
    if ((known.set & ~kAll) != 0) {
      return absl::InvalidArgumentError(
          "'options': 'set' names fields that this library does not know");
    }
    const bool by_native = (known.set & GPUSHARE_ALLOC_NATIVE) != 0;
    Allocator::Request request{.bytes = bytes, .alignment = known.alignment};
    if ((known.set & GPUSHARE_ALLOC_TIMEOUT) != 0) request.timeout_ns = known.timeout_ns;
    std::shared_ptr<Stream> keeps;
    if (known.stream != nullptr) {
      if (by_native) {
        return absl::InvalidArgumentError("'options': 'stream' and 'native' are both given");
      }
      GPUSHARE_BORROW(on, known.stream);
      request.order.stream = on;
    } else if (by_native) {
      GPUSHARE_ASSIGN_OR_RETURN(request.order, from->OrderOf(known.native, &keeps));
    }
    GPUSHARE_ASSIGN_OR_RETURN(*pointer, from->Allocate(request));
    return absl::OkStatus();
  });
}

gpushare_status gpushare_free_native(gpushare_allocator allocator, gpushare_device_ptr pointer,
                                     struct CUstream_st* native) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(from, allocator);
    std::shared_ptr<Stream> keeps;
    GPUSHARE_ASSIGN_OR_RETURN(const MemoryOrder order, from->OrderOf(native, &keeps));
    return from->Free(pointer, order);
  });
}

gpushare_status gpushare_allocator_trim(gpushare_allocator allocator, uint64_t bytes) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(of, allocator);
    return of->Trim(bytes);
  });
}

gpushare_status gpushare_allocator_cancel_waits(gpushare_allocator allocator) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(of, allocator);
    of->CallOffWaits();
    return absl::OkStatus();
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
