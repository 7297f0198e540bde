// SPDX-License-Identifier: Apache-2.0
// Suspending a virtual device: its work is held at the gate, and its swappable memory leaves the device.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/status_macros.h"
#include "device/memory/swappable_memory.h"
#include "device/process/identity.h"
#include "device/process/runtime.h"
#include "device/share/virtual_device.h"
#include "device/stream/poll.h"
#include "device/stream/stream.h"
#include "driver/relaxed_capture.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

// Most of what runs is over within microseconds.
constexpr Nanos kFirstPoll = Micros(20);

}  // namespace

absl::Status VirtualDevice::Suspend() {
  std::shared_ptr<SwappableMemory> memory;
  uint64_t suspension = 0;
  {
    const base::ClockLock turn(raw_gpu_->clock(), swap_turn_);
    memory = swappable();
    suspended_ = true;
    gate_->Suspend();
    if (memory == nullptr) return absl::OkStatus();
    if (!work_door_.closed()) {
      work_door_.Close();
      ++suspensions_;
    }
    suspension = suspensions_;
  }
  GPUSHARE_RETURN_IF_ERROR(AwaitIdle());
  // When it was resumed meanwhile it is in use again, also if another thread has suspended it since.
  return memory->MoveOut([&] { return suspended_ && suspensions_ == suspension; });
}

absl::Status VirtualDevice::Resume() {
  const auto go_on = [&] {
    work_door_.Open();
    suspended_ = false;
    gate_->Resume();
  };
  std::shared_ptr<SwappableMemory> memory;
  {
    const base::ClockLock turn(raw_gpu_->clock(), swap_turn_);
    memory = swappable();
    if (memory == nullptr) {
      go_on();
      return absl::OkStatus();
    }
  }
  return memory->MoveIn(go_on);
}

// Of what was let through until now. No more comes: work_door_ is closed.
absl::Status VirtualDevice::AwaitIdle() {
  base::Clock& clock = raw_gpu_->clock();
  const Time deadline = clock.Now() + Nanos(static_cast<int64_t>(GPUSHARE_CLOSE_GRACE_NS));
  const std::string tenant =
      absl::StrCat("tenant ", Quoted(tenant_->name()), " on GPU ", raw_gpu_->ordinal(),
                   " is suspended, and its swappable memory stays on the device: ");
  if (raw_gpu_->LeaseOf(ThreadNumber()) == this) {
    return absl::FailedPreconditionError(absl::StrCat(
        tenant, "the calling thread holds a lease of it; release that, and suspend it once more"));
  }
  if (!work_door_.AwaitEmpty(deadline)) {
    return absl::DeadlineExceededError(absl::StrCat(tenant, "a lease of it is still held after ",
                                                    GPUSHARE_CLOSE_GRACE_NS / 1'000'000'000,
                                                    " s; suspend it once more"));
  }
  const ContextScope current(site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::RelaxedCapture relaxed(raw_gpu_->driver());
  const auto runs = [&] {
    bool ending = false;
    const auto streams = raw_gpu_->StreamsOf(this, &ending);
    return ending || !std::all_of(streams.begin(), streams.end(),
                                  [](const auto& stream) { return stream->Idle(); });
  };
  bool late = false;
  for (Nanos poll = kFirstPoll; !late && runs(); poll = std::min(2 * poll, kPoll)) {
    const Time now = clock.Now();
    late = now >= deadline;
    if (!late) clock.SleepUntil(now + poll);
  }
  if (late || !unfinished().Await(clock, deadline, &tenant_->name()).empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(tenant, "its work still runs, or a stream of it is being captured, after ",
                     GPUSHARE_CLOSE_GRACE_NS / 1'000'000'000, " s; suspend it once more"));
  }
  // The streams of a program that does not know gpushare are not among those.
  const Runtime& runtime = *raw_gpu_->runtime();
  const bool of_program = runtime.of_process() && tenant_ == runtime.default_tenant();
  const uint64_t unseen = unseen_work_;
  if (unseen == awaited_work_ && !of_program) return absl::OkStatus();
  GPUSHARE_RETURN_IF_ERROR(AwaitContext(tenant, deadline));
  awaited_work_ = unseen;
  return absl::OkStatus();
}

absl::Status VirtualDevice::AwaitContext(const std::string& tenant, Time deadline) {
  base::Clock& clock = raw_gpu_->clock();
  // Whoever waits for a context breaks the captures that go on there.
  while (!has_context_ && raw_gpu_->AnyCaptures()) {
    const Time now = clock.Now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          tenant,
          "it had work on streams that gpushare does not know, for which nobody can wait "
          "while a stream of GPU ",
          raw_gpu_->ordinal(), " is being captured; suspend it once more after that"));
    }
    clock.SleepUntil(std::min(deadline, now + kPoll));
  }
  GPUSHARE_ASSIGN_OR_RETURN(
      const bool over,
      unfinished().AwaitAll(raw_gpu_->runtime()->shared_driver(), site(), deadline));
  if (!over) {
    return absl::DeadlineExceededError(absl::StrCat(
        tenant, "something in its context still runs after ",
        GPUSHARE_CLOSE_GRACE_NS / 1'000'000'000,
        " s, and it had work on streams that gpushare does not know: name the streams of its "
        "leases, or suspend it once more when that is over"));
  }
  return absl::OkStatus();
}

}  // namespace gpushare::device
