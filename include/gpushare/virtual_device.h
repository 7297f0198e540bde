// SPDX-License-Identifier: Apache-2.0
// A tenant's share of a GPU.
//
//   absl::StatusOr<VirtualDevice> device =
//       VirtualDevice::Create(*gpu, *tenant, "memory=8GiB,compute=30%");
//   absl::StatusOr<Allocator> allocator = Allocator::Create(*device);
//   absl::StatusOr<Stream> stream = Stream::Create(*device);
//   ...
//   device->Resize("cap=50%");             // at once, for later launches
//
// Create() does admission control: the guarantees of a GPU's virtual devices never exceed the device,
// nor their quotas its memory less the reserve. Errors: ResourceExhausted says what would fit;
// AlreadyExists: the tenant has a virtual device on this GPU; InvalidArgument and Unimplemented as in
// spec.h. Threading: thread-safe.
//
// Streams and allocators keep the share alive: it is given back when the last of them is destroyed.
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

  // The virtual device to which work of the calling thread on `stream` (null: on no stream) belongs; see tenant.h.
  static absl::StatusOr<VirtualDevice> Resolve(const Gpu& gpu, CUstream_st* stream = nullptr) {
    gpushare_vdev device = nullptr;
    const gpushare_status code = gpushare_gpu_resolve(gpu.handle(), nullptr, stream, &device);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return VirtualDevice(device);
  }
  // Attributes work to this virtual device if nothing else attributes it and `context` is the thread's current context.
  absl::Status BindContext(const Gpu& gpu, CUctx_st* context) const {
    // A null handle would end the present binding.
    if (handle_.get() == nullptr) return internal::NullHandle("virtual device");
    return internal::ToStatus(gpushare_gpu_bind_context(gpu.handle(), context, handle_.get()));
  }

  // Changes what `spec` gives and keeps the rest. If the new memory limit is below the memory in use,
  // nothing is taken away; allocations are refused until the use has fallen below the limit. A new
  // priority takes effect at once at the gate; existing streams keep the CUDA priority with which they
  // were made, since the driver cannot change it.
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

  // The CUcontext in which streams for Stream::Bind() have to be made: see gpushare_vdev_context(). Null if the virtual
  // device is closed.
  CUctx_st* native_context() const {
    CUctx_st* context = nullptr;
    static_cast<void>(gpushare_vdev_context(handle_.get(), &context));
    return context;
  }

  // Holds launches, leases and copies until Resume(); work that the device already has runs on.
  //
  // Memory of AllocationStrategy::kSwappable leaves the device meanwhile, and the quota has room for it again:
  //
  //   ASSERT(device.Suspend().ok());   // waits for what runs, copies to the host
  //   ...                              // others have the memory
  //   ASSERT(device.Resume().ok());    // at the same addresses
  //
  // An error of Suspend(): it is suspended, and some of that memory stays on the device (FailedPrecondition: the calling
  // thread holds a lease of it; DeadlineExceeded: its work goes on, or, where it had some on streams that gpushare does not
  // know, such as under a lease without streams, anything in its context). Of Resume(): it stays suspended, all of that
  // memory is the host's (ResourceExhausted, DeadlineExceeded: there is no room for it). Either may be called again.
  absl::Status Suspend() const { return internal::ToStatus(gpushare_vdev_suspend(handle_.get())); }
  absl::Status Resume() const { return internal::ToStatus(gpushare_vdev_resume(handle_.get())); }

  // `reclaim` is called when others want back memory that this virtual device has borrowed beyond `memory` (with
  // `memory_cap`). It frees memory of this virtual device and returns whether it did; it may then be called again, at most
  // 16 times for one allocation. It runs on the threads of those that want the memory, possibly several at a time, without
  // a lock of gpushare. An exception counts as false. Null: no function is called.
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
          // Must not affect the allocating call, which is another tenant's.
          const internal::Thrown ignored;
          return internal::CallBack("virtual device: 'reclaim'", 0, [&] {
            return (*static_cast<Reclaim*>(context))(Bytes(bytes)) ? 1 : 0;
          });
        },
        owned.get(), [](void* context) { delete static_cast<Reclaim*>(context); });
    // Otherwise `owned` still deletes it.
    if (code == GPUSHARE_OK) static_cast<void>(owned.release());
    return internal::ToStatus(code);
  }

  // Free and total memory within the tenant's quota.
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
  // Takes ownership of a handle from the C interface.
  static VirtualDevice Adopt(gpushare_vdev handle) { return VirtualDevice(handle); }

 private:
  explicit VirtualDevice(gpushare_vdev handle) : handle_(handle) {}
  internal::Handle<gpushare_vdev, gpushare_vdev_destroy> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_VIRTUAL_DEVICE_H_
