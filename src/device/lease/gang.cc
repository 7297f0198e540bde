// SPDX-License-Identifier: Apache-2.0
#include "device/lease/gang.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/process/identity.h"
#include "device/process/runtime.h"

namespace gpushare::device {
namespace {

const std::string& Uuid(const Gpu& gpu) { return gpu.info().uuid; }

absl::Status CheckMembers(const std::vector<Gang::Member>& members) {
  // Sorted, so members on the same GPU are neighbours.
  for (size_t i = 1; i < members.size(); ++i) {
    const Gpu& gpu = members[i].device->gpu();
    if (&gpu == &members[i - 1].device->gpu()) {
      return absl::InvalidArgumentError(absl::StrCat("gang: two of its members are on GPU ",
                                                     gpu.ordinal(), "; give it one for each GPU"));
    }
    if (gpu.runtime() != members[0].device->gpu().runtime()) {
      return absl::InvalidArgumentError("gang: its members are of different runtimes");
    }
  }
  return absl::OkStatus();
}

// Whether the leases that the thread already holds keep to the order of acquisition.
absl::Status CheckOrder(const std::vector<Gang::Member>& members, uint64_t thread) {
  const auto first = std::find_if(members.begin(), members.end(), [thread](const auto& member) {
    return member.device->gpu().LeaseOf(thread) == nullptr;
  });
  if (first == members.end()) return absl::OkStatus();
  const Gpu& wanted = first->device->gpu();
  for (const std::shared_ptr<Gpu>& held : wanted.runtime()->OpenGpus()) {
    if (held->LeaseOf(thread) != nullptr && Uuid(*held) > Uuid(wanted)) {
      return absl::FailedPreconditionError(
          absl::StrCat("gang: the calling thread holds a lease on GPU ", held->ordinal(),
                       ", which comes after GPU ", wanted.ordinal(),
                       " in the order of UUIDs; two such threads could wait for each other: "
                       "release it first, or "
                       "lease both in one gang"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<Gang>> Gang::Acquire(std::vector<Member> members,
                                                    const LeaseRequest& request) {
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return Uuid(a.device->gpu()) < Uuid(b.device->gpu());
  });
  GPUSHARE_RETURN_IF_ERROR(CheckMembers(members));
  if (!request.any_thread) GPUSHARE_RETURN_IF_ERROR(CheckOrder(members, ThreadNumber()));
  base::Clock& clock = members[0].device->gpu().clock();
  for (;;) {
    absl::StatusOr<std::shared_ptr<Gang>> gang = Try(members, request, clock);
    // Members that have been held for the maximum while others are missing go back, and acquiring begins anew. So a gang that
    // waits for a tenant's cap, a suspended tenant or a high priority does not keep others out.
    if (gang.status().code() != absl::StatusCode::kDeadlineExceeded ||
        clock.Now() >= request.deadline) {
      return gang;
    }
  }
}

absl::StatusOr<std::shared_ptr<Gang>> Gang::Try(const std::vector<Member>& members,
                                                const LeaseRequest& request, base::Clock& clock) {
  auto gang = std::make_shared<Gang>();
  LeaseRequest asked = request;
  asked.held_back = true;
  for (const Member& member : members) {
    asked.streams = member.streams;
    GPUSHARE_ASSIGN_OR_RETURN(std::shared_ptr<Lease> lease, Lease::Acquire(member.device, asked));
    if (gang->leases_.empty()) {
      asked.deadline = std::min(request.deadline, After(clock.Now(), request.maximum));
    }
    gang->leases_.push_back(std::move(lease));
  }
  for (const std::shared_ptr<Lease>& lease : gang->leases_) lease->Begin();
  return gang;
}

Gang::~Gang() { Release(); }

gate::Gate::LeaseResult Gang::Release() {
  gate::Gate::LeaseResult all;
  while (!leases_.empty()) {
    const gate::Gate::LeaseResult one = leases_.back()->Release();
    all.held = std::max(all.held, one.held);
    all.overrun |= one.overrun;
    leases_.pop_back();
  }
  return all;
}

}  // namespace gpushare::device
