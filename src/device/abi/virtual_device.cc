// SPDX-License-Identifier: Apache-2.0
// The C ABI: virtual devices, statistics.
#include "device/share/virtual_device.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "device/abi/c_abi.h"
#include "device/gpu/gpu.h"
#include "device/gpu/snapshot.h"
#include "device/process/runtime.h"
#include "device/process/tenant.h"
#include "device/share/placement.h"
#include "spec/text.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_vdev_create(gpushare_gpu gpu, gpushare_tenant tenant,
                                     const gpushare_spec* spec, gpushare_vdev* vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_SHARE(who, tenant);
    GPUSHARE_NOT_NULL(vdev);
    if (!opened->runtime()->Has(*who)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tenant ", Quoted(who->name()), " is of another runtime than the GPU"));
    }
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec known, ReadStruct(spec, "spec"));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<VirtualDevice> made,
                              VirtualDevice::Create(opened, who, known));
    return NewHandle(vdev, std::move(made));
  });
}

gpushare_status gpushare_gpu_get_room(gpushare_gpu gpu, gpushare_room* room) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    const Room now = opened->room();
    gpushare_room out = {};
    out.memory_total = now.memory_total;
    out.memory_left = now.memory_left;
    out.guarantee_left = now.guarantee_left;
    out.virtual_devices = now.devices;
    return WriteStruct(room, out, "room");
  });
}

gpushare_status gpushare_vdev_place(const gpushare_gpu* gpus, size_t gpu_count,
                                    gpushare_tenant tenant, const gpushare_spec* spec,
                                    int32_t placement, gpushare_vdev* vdev, size_t* index) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(who, tenant);
    GPUSHARE_NOT_NULL(vdev);
    if (gpus == nullptr && gpu_count != 0) {
      return absl::InvalidArgumentError("placement: 'gpus' is null with a count above 0");
    }
    if (placement < GPUSHARE_PLACE_BEST_FIT || placement > GPUSHARE_PLACE_SPREAD) {
      return absl::InvalidArgumentError(absl::StrCat(
          "placement: ", placement, " given, GPUSHARE_PLACE_BEST_FIT to _SPREAD allowed"));
    }
    std::vector<std::shared_ptr<Gpu>> opened;
    for (size_t i = 0; i < gpu_count; ++i) {
      GPUSHARE_SHARE(gpu, gpus[i]);
      if (!gpu->runtime()->Has(*who)) {
        return absl::InvalidArgumentError(absl::StrCat("tenant ", Quoted(who->name()),
                                                       " is of another runtime than GPU number ", i,
                                                       " of the list"));
      }
      if (std::find(opened.begin(), opened.end(), gpu) != opened.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("placement: GPU ", gpu->ordinal(), " is in the list twice"));
      }
      opened.push_back(gpu);
    }
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec known, ReadStruct(spec, "spec"));
    GPUSHARE_ASSIGN_OR_RETURN(Placed placed,
                              Place(opened, who, known, static_cast<Placement>(placement)));
    if (index != nullptr) *index = placed.index;
    return NewHandle(vdev, std::move(placed.device));
  });
}

gpushare_status gpushare_vdev_destroy(gpushare_vdev vdev) { return Destroy(vdev); }

gpushare_status gpushare_vdev_resize(gpushare_vdev vdev, const gpushare_spec* spec) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_spec known, ReadStruct(spec, "spec"));
    return device->Resize(known);
  });
}

gpushare_status gpushare_vdev_get_spec(gpushare_vdev vdev, gpushare_spec* spec) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    return WriteStruct(spec, device->spec(), "spec");
  });
}

gpushare_status gpushare_vdev_context(gpushare_vdev vdev, struct CUctx_st** context) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(context);
    *context = device->native_context();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_vdev_suspend(gpushare_vdev vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    return device->Suspend();
  });
}

gpushare_status gpushare_vdev_resume(gpushare_vdev vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    return device->Resume();
  });
}

gpushare_status gpushare_vdev_set_reclaim(gpushare_vdev vdev,
                                          int (*reclaim)(void* context, uint64_t bytes),
                                          void* context, void (*release)(void* context)) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    if (reclaim == nullptr) {
      device->SetReclaimer(nullptr);
    } else {
      device->SetReclaimer(
          std::make_shared<const VirtualDevice::Reclaimer>(reclaim, context, release));
    }
    return absl::OkStatus();
  });
}

gpushare_status gpushare_vdev_memory(gpushare_vdev vdev, uint64_t* free_bytes,
                                     uint64_t* total_bytes) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(device, vdev);
    GPUSHARE_NOT_NULL(free_bytes);
    GPUSHARE_NOT_NULL(total_bytes);
    device->Memory(free_bytes, total_bytes);
    return absl::OkStatus();
  });
}

gpushare_status gpushare_gpu_resolve(gpushare_gpu gpu, gpushare_vdev argument,
                                     struct CUstream_st* stream, gpushare_vdev* vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(vdev);
    if (argument != nullptr) {
      GPUSHARE_SHARE(given, argument);
      if (&given->gpu() != opened.get()) {
        return absl::InvalidArgumentError("the virtual device is on another GPU");
      }
      return NewHandle(vdev, given);
    }
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<VirtualDevice> device, opened->Resolve(stream));
    return NewHandle(vdev, std::move(device));
  });
}

gpushare_status gpushare_gpu_bind_context(gpushare_gpu gpu, struct CUctx_st* context,
                                          gpushare_vdev vdev) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(opened, gpu);
    GPUSHARE_NOT_NULL(context);
    if (vdev == nullptr) {
      opened->BindContext(context, nullptr);
      return absl::OkStatus();
    }
    GPUSHARE_SHARE(device, vdev);
    if (&device->gpu() != opened.get()) {
      return absl::InvalidArgumentError("the virtual device is on another GPU");
    }
    opened->BindContext(context, device);
    return absl::OkStatus();
  });
}

gpushare_status gpushare_vdev_get_stats(gpushare_vdev vdev, gpushare_vdev_stats* stats) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(stats);
    return WriteStruct(stats, device->Stats(device->gpu().clock().Now()), "stats");
  });
}

gpushare_status gpushare_snapshot_take(gpushare_runtime runtime, gpushare_snapshot* snapshot) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(owner, runtime);
    GPUSHARE_NOT_NULL(snapshot);
    return NewHandle(snapshot, Snapshot::Take(*owner));
  });
}

gpushare_status gpushare_snapshot_size(gpushare_snapshot snapshot, size_t* count) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(taken, snapshot);
    GPUSHARE_NOT_NULL(count);
    *count = taken->stats.size();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_snapshot_get(gpushare_snapshot snapshot, size_t i,
                                      gpushare_vdev_stats* stats) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(taken, snapshot);
    if (i >= taken->stats.size()) {
      return absl::OutOfRangeError(
          absl::StrCat("snapshot: ", i, " asked, there are ", taken->stats.size()));
    }
    return WriteStruct(stats, taken->stats[i], "stats");
  });
}

gpushare_status gpushare_snapshot_destroy(gpushare_snapshot snapshot) { return Destroy(snapshot); }
