// SPDX-License-Identifier: Apache-2.0
#include "device/lease/lease.h"

#include <new>

#include "absl/strings/str_cat.h"
#include "base/interrupt.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "device/process/identity.h"
#include "spec/text.h"

namespace gpushare::device {

namespace {

constexpr uint64_t kNoThread = 0;  // ThreadNumber() begins at 1

// While a thread waits for a lease, it counts as holding it, except in the callback that decides whether to go on waiting: a
// lease taken there is separate. When the wait ends without the lease, also by an exception, it counts as holding it no more.
class HoldsWhileItWaits {
 public:
  HoldsWhileItWaits(Gpu& gpu, uint64_t thread, VirtualDevice& device,
                    std::shared_ptr<HeldLease> lease)
      : gpu_(gpu),
        thread_(thread),
        device_(device),
        lease_(std::move(lease)),
        own_(base::ExchangeInterrupt({})) {
    base::ExchangeInterrupt(
        own_.asked == nullptr || thread == kNoThread ? own_ : base::Interrupt{&Ask, this});
  }
  ~HoldsWhileItWaits() {
    base::ExchangeInterrupt(own_);
    if (thread_ != kNoThread && entered_ && !holds_) gpu_.LeaveLease(thread_);
  }
  HoldsWhileItWaits(const HoldsWhileItWaits&) = delete;
  HoldsWhileItWaits& operator=(const HoldsWhileItWaits&) = delete;

  // It has the lease, and Lease::Release() ends that.
  void Holds() { holds_ = true; }

 private:
  static int Ask(void* context) try {
    auto& self = *static_cast<HoldsWhileItWaits*>(context);
    self.gpu_.LeaveLease(self.thread_);
    self.entered_ = false;
    const int ends = self.own_.asked(self.own_.context);
    // A lease taken in the callback may still be held; then the wait ends.
    const VirtualDevice* const held =
        self.gpu_.EnterLease(self.thread_, &self.device_, self.lease_).device;
    self.entered_ = held == nullptr;
    // With a lease of the same device, EnterLease() has counted this one as an inner lease, which would never be released.
    if (held == &self.device_) self.gpu_.LeaveLease(self.thread_);
    return self.entered_ ? ends : 1;
  } catch (const std::bad_alloc&) {
    return 1;
  }

  Gpu& gpu_;
  const uint64_t thread_;
  VirtualDevice& device_;
  const std::shared_ptr<HeldLease> lease_;
  const base::Interrupt own_;
  bool entered_ = true;  // whether the thread still counts as holding the lease
  bool holds_ = false;
};

}  // namespace

absl::Status Lease::CheckStreams(const VirtualDevice& device,
                                 const std::vector<std::shared_ptr<Stream>>& streams) {
  for (const std::shared_ptr<Stream>& stream : streams) {
    if (&stream->device() != &device) {
      return absl::InvalidArgumentError(absl::StrCat(
          "lease: a stream belongs to tenant ", Quoted(stream->device().tenant().name()),
          " on GPU ", stream->device().gpu().ordinal(), ", the lease to ",
          Quoted(device.tenant().name()), " on GPU ", device.gpu().ordinal(),
          "; lease on the streams of one virtual device"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Lease>> Lease::Acquire(std::shared_ptr<VirtualDevice> device,
                                                      LeaseRequest request) {
  GPUSHARE_RETURN_IF_ERROR(CheckStreams(*device, request.streams));
  const std::shared_ptr<Lease> lease(
      new Lease(std::move(device), request.any_thread ? kNoThread : ThreadNumber()));
  VirtualDevice& owner = *lease->device_;
  Gpu& gpu = owner.gpu();
  lease->lease_ = std::make_shared<HeldLease>();
  if (lease->thread_ != kNoThread) {
    const Gpu::ThreadLease has = gpu.EnterLease(lease->thread_, &owner, lease->lease_);
    if (has.device != nullptr && has.device != &owner) {
      return absl::FailedPreconditionError(
          absl::StrCat("lease: the calling thread holds one of another virtual device on GPU ",
                       gpu.ordinal(), ", and would wait for itself; release that first"));
    }
    if (has.device != nullptr) {
      lease->lease_ = has.held;
      lease->inner_ = lease->held_ = true;
      if (request.streams.empty()) owner.HasUnseenWork();
      lease->Extend(std::move(request.streams));
      return lease;
    }
  }
  HoldsWhileItWaits waits(gpu, lease->thread_, owner, lease->lease_);
  gate::LeaseRequest asked;
  asked.hint = request.hint;
  asked.maximum = request.maximum;
  asked.exclusive = request.exclusive;
  asked.deadline = request.deadline;
  asked.held_back = request.held_back;
  asked.called_off = request.called_off;
  for (const std::shared_ptr<Stream>& stream : request.streams) {
    asked.streams.push_back(stream->stream_gate());
  }
  const ContextScope current(owner.site());
  const auto acquire = [&]() -> absl::StatusOr<uint64_t> {
    GPUSHARE_RETURN_IF_ERROR(current.status());
    for (;;) {
      absl::StatusOr<uint64_t> id = owner.gate().AcquireLease(asked);
      if (!id.ok() || owner.work_door().Enter()) return id;
      // It was suspended since: now the gate holds it.
      static_cast<void>(owner.gate().ReleaseLease(*id));
    }
  };
  const absl::StatusOr<uint64_t> id = acquire();
  if (!id.ok()) {
    const bool late = id.status().code() == absl::StatusCode::kDeadlineExceeded;
    if (!late) return id.status();
    if (owner.suspended()) return owner.SuspendedTooLong();
    return absl::DeadlineExceededError(absl::StrCat(
        "tenant ", Quoted(owner.tenant().name()), " on GPU ", gpu.ordinal(),
        ": no lease before the deadline, since it was not its turn or another's is "
        "exclusive; wait longer ('timeout'), or raise its share ('weight', 'guarantee' "
        "or 'cap')"));
  }
  lease->lease_->id = *id;
  lease->held_ = true;
  waits.Holds();
  if (request.streams.empty()) owner.HasUnseenWork();
  lease->Cover(std::move(request.streams));
  return lease;
}

// Lets launches through gpushare on these streams pass the gate until the last lease ends.
void Lease::Cover(std::vector<std::shared_ptr<Stream>> streams) {
  const base::MutexLock lock(&lease_->mutex);
  lease_->streams.reserve(lease_->streams.size() + streams.size());
  for (std::shared_ptr<Stream>& stream : streams) {
    stream->EnterLease();
    lease_->streams.push_back(std::move(stream));
  }
}

// Adds the streams of an inner lease to the outer one, so that work on them is measured as the outer lease's.
void Lease::Extend(std::vector<std::shared_ptr<Stream>> streams) {
  if (streams.empty()) return;
  std::vector<gate::StreamGate*> gates;
  gates.reserve(streams.size());
  for (const std::shared_ptr<Stream>& stream : streams) gates.push_back(stream->stream_gate());
  {
    // First, since the gate's lease must not have streams that are not kept here.
    const base::MutexLock lock(&lease_->mutex);
    lease_->streams.reserve(lease_->streams.size() + streams.size());
  }
  const ContextScope current(device_->site());
  device_->gate().ExtendLease(lease_->id, gates);
  Cover(std::move(streams));
}

Lease::~Lease() { Release(); }

void Lease::Begin() {
  if (held_ && !inner_) device_->gate().BeginLease(lease_->id);
}

gate::Gate::LeaseResult Lease::Release() {
  if (!std::exchange(held_, false)) return {};
  Gpu& gpu = device_->gpu();
  const ContextScope current(device_->site());
  if (thread_ != kNoThread && !gpu.LeaveLease(thread_)) {
    return inner_ ? gate::Gate::LeaseResult() : device_->gate().LookAtLease(lease_->id);
  }
  std::vector<std::shared_ptr<Stream>> streams;
  {
    const base::MutexLock lock(&lease_->mutex);
    streams.swap(lease_->streams);
  }
  for (const std::shared_ptr<Stream>& stream : streams) stream->LeaveLease();
  const gate::Gate::LeaseResult result = device_->gate().ReleaseLease(lease_->id);
  device_->work_door().Leave();
  return inner_ ? gate::Gate::LeaseResult() : result;
}

}  // namespace gpushare::device
