// SPDX-License-Identifier: Apache-2.0
#include "device/lease/lease.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "device/process/identity.h"
#include "spec/text.h"

namespace gpushare::device {

namespace {

constexpr uint64_t kNoThread = 0;  // ThreadNumber() begins at 1

}  // namespace

absl::StatusOr<std::shared_ptr<Lease>> Lease::Acquire(std::shared_ptr<VirtualDevice> device,
                                                      LeaseRequest request) {
  for (const std::shared_ptr<Stream>& stream : request.streams) {
    if (&stream->device() != device.get()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "lease: a stream belongs to tenant ", Quoted(stream->device().tenant().name()),
          " on GPU ", stream->device().gpu().ordinal(), ", the lease to ",
          Quoted(device->tenant().name()), " on GPU ", device->gpu().ordinal(),
          "; lease on the streams of one virtual device"));
    }
  }
  const std::shared_ptr<Lease> lease(
      new Lease(std::move(device), request.any_thread ? kNoThread : ThreadNumber()));
  VirtualDevice& owner = *lease->device_;
  Gpu& gpu = owner.gpu();
  VirtualDevice* const holder =
      lease->thread_ == kNoThread ? nullptr : gpu.EnterLease(lease->thread_, &owner);
  if (holder != nullptr) {
    if (holder != &owner) {
      return absl::FailedPreconditionError(
          absl::StrCat("lease: the calling thread holds one of another virtual device on GPU ",
                       gpu.ordinal(), ", and would wait for itself; release that first"));
    }
    lease->inner_ = lease->held_ = true;
    return lease;
  }
  gate::LeaseRequest asked;
  asked.hint = request.hint;
  asked.maximum = request.maximum;
  asked.exclusive = request.exclusive;
  asked.deadline = request.deadline;
  asked.held_back = request.held_back;
  for (const std::shared_ptr<Stream>& stream : request.streams) {
    asked.streams.push_back(stream->stream_gate());
  }
  const ContextScope current(owner.site());
  absl::StatusOr<uint64_t> id =
      current.ok() ? owner.gate().AcquireLease(asked) : absl::StatusOr<uint64_t>(current.status());
  if (!id.ok()) {
    if (lease->thread_ != kNoThread) gpu.LeaveLease(lease->thread_);
    const bool late = id.status().code() == absl::StatusCode::kDeadlineExceeded;
    if (!late) return id.status();
    if (owner.suspended()) return owner.SuspendedTooLong();
    return absl::DeadlineExceededError(absl::StrCat(
        "tenant ", Quoted(owner.tenant().name()), " on GPU ", gpu.ordinal(),
        ": no lease before the deadline, since it was not its turn or another's is "
        "exclusive; wait longer ('timeout'), or raise its share ('weight', 'guarantee' "
        "or 'cap')"));
  }
  lease->id_ = *id;
  lease->held_ = true;
  lease->streams_ = std::move(request.streams);
  for (const std::shared_ptr<Stream>& stream : lease->streams_) stream->EnterLease();
  return lease;
}

Lease::~Lease() { Release(); }

void Lease::Begin() {
  if (held_ && !inner_) device_->gate().BeginLease(id_);
}

gate::Gate::LeaseResult Lease::Release() {
  if (!std::exchange(held_, false) || inner_) return {};
  Gpu& gpu = device_->gpu();
  const ContextScope current(device_->site());
  for (const std::shared_ptr<Stream>& stream : streams_) stream->LeaveLease();
  const gate::Gate::LeaseResult result = device_->gate().ReleaseLease(id_);
  if (thread_ != kNoThread) gpu.LeaveLease(thread_);
  return result;
}

}  // namespace gpushare::device
