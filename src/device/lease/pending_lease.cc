// SPDX-License-Identifier: Apache-2.0
#include "device/lease/pending_lease.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock_lock.h"
#include "base/interrupt.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "device/process/detached.h"
#include "device/process/runtime.h"

namespace gpushare::device {
namespace {

constexpr int kEverybody = INT32_MAX;
constexpr Nanos kIdle = Seconds(5);  // how long the thread stays without requests

void Raise(const base::UniqueFd& event) {
  if (!event) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event.get(), &one, sizeof one);
}

}  // namespace

// ---- The line

LeaseLine::LeaseLine(const VirtualDevice& device)
    : clock_(device.gpu().clock()),
      no_memory_(absl::ResourceExhaustedError("lease request: the host has no memory left")),
      late_(absl::DeadlineExceededError(absl::StrCat(
          "tenant ", Quoted(device.tenant().name()), " on GPU ", device.gpu().ordinal(),
          ": no lease before the deadline, since others that were asked for before it wait; wait "
          "longer ('timeout')"))),
      called_off_(absl::CancelledError("lease request: it was called off")) {}

LeaseLine::~LeaseLine() {
  {
    const base::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Changed();
  thread_.reset();
}

void LeaseLine::Changed() {
  changed_.fetch_add(1, std::memory_order_release);
  clock_.Wake(changed_, kEverybody);
}

void LeaseLine::Join(PendingLease& request) {
  const base::ClockLock starting(clock_, starting_);
  bool start;
  {
    const base::MutexLock lock(&mutex_);
    waiting_.push_back(&request);
    start = !std::exchange(runs_, true);
  }
  if (!start) return Changed();
  thread_.reset();  // the former thread has ended
  try {
    thread_ = clock_.StartThread("gpushare-lease", [this] { Run(); });
  } catch (...) {
    const base::MutexLock lock(&mutex_);
    runs_ = false;
    std::erase(waiting_, &request);
    throw;
  }
}

void LeaseLine::AwaitDoneWith(const PendingLease& request) {
  for (;;) {
    const uint32_t seen = changed_.load(std::memory_order_acquire);
    {
      const base::MutexLock lock(&mutex_);
      if (serving_ != &request && expiring_ != &request) return;
    }
    clock_.Wait(changed_, seen, kNever, Nanos(0));
  }
}

void LeaseLine::Run() {
  id_ = std::this_thread::get_id();
  const base::Interrupt before = base::ExchangeInterrupt({&Expire, this});
  // A virtual clock would jump to the end of an idle wait, so the thread does not end there.
  const Nanos idle = clock_.LookEvery() == Nanos(0) ? kIdle : Nanos::max();
  Time idle_until = After(clock_.Now(), idle);
  for (;;) {
    const uint32_t seen = changed_.load(std::memory_order_acquire);
    const Time now = clock_.Now();
    PendingLease* next = nullptr;
    {
      const base::MutexLock lock(&mutex_);
      if (!waiting_.empty()) {
        next = serving_ = waiting_.front();
        next->state_ = PendingLease::State::kServed;
        waiting_.pop_front();
      } else if (stopping_ || now >= idle_until) {
        runs_ = false;
        break;
      }
    }
    if (next == nullptr) {
      clock_.Wait(changed_, seen, idle_until, Nanos(0));
      continue;
    }
    Serve(*next);
    idle_until = After(clock_.Now(), idle);
  }
  base::ExchangeInterrupt(before);
  id_ = std::thread::id();  // which another thread may have once this one is joined
}

void LeaseLine::Serve(PendingLease& request) {
  absl::StatusOr<std::shared_ptr<Lease>> acquired = nullptr;
  try {
    acquired = Lease::Acquire(request.device_, request.request_);
  } catch (const std::bad_alloc&) {
    acquired = no_memory_;
  }
  std::shared_ptr<Lease> unwanted;
  bool wanted;
  {
    const base::MutexLock lock(&mutex_);
    wanted = request.state_ == PendingLease::State::kServed;
    if (wanted) {
      request.Finish(std::move(acquired));
    } else if (acquired.ok()) {
      unwanted = *std::move(acquired);
    }
  }
  if (unwanted != nullptr) unwanted->Release();
  unwanted = nullptr;
  if (wanted && request.done_) request.done_();
  {
    const base::MutexLock lock(&mutex_);
    serving_ = nullptr;
  }
  Changed();
}

int LeaseLine::Expire(void* context) {
  LeaseLine& line = *static_cast<LeaseLine*>(context);
  const Time now = line.clock_.Now();
  for (;;) {
    PendingLease* late = nullptr;
    {
      const base::MutexLock lock(&line.mutex_);
      const auto at =
          std::find_if(line.waiting_.begin(), line.waiting_.end(),
                       [now](const auto* each) { return now >= each->request_.deadline; });
      if (at == line.waiting_.end()) return 0;
      late = line.expiring_ = *at;
      line.waiting_.erase(at);
      late->Finish(line.late_);
    }
    if (late->done_) late->done_();
    {
      const base::MutexLock lock(&line.mutex_);
      line.expiring_ = nullptr;
    }
    line.Changed();
  }
}

// ---- A request

PendingLease::PendingLease(std::shared_ptr<VirtualDevice> device, LeaseRequest request,
                           std::function<void()> done)
    : device_(std::move(device)),
      line_(device_->lease_line()),
      request_([&] {
        request.any_thread = true;
        request.called_off = &called_off_;
        return std::move(request);
      }()),
      done_(std::move(done)) {}

absl::StatusOr<std::shared_ptr<PendingLease>> PendingLease::Ask(
    std::shared_ptr<VirtualDevice> device, LeaseRequest request, std::function<void()> done) {
  GPUSHARE_RETURN_IF_ERROR(Lease::CheckStreams(*device, request.streams));
  std::shared_ptr<PendingLease> asked(
      new PendingLease(std::move(device), std::move(request), std::move(done)));
  asked->line_->Join(*asked);
  return asked;
}

PendingLease::~PendingLease() {
  CallOff();
  line_->AwaitDoneWith(*this);
}

void PendingLease::EndElsewhere(absl::FunctionRef<std::shared_ptr<PendingLease>()> take) {
  CallOff();
  struct Handover {
    std::shared_ptr<PendingLease> request;
    std::atomic<uint32_t> done{0};
  };
  const auto handover = std::make_shared<Handover>();
  base::Clock& clock = device_->gpu().clock();
  RunDetached(device_->gpu().runtime()->shared_driver(), "gpushare-end", [handover, &clock] {
    while (handover->done.load() == 0) clock.Wait(handover->done, 0, kNever, Nanos(0));
    handover->request = nullptr;
  });
  handover->request = take();
  handover->done.store(1);  // from here on the request may be gone
  clock.Wake(handover->done, kEverybody);
}

void PendingLease::Finish(absl::StatusOr<std::shared_ptr<Lease>> outcome) {
  state_ = State::kDone;
  outcome_ = std::move(outcome);
  Raise(event_);
}

absl::StatusOr<int> PendingLease::Descriptor() {
  const base::MutexLock lock(&line_->mutex_);
  if (!event_) {
    event_ = base::UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_) return absl::ErrnoToStatus(errno, "lease request: no descriptor is left");
    if (state_ == State::kDone || state_ == State::kTaken) Raise(event_);
  }
  return event_.get();
}

absl::StatusOr<std::shared_ptr<Lease>> PendingLease::Take() {
  const base::MutexLock lock(&line_->mutex_);
  switch (state_) {
    case State::kWaits:
    case State::kServed:
      return absl::UnavailableError(
          "lease request: nothing has come of it yet; take it when its descriptor is readable, or "
          "when 'done' is called");
    case State::kTaken:
      return absl::FailedPreconditionError(
          "lease request: its lease has been taken; ask for another");
    case State::kDone:
      break;
  }
  if (!outcome_.ok()) return outcome_.status();
  state_ = State::kTaken;
  return std::exchange(*outcome_, nullptr);
}

void PendingLease::CallOff() {
  absl::StatusOr<std::shared_ptr<Lease>> given_back = nullptr;
  bool waits = false;
  {
    const base::MutexLock lock(&line_->mutex_);
    if (state_ == State::kTaken || (state_ == State::kDone && !outcome_.ok())) return;
    waits = state_ == State::kServed;
    called_off_ = true;
    if (state_ == State::kWaits) std::erase(line_->waiting_, this);
    given_back = std::move(outcome_);
    Finish(line_->called_off_);
  }
  if (waits) device_->gate().LookAtCalledOff();
}

}  // namespace gpushare::device
