// SPDX-License-Identifier: Apache-2.0
// A permit for code that makes its own launches, behind gpushare_lease.
//
// The gate does not know nested leases. The Gpu keeps which thread holds a lease, so that a further lease of the same virtual
// device does not wait, and one of another virtual device is refused before the thread could wait for itself. All leases of a
// thread are one lease at the gate, on the streams of all of them, until the last is released, in any order.
#ifndef GPUSHARE_DEVICE_LEASE_LEASE_H_
#define GPUSHARE_DEVICE_LEASE_LEASE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "base/time.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "gate/engine.h"

namespace gpushare::device {

struct LeaseRequest {
  bool exclusive = false;
  bool any_thread = false;  // belongs to no thread
  Nanos hint = Micros(100);
  Nanos maximum = Seconds(1);
  Time deadline = kNever;
  std::vector<std::shared_ptr<Stream>> streams;
  bool held_back = false;                         // for a gang: the maximum counts from Begin()
  const std::atomic<bool>* called_off = nullptr;  // see gate::LeaseRequest
};

// The common state of the leases that a thread holds at a time.
struct HeldLease {
  uint64_t id = 0;  // the gate's number; constant once the first lease has been acquired
  base::Mutex mutex;
  std::vector<std::shared_ptr<Stream>> streams ABSL_GUARDED_BY(mutex);
};

class Lease {
 public:
  static absl::StatusOr<std::shared_ptr<Lease>> Acquire(std::shared_ptr<VirtualDevice> device,
                                                        LeaseRequest request);
  // Whether all streams belong to the device.
  static absl::Status CheckStreams(const VirtualDevice& device,
                                   const std::vector<std::shared_ptr<Stream>>& streams);
  ~Lease();  // releases

  void Begin();

  gate::Gate::LeaseResult Release();

 private:
  void Cover(std::vector<std::shared_ptr<Stream>> streams);
  void Extend(std::vector<std::shared_ptr<Stream>> streams);
  Lease(std::shared_ptr<VirtualDevice> device, uint64_t thread)
      : device_(std::move(device)), thread_(thread) {}

  const std::shared_ptr<VirtualDevice> device_;
  const uint64_t thread_;  // the thread that acquired it; 0: none
  std::shared_ptr<HeldLease> lease_;
  bool inner_ = false;  // the thread already held a lease
  bool held_ = false;
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_LEASE_LEASE_H_
