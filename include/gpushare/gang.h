// SPDX-License-Identifier: Apache-2.0
// Leases on several GPUs, all or none.
//
//   absl::StatusOr<Gang> gang = Gang::Acquire(
//       {{&*device_on_0, {&*stream_on_0}}, {&*device_on_1, {&*stream_on_1}}}, {.exclusive = true});
//   if (!gang.ok()) return gang.status();
//   AllReduce(stream_on_0->native().value(), stream_on_1->native().value());
//   gang->Release().IgnoreError();   // or the end of the scope
//
// A gang is for work whose parts wait for each other, such as collective kernels. With single leases two tenants may
// each get one GPU and wait forever for the other's. Members are acquired in the order of the GPUs' UUIDs, whatever the
// order given, so that gangs cannot wait for each other in a circle. The timeout applies to the whole gang; when it
// passes, nothing is held. While the gang waits for its other members, an exclusive member keeps its GPU and is charged
// for it. If the gang is not complete after `maximum`, everything goes back and acquiring begins anew.
//
// Errors: DeadlineExceeded after `timeout`; InvalidArgument for two members on one GPU; FailedPrecondition if the
// calling thread holds a lease of another tenant on one of the GPUs, or a lease on a GPU that comes later in the order
// (which could lead to a circle). Threading: may be released by any thread.
#ifndef GPUSHARE_GANG_H_
#define GPUSHARE_GANG_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "gpushare/c/gpushare.h"
#include "gpushare/error.h"
#include "gpushare/internal/handle.h"
#include "gpushare/lease.h"
#include "gpushare/stream.h"
#include "gpushare/virtual_device.h"

namespace gpushare {

struct GangMember {
  const VirtualDevice* device = nullptr;  // one for each GPU
  // The streams on which the work will run and be measured. None: the time that the gang is held is charged.
  std::vector<const Stream*> streams = {};
};

class Gang {
 public:
  // `options` apply to each member; `streams` must be empty, and `maximum` counts from when the gang is complete.
  static absl::StatusOr<Gang> Acquire(const std::vector<GangMember>& members,
                                      const LeaseOptions& options = {}) {
    std::vector<std::vector<gpushare_stream>> streams;
    std::vector<gpushare_gang_member> c_members;
    for (const GangMember& member : members) {
      streams.push_back(internal::Handles(member.streams));
      c_members.push_back({.struct_size = sizeof(gpushare_gang_member),
                           .reserved = 0,
                           .vdev = member.device == nullptr ? nullptr : member.device->handle(),
                           .streams = streams.back().data(),
                           .stream_count = streams.back().size()});
    }
    gpushare_lease_options c = internal::ToC(options);
    c.stream_count = options.streams.size();  // the call refuses any
    gpushare_gang gang = nullptr;
    const gpushare_status code =
        gpushare_gang_acquire(c_members.data(), c_members.size(), &c, &gang);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return Gang(gang);
  }

  // Does not wait. InvalidArgument if the gang has been released or moved from. `held` counts from when the gang was
  // complete; `overrun`: a member took more than the maximum.
  absl::StatusOr<LeaseResult> Release() {
    gpushare_lease_result c = {};
    c.struct_size = sizeof(c);
    const gpushare_status code = gpushare_gang_release(handle_.release(), &c);
    if (code != GPUSHARE_OK) return internal::ToStatus(code);
    return LeaseResult{c.overrun != 0, absl::Nanoseconds(c.held_ns)};
  }

 private:
  static gpushare_status Drop(gpushare_gang gang) { return gpushare_gang_release(gang, nullptr); }
  explicit Gang(gpushare_gang handle) : handle_(handle) {}
  internal::Handle<gpushare_gang, Drop> handle_;
};

}  // namespace gpushare

#endif  // GPUSHARE_GANG_H_
