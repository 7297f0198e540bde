// SPDX-License-Identifier: Apache-2.0
// Leases on several GPUs, all or none, behind gpushare_gang.
//
// Why gangs cannot wait for each other in a circle: each gang acquires in the order of the GPUs' UUIDs, so a gang that waits
// for a GPU holds only GPUs before it. Of all waiting gangs, the one that waits for the last GPU therefore waits for a gang
// that is complete. A gang of a thread that already holds a lease must keep to the order too, or is refused. All other waits
// (for single leases in any order, leases of no thread, a cap, a suspended tenant) are bounded: if members have been held
// for the maximum before the gang is complete, they go back, and acquiring begins anew.
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

  // `request` applies to each member, except for its streams.
  static absl::StatusOr<std::shared_ptr<Gang>> Acquire(std::vector<Member> members,
                                                       const LeaseRequest& request);
  ~Gang();  // releases

  gate::Gate::LeaseResult Release();

 private:
  // One round. DeadlineExceeded also if the first member has been held for the maximum.
  static absl::StatusOr<std::shared_ptr<Gang>> Try(const std::vector<Member>& members,
                                                   const LeaseRequest& request, base::Clock& clock);

  std::vector<std::shared_ptr<Lease>> leases_;  // in the order in which they were acquired
};

}  // namespace gpushare::device

#endif  // GPUSHARE_DEVICE_LEASE_GANG_H_
