// SPDX-License-Identifier: Apache-2.0
// Chooses one of several GPUs for a virtual device.
//
//   absl::StatusOr<Placed> placed = Place({&*first, &*second}, *tenant, "memory=8GiB,compute=30%",
//                                         Placement::kBinpack);
//   if (!placed.ok()) return placed.status();   // for each GPU: why not, and what would fit
//   Gpu& chosen = *gpus[placed->index];
//   absl::StatusOr<Allocator> allocator = Allocator::Create(placed->device);
//
// A tenant may have a virtual device on each GPU: call Place() again for the next one.
//
// Errors: ResourceExhausted if no GPU has room (ErrorDetail: the limit that no GPU can meet, and the most that is
// left); AlreadyExists if the tenant is on every GPU; InvalidArgument. Threading: thread-safe; if two calls want the
// last room on a GPU, one gets it and the other the next best GPU.
#ifndef GPUSHARE_PLACEMENT_H_
#define GPUSHARE_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/gpu.h"
#include "gpushare/spec.h"
#include "gpushare/tenant.h"
#include "gpushare/units.h"
#include "gpushare/virtual_device.h"

namespace gpushare {

enum class Placement {
  kBestFit = GPUSHARE_PLACE_BEST_FIT,  // the GPU with the least left over of what the spec asks for
  kBinpack = GPUSHARE_PLACE_BINPACK,   // the fullest GPU, so that others stay empty
  kSpread = GPUSHARE_PLACE_SPREAD,     // the emptiest GPU
};

struct Placed {
  VirtualDevice device;
  size_t index = 0;  // index of its GPU in the list
};

inline absl::StatusOr<Placed> Place(absl::Span<const Gpu* const> gpus, const Tenant& tenant,
                                    const VirtualDeviceSpec& spec,
                                    Placement placement = Placement::kBestFit) {
  std::vector<gpushare_gpu> handles;
  for (const Gpu* gpu : gpus) handles.push_back(gpu == nullptr ? nullptr : gpu->handle());
  const gpushare_spec c = internal::ToC(spec);
  gpushare_vdev device = nullptr;
  size_t index = 0;
  const gpushare_status code =
      gpushare_vdev_place(handles.data(), handles.size(), tenant.handle(), &c,
                          static_cast<int32_t>(placement), &device, &index);
  if (code != GPUSHARE_OK) return internal::ToStatus(code);
  return Placed{VirtualDevice::Adopt(device), index};
}
inline absl::StatusOr<Placed> Place(absl::Span<const Gpu* const> gpus, const Tenant& tenant,
                                    std::string_view spec,
                                    Placement placement = Placement::kBestFit) {
  absl::StatusOr<VirtualDeviceSpec> parsed = VirtualDeviceSpec::Parse(spec);
  if (!parsed.ok()) return parsed.status();
  return Place(gpus, tenant, *parsed, placement);
}

// What a GPU can still promise.
struct Room {
  Bytes memory_total;  // the GPU's memory less the runtime's reserve
  Bytes memory_left;   // neither promised as a quota nor in use without one
  Share guarantee_left;
  uint64_t virtual_devices = 0;
};

inline absl::StatusOr<Room> RoomOf(const Gpu& gpu) {
  gpushare_room c = {};
  c.struct_size = sizeof(c);
  const gpushare_status code = gpushare_gpu_get_room(gpu.handle(), &c);
  if (code != GPUSHARE_OK) return internal::ToStatus(code);
  return Room{Bytes(c.memory_total), Bytes(c.memory_left), Share::Fraction(c.guarantee_left),
              c.virtual_devices};
}

}  // namespace gpushare

#endif  // GPUSHARE_PLACEMENT_H_
