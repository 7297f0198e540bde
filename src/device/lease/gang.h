// SPDX-License-Identifier: Apache-2.0
// Leases on several GPUs, all or none, behind gpushare_gang.
//
// Why no circle of gangs that wait for each other can form: each acquires in the order of the GPUs' UUIDs, so who
// waits for a GPU holds only such that come before it, and of all that wait the one that waits for the last GPU
// waits for a gang that is whole. A gang of a thread that holds a lease already keeps to the order too, or is
// refused. What else may be waited for (single leases in any order, leases of no thread, a cap, a suspended tenant)
// is bounded: what has been held for its maximum before the gang is whole goes back, and all begins anew.
#ifndef GPUSHARE_DEVICE_LEASE_GANG_H_
#define GPUSHARE_DEVICE_LEASE_GANG_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "device/lease/lease.h"

namespace gpushare::device {

class Gang {
 public:
  struct Member {
    std::shared_ptr<VirtualDevice> device;
    std::vector<std::shared_ptr<Stream>> streams;
  };

  // `request` is each member's, but for its streams.
  static absl::StatusOr<std::shared_ptr<Gang>> Acquire(std::vector<Member> members,
                                                       const LeaseRequest& request);
  ~Gang();  // releases

  gate::Gate::LeaseResult Release();

 private:
  // One round: DeadlineExceeded also when what was held first has been held for the maximum.
  static absl::StatusOr<std::shared_ptr<Gang>> Try(const std::vector<Member>& members,
                                                   const LeaseRequest& request, base::Clock& clock);

  std::vector<std::shared_ptr<Lease>> leases_;  // in the order in which they were acquired
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_LEASE_GANG_H_
