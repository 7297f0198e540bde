// SPDX-License-Identifier: Apache-2.0
// One share of one GPU.
//
//   absl::StatusOr<VirtualDevice> device =
//       VirtualDevice::Create(*gpu, *tenant, "memory=8GiB,compute=30%");
//   absl::StatusOr<Allocator> allocator = Allocator::Create(*device);
//   absl::StatusOr<Stream> stream = Stream::Create(*device);
//   ...
//   device->Resize("cap=50%");             // at once, for what is launched from now on
//
// Create admits: the guarantees of a GPU's virtual devices never exceed the device, nor their
// quotas its memory less the reserve. Errors: ResourceExhausted says what would fit; AlreadyExists:
// the tenant has one on this GPU; InvalidArgument and Unimplemented as spec.h says. Threading:
// thread-safe.
//
// Streams and allocators keep the share alive: it returns when the last of them is destroyed.
#ifndef GPUSHARE_VIRTUAL_DEVICE_H_
#define GPUSHARE_VIRTUAL_DEVICE_H_

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/gpu.h"
#include "gpushare/internal/callback.h"
#include "gpushare/internal/handle.h"
#include "gpushare/snapshot.h"
#include "gpushare/spec.h"
#include "gpushare/tenant.h"
#include "gpushare/units.h"

struct CUctx_st;
struct CUstream_st;

namespace gpushare {

class VirtualDevice {
 public:
  static absl::StatusOr<VirtualDevice> Create(const Gpu& gpu, const Tenant& tenant,
                                              const VirtualDeviceSpec& spec) {
    const gpushare_spec c = internal::ToC(spec);
    gpushare_vdev device = nullptr;
    const gpushare_status code = gpushare_vdev_create(gpu.handle(), tenant.handle(), &c, &device);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return VirtualDevice(device);
  }
  static absl::StatusOr<VirtualDevice> Create(const Gpu& gpu, const Tenant& tenant,
                                              std::string_view spec) {
    absl::StatusOr<VirtualDeviceSpec> parsed = VirtualDeviceSpec::Parse(spec);
    if (!parsed.ok()) return parsed.status();
    return Create(gpu, tenant, *parsed);
  }

  // Whose is work on `stream` (null: on none) of the calling thread? tenant.h says.
  static absl::StatusOr<VirtualDevice> Resolve(const Gpu& gpu, CUstream_st* stream = nullptr) {
    gpushare_vdev device = nullptr;
    const gpushare_status code = gpushare_gpu_resolve(gpu.handle(), nullptr, stream, &device);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return VirtualDevice(device);
  }
  // Work that nothing else attributes, on threads whose current context this is, is this virtual
  // device's.
  absl::Status BindContext(const Gpu& gpu, CUctx_st* context) const {
    // Which would end the binding that there is.
    if (handle_.get() == nullptr) return internal::NullHandle("virtual device");
    return internal::ToStatus(gpushare_gpu_bind_context(gpu.handle(), context, handle_.get()));
  }

  // Changes what `spec` gives and keeps the rest. Memory below what is in use: nothing is taken
  // away; allocations are refused until use has fallen below the new limit. Another priority counts
  // at once for who waits for whom; the CUDA priority of streams that there are already stays what
  // it was made with, since the driver cannot change it.
  absl::Status Resize(const VirtualDeviceSpec& spec) const {
    const gpushare_spec c = internal::ToC(spec);
    return internal::ToStatus(gpushare_vdev_resize(handle_.get(), &c));
  }
  absl::Status Resize(std::string_view spec) const {
    absl::StatusOr<VirtualDeviceSpec> parsed = VirtualDeviceSpec::Parse(spec);
    if (!parsed.ok()) return parsed.status();
    return Resize(*parsed);
  }
  absl::StatusOr<VirtualDeviceSpec> spec() const {
    gpushare_spec c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_vdev_get_spec(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return internal::FromC(c);
  }

  // The CUcontext in which streams are made that Stream::Bind() takes: see gpushare_vdev_context(). Null when the
  // virtual device is closed.
  CUctx_st* native_context() const {
    CUctx_st* context = nullptr;
    static_cast<void>(gpushare_vdev_context(handle_.get(), &context));
    return context;
  }

  // Holds launches, leases and limited copies until Resume(); what the device has been given runs
  // on.
  absl::Status Suspend() const { return internal::ToStatus(gpushare_vdev_suspend(handle_.get())); }
  absl::Status Resume() const { return internal::ToStatus(gpushare_vdev_resume(handle_.get())); }

  // Asked when others want back what was borrowed beyond `memory` (`memory_cap`): frees memory of this virtual device
  // and returns whether it did, after which it may be asked again, at most 16 times for one allocation. Runs on the
  // threads of those who want it, several at a time, without a lock of gpushare. What it throws counts as false.
  // Null: nobody is asked.
  absl::Status OnReclaim(std::function<bool(Bytes wanted)> reclaim) const {
    using Reclaim = std::function<bool(Bytes)>;
    if (!reclaim) {
      return internal::ToStatus(
          gpushare_vdev_set_reclaim(handle_.get(), nullptr, nullptr, nullptr));
    }
    auto owned = std::make_unique<Reclaim>(std::move(reclaim));
    const gpushare_status code = gpushare_vdev_set_reclaim(
        handle_.get(),
        [](void* context, uint64_t bytes) {
          const internal::Thrown ignored;  // not of the call that asks, which is another tenant's
          return internal::CallBack("virtual device: 'reclaim'", 0, [&] {
            return (*static_cast<Reclaim*>(context))(Bytes(bytes)) ? 1 : 0;
          });
        },
        owned.get(), [](void* context) { delete static_cast<Reclaim*>(context); });
    if (code == GPUSHARE_OK) static_cast<void>(owned.release());  // else nobody has it
    return internal::ToStatus(code);
  }

  // As the tenant is to see it: of its quota.
  struct Memory {
    Bytes free, total;
  };
  absl::StatusOr<Memory> memory() const {
    uint64_t free_bytes = 0, total_bytes = 0;
    const gpushare_status code = gpushare_vdev_memory(handle_.get(), &free_bytes, &total_bytes);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Memory{Bytes(free_bytes), Bytes(total_bytes)};
  }

  absl::StatusOr<VirtualDeviceStats> stats() const {
    gpushare_vdev_stats c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_vdev_get_stats(handle_.get(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return internal::FromC(c);
  }

  gpushare_vdev handle() const { return handle_.get(); }
  // Owns a handle that the C interface gave.
  static VirtualDevice Adopt(gpushare_vdev handle) { return VirtualDevice(handle); }

 private:
  explicit VirtualDevice(gpushare_vdev handle) : handle_(handle) {}
  internal::Handle<gpushare_vdev, gpushare_vdev_destroy> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_VIRTUAL_DEVICE_H_
