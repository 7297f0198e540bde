// SPDX-License-Identifier: Apache-2.0
// The C ABI: leases.
#include "device/c_abi.h"
#include "device/lease.h"
#include "device/stream.h"
#include "device/text.h"
#include "device/virtual_device.h"

using namespace gpushare;
using namespace gpushare::device;

gpushare_status gpushare_lease_acquire(gpushare_vdev vdev, const gpushare_lease_options* options,
                                       gpushare_lease* lease) {
  return Guard([&]() -> absl::Status {
    GPUSHARE_SHARE(device, vdev);
    GPUSHARE_NOT_NULL(lease);
    GPUSHARE_ASSIGN_OR_RETURN(const gpushare_lease_options known, ReadStruct(options, "options"));
    LeaseRequest request;
    request.exclusive = known.exclusive != 0;
    request.any_thread = known.any_thread != 0;
    if (known.hint_ns != 0) request.hint = Nanos(known.hint_ns);
    request.maximum =
        known.maximum_ns != 0 ? Nanos(known.maximum_ns) : std::max(request.maximum, request.hint);
    if (request.hint <= Nanos(0) || request.hint > gate::kLongestHint ||
        request.maximum < request.hint) {
      return absl::InvalidArgumentError(absl::StrCat(
          "lease: a hint of ", FormatDuration(request.hint), " and a maximum of ",
          FormatDuration(request.maximum), " given; allowed: a hint above 0 and up to ",
          FormatDuration(gate::kLongestHint), ", a maximum of the hint or more"));
    }
    if (known.timeout_ns < 0) {
      return absl::InvalidArgumentError(absl::StrCat("lease: a timeout of ", known.timeout_ns,
                                                     "ns given, 0 to GPUSHARE_FOREVER allowed"));
    }
    if (known.timeout_ns != GPUSHARE_FOREVER) {
      const Time now = device->gpu().clock().Now();
      // "Does not wait" leaves the arbiter time to answer.
      const Nanos timeout = std::max(Nanos(known.timeout_ns), Micros(10));
      if (timeout < kNever - now) request.deadline = now + timeout;
    }
    if (known.streams == nullptr && known.stream_count != 0) {
      return absl::InvalidArgumentError("lease: 'streams' is null with a count above 0");
    }
    for (size_t i = 0; i < known.stream_count; ++i) {
      GPUSHARE_SHARE(stream, known.streams[i]);
      request.streams.push_back(stream);
    }
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Lease> acquired,
                              Lease::Acquire(device, std::move(request)));
    return NewHandle(lease, std::move(acquired));
  });
}

gpushare_status gpushare_lease_release(gpushare_lease lease, gpushare_lease_result* result) {
  return Guard([&]() -> absl::Status {
    if (Handles::Borrow(lease) == nullptr) return BadHandle(lease);
    // Before the lease ends: a call that fails changes nothing.
    if (result != nullptr) GPUSHARE_RETURN_IF_ERROR(CheckStruct(result, "result"));
    const std::shared_ptr<Lease> held = Handles::Take(lease);
    if (held == nullptr) return BadHandle(lease);
    const gate::Gate::LeaseResult released = held->Release();
    if (result == nullptr) return absl::OkStatus();
    gpushare_lease_result out = {};
    out.overrun = released.overrun ? 1 : 0;
    out.held_ns = released.held.count();
    return WriteStruct(result, out, "result");
  });
}
