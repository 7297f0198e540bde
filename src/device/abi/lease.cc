// SPDX-License-Identifier: Apache-2.0
// The C ABI: leases, of one GPU and of several.
#include "device/lease/lease.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/abi/c_abi.h"
#include "device/lease/gang.h"
#include "device/lease/pending_lease.h"
#include "device/share/virtual_device.h"
#include "device/stream/stream.h"
#include "spec/text.h"

using namespace gpushare;
using namespace gpushare::device;

namespace {

// Reads the options that also apply to each member of a gang: everything except the streams.
absl::StatusOr<LeaseRequest> ReadRequest(const gpushare_lease_options& known, base::Clock& clock) {
  LeaseRequest request;
  request.exclusive = known.exclusive != 0;
  request.any_thread = known.any_thread != 0;
  if (known.hint_ns != 0) request.hint = Nanos(known.hint_ns);
  request.maximum =
      known.maximum_ns != 0 ? Nanos(known.maximum_ns) : std::max(request.maximum, request.hint);
  if (request.hint <= Nanos(0) || request.hint > gate::kLongestHint ||
      request.maximum < request.hint) {
    return absl::InvalidArgumentError(absl::StrCat(
        "lease: a hint of ", spec::FormatDuration(request.hint), " and a maximum of ",
        spec::FormatDuration(request.maximum), " given; allowed: a hint above 0 and up to ",
        spec::FormatDuration(gate::kLongestHint), ", a maximum of the hint or more"));
  }
  if (known.timeout_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat("lease: a timeout of ", known.timeout_ns,
                                                   "ns given, 0 to GPUSHARE_FOREVER allowed"));
  }
  if (known.timeout_ns != GPUSHARE_FOREVER) {
    const Time now = clock.Now();
    // A timeout of zero still leaves the arbiter time to answer.
    const Nanos timeout = std::max(Nanos(known.timeout_ns), Micros(10));
    if (timeout < kNever - now) request.deadline = now + timeout;
  }
  return request;
}

absl::StatusOr<std::vector<std::shared_ptr<Stream>>> ReadStreams(const gpushare_stream* streams,
                                                                 size_t count) {
  if (streams == nullptr && count != 0) {
    return absl::InvalidArgumentError("lease: 'streams' is null with a count above 0");
  }
  std::vector<std::shared_ptr<Stream>> shared;
  for (size_t i = 0; i < count; ++i) {
    GPUSHARE_SHARE(stream, streams[i]);
    shared.push_back(stream);
  }
  return shared;
}

absl::Status WriteResult(gpushare_lease_result* result, const gate::Gate::LeaseResult& released) {
  if (result == nullptr) return absl::OkStatus();
  gpushare_lease_result out = {};
  out.overrun = released.overrun ? 1 : 0;
  out.held_ns = released.held.count();
  return WriteStruct(result, out, "result");
}

}  // namespace

gpushare_status gpushare_lease_acquire(gpushare_vdev vdev, const gpushare_lease_options* options,
                                       gpushare_lease* lease) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(lease);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_lease_options known, ReadStruct(options, "options"));
    GPUSHARE_ASSIGN_OR_RETURN(LeaseRequest request, ReadRequest(known, device->gpu().clock()));
    GPUSHARE_ASSIGN_OR_RETURN(request.streams, ReadStreams(known.streams, known.stream_count));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Lease> acquired,
                              Lease::Acquire(device, std::move(request)));
    return NewHandle(lease, std::move(acquired));
  });
}

gpushare_status gpushare_lease_release(gpushare_lease lease, gpushare_lease_result* result) {
  return Guard([&]() -> absl::Status {
    if (Handles::Borrow(lease) == nullptr) return BadHandle(lease);
    // Checked before the lease ends, since a call that fails must change nothing.
    if (result != nullptr) GPUSHARE_RETURN_IF_ERROR(CheckStruct(result, "result"));
    const std::shared_ptr<Lease> held = Handles::Take(lease);
    if (held == nullptr) return BadHandle(lease);
    return WriteResult(result, held->Release());
  });
}

gpushare_status gpushare_lease_request_create(gpushare_vdev vdev,
                                              const gpushare_lease_options* options,
                                              void (*done)(void* context), void* context,
                                              gpushare_lease_request* request) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(request);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_lease_options known, ReadStruct(options, "options"));
    GPUSHARE_ASSIGN_OR_RETURN(LeaseRequest asked, ReadRequest(known, device->gpu().clock()));
    GPUSHARE_ASSIGN_OR_RETURN(asked.streams, ReadStreams(known.streams, known.stream_count));
    std::function<void()> call;
    if (done != nullptr) call = [done, context] { done(context); };
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<PendingLease> pending,
                              PendingLease::Ask(device, std::move(asked), std::move(call)));
    return NewHandle(request, std::move(pending));
  });
}

gpushare_status gpushare_lease_request_descriptor(gpushare_lease_request request, int* descriptor) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(pending, request);
    GPUSHARE_NOT_NULL(descriptor);
    GPUSHARE_ASSIGN_OR_RETURN(*descriptor, pending->Descriptor());
    return absl::OkStatus();
  });
}

gpushare_status gpushare_lease_request_take(gpushare_lease_request request, gpushare_lease* lease) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(pending, request);
    GPUSHARE_NOT_NULL(lease);
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Lease> taken, pending->Take());
    return NewHandle(lease, std::move(taken));
  });
}

gpushare_status gpushare_lease_request_cancel(gpushare_lease_request request) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_BORROW(pending, request);
    pending->CallOff();
    return absl::OkStatus();
  });
}

gpushare_status gpushare_lease_request_destroy(gpushare_lease_request request) {
  // Borrowed, not shared: on its own thread the request cannot be destroyed meanwhile, and that thread must not hold the
  // last reference.
  PendingLease* const own = Handles::Borrow(request);
  if (own == nullptr || !own->OnItsThread()) return Destroy(request);
  return Guard([&]() -> absl::Status {
    own->EndElsewhere([&] { return Handles::Take(request); });
    return absl::OkStatus();
  });
}

gpushare_status gpushare_gang_acquire(const gpushare_gang_member* members, size_t member_count,
                                      const gpushare_lease_options* options, gpushare_gang* gang) {
  return Guard([&]() -> absl::Status {
    if (member_count == 0) {
      return absl::InvalidArgumentError("gang: it has no members; one for each GPU is wanted");
    }
    GPUSHARE_NOT_NULL(members);
    GPUSHARE_NOT_NULL(gang);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_lease_options known, ReadStruct(options, "options"));
    if (known.stream_count != 0) {
      return absl::InvalidArgumentError(
          "gang: 'streams' of the options is not empty; give each member its own");
    }
    std::vector<Gang::Member> all;
    // The caller's array has structs of the caller's version, which may differ in size.
    const auto* at = reinterpret_cast<const unsigned char*>(members);
    for (size_t i = 0; i < member_count; ++i, at += members->struct_size) {
      GPUSHARE_ASSIGN_OR_RETURN(
          const gpushare_gang_member member,
          ReadStruct(reinterpret_cast<const gpushare_gang_member*>(at), "members"));
      GPUSHARE_SHARE(device, member.vdev);
      GPUSHARE_ASSIGN_OR_RETURN(auto streams, ReadStreams(member.streams, member.stream_count));
      all.push_back({device, std::move(streams)});
    }
    GPUSHARE_ASSIGN_OR_RETURN(const LeaseRequest request,
                              ReadRequest(known, all[0].device->gpu().clock()));
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Gang> acquired,
                              Gang::Acquire(std::move(all), request));
    return NewHandle(gang, std::move(acquired));
  });
}

gpushare_status gpushare_gang_release(gpushare_gang gang, gpushare_lease_result* result) {
  return Guard([&]() -> absl::Status {
    if (Handles::Borrow(gang) == nullptr) return BadHandle(gang);
    if (result != nullptr) GPUSHARE_RETURN_IF_ERROR(CheckStruct(result, "result"));
    const std::shared_ptr<Gang> held = Handles::Take(gang);
    if (held == nullptr) return BadHandle(gang);
    return WriteResult(result, held->Release());
  });
}
