// SPDX-License-Identifier: Apache-2.0
#include "device/stream/stream.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_payloads.h"
#include "device/memory/memory_pool.h"
#include "device/stream/stream_end.h"
#include "device/stream/stream_order.h"
#include "driver/relaxed_capture.h"
#include "gate/graphs.h"
#include "gate/lane.h"
#include "gate/work_keys.h"
#include "gpushare/c/gpushare.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

using Capture = driver::Driver::Capture;

// "Does not wait" leaves the arbiter time to answer.
constexpr Nanos kNoWait = Micros(10);

std::atomic<uint64_t> next_stream{1};

std::string Sides(const driver::Dim3& d) { return absl::StrCat(d.x, " x ", d.y, " x ", d.z); }

// With the shape, when it is what the driver objects to.
absl::Status LaunchRefused(const absl::Status& refused, driver::Result result,
                           const driver::LaunchShape& shape, bool own_context) {
  if (result == driver::Result::kInvalidHandle) {
    return base::WithPayloadsOf(
        absl::Status(
            refused.code(),
            absl::StrCat(refused.message(), own_context ? "; a virtual device with a context of "
                                                          "its own has modules of its own: load "
                                                          "the kernel for it, not for the GPU"
                                                        : "; the kernel has to be of a module of "
                                                          "the stream's GPU")),
        refused);
  }
  if (result != driver::Result::kInvalidValue) return refused;
  const absl::Status told(
      refused.code(),
      absl::StrCat(refused.message(), ": a grid of ", Sides(shape.grid), " blocks of ",
                   Sides(shape.block), " threads with ", shape.shared_bytes,
                   " bytes of dynamic shared memory each given"));
  return base::WithPayloadsOf(told, refused);
}

}  // namespace

Stream::Stream(std::shared_ptr<VirtualDevice> device, bool owned)
    : device_(std::move(device)),
      gpu_(device_->gpu()),
      id_(next_stream.fetch_add(1, std::memory_order_relaxed)),
      owned_(owned) {}

absl::StatusOr<std::shared_ptr<Stream>> Stream::Create(std::shared_ptr<VirtualDevice> device) {
  const std::shared_ptr<Stream> stream(new Stream(std::move(device), /*owned=*/true));
  const ContextScope current(stream->device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  const driver::Driver& driver = stream->gpu_.driver();
  int least = 0, greatest = 0;
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(driver.StreamPriorityRange(&least, &greatest),
                                            "cuCtxGetStreamPriorityRange"));
  const bool high = stream->device_->band() == sched::Band::kHigh;
  stream->priority_ = high ? greatest : least;
  // The greatest is the high band's alone.
  if (!high && driver.LaunchesAtPriority()) stream->levels_ = std::max(0, least - greatest - 1);
  GPUSHARE_RETURN_IF_ERROR(stream->CreateNative());
  GPUSHARE_RETURN_IF_ERROR(stream->Attach());
  return stream;
}

absl::Status Stream::CreateNative() {
  const driver::Driver& driver = gpu_.driver();
  partition_ = device_->partition();
  if (partition_ == nullptr) {
    return driver::ToStatus(driver.CreateStream(&native_, priority_), "cuStreamCreateWithPriority");
  }
  sms_ratio_ = static_cast<float>(1 / partition_->share());
  return driver::ToStatus(driver.CreateStreamOn(&native_, partition_->green(), priority_),
                          "cuGreenCtxStreamCreate");
}

absl::StatusOr<std::shared_ptr<Stream>> Stream::Bind(std::shared_ptr<VirtualDevice> device,
                                                     driver::Stream native) {
  const std::shared_ptr<Stream> stream(new Stream(std::move(device), /*owned=*/false));
  stream->native_ = native;
  stream->uncommon_ = kExposed;
  const ContextScope current(stream->device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  // Refuses what is not a stream of this context before anything is bound.
  GPUSHARE_RETURN_IF_ERROR(stream->device_->CheckStream(native));
  GPUSHARE_RETURN_IF_ERROR(stream->Capturing().status());
  stream->partition_ = stream->device_->partition();
  GPUSHARE_RETURN_IF_ERROR(stream->Attach());
  return stream;
}

absl::Status Stream::Attach() {
  order_ = std::make_shared<StreamOrder>(gpu_, native_);
  GPUSHARE_RETURN_IF_ERROR(gpu_.BindStream(native_, weak_from_this()));
  bound_ = true;
  if (device_->swaps()) UseDoor();  // now that it can be found
  GPUSHARE_ASSIGN_OR_RETURN(stream_gate_, device_->gate().AddStream(native_, {.levels = levels_}));
  lane_ = &gate::Gate::LaneOf(*stream_gate_);
  return absl::OkStatus();
}

Stream::~Stream() {
  const ContextScope current(device_->site());
  if (begun_capture_.load(std::memory_order_relaxed)) {
    // Destroying the stream ends its capture. One that is not ours goes on, and others may be in it.
    Capture capture = Capture::kNone;
    if (!owned_) static_cast<void>(gpu_.driver().StreamCapture(native_, &capture));
    if (capture == Capture::kNone) gpu_.captures().fetch_sub(1, std::memory_order_relaxed);
  }
  if (stream_gate_ != nullptr) device_->gate().RemoveStream(stream_gate_);
  if (bound_) TellEnd();
  if (bound_) gpu_.UnbindStream(native_);
  if (owned_ && native_ != nullptr) static_cast<void>(gpu_.driver().DestroyStream(native_));
}

// ---- Memory that follows the stream ----

namespace {

// Of a call's answer. Nothing runs any more in a context that is lost.
bool IsLost(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsDataLoss(status);
}

}  // namespace

bool Stream::Idle() const {
  // Of the legacy stream a question breaks what others capture.
  Capture capture = Capture::kNone;
  if (native_ == nullptr) {
    const driver::Result result = gpu_.driver().StreamCapture(native_, &capture);
    if (result != driver::Result::kSuccess) {
      return IsLost(driver::ToStatus(result, "cuStreamGetCaptureInfo"));
    }
  }
  const absl::StatusOr<bool> capturing = Capturing();
  if (!capturing.ok()) return IsLost(capturing.status());
  if (*capturing) return false;
  const driver::Result result = gpu_.driver().QueryStream(native_);
  return result == driver::Result::kSuccess ||
         (result != driver::Result::kNotReady && IsLost(driver::ToStatus(result, "cuStreamQuery")));
}

void Stream::AddPool(MemoryPool* pool) {
  const base::MutexLock lock(&pools_mutex_);
  const auto known = std::find_if(pools_.begin(), pools_.end(),
                                  [&](const auto& weak) { return weak.lock().get() == pool; });
  if (known == pools_.end()) {
    std::erase_if(pools_, [](const auto& weak) { return weak.expired(); });
    pools_.push_back(pool->weak_from_this());
    pool->Watch(shared_from_this());
  }
  last_pool_.store(pool, std::memory_order_relaxed);
}

void Stream::TellEnd() noexcept {
  const driver::RelaxedCapture relaxed(gpu_.driver());
  // A stream that captures is not asked, which would break the capture of whoever owns it.
  std::shared_ptr<StreamEnd> end;
  if (native_ != nullptr) {  // the legacy stream does not end
    try {
      const absl::StatusOr<bool> capturing = Capturing();
      if (capturing.ok() && !*capturing) end = StreamEnd::Of(gpu_.driver(), native_);
      if (end != nullptr) device_->unfinished().Leave(device_->tenant().name(), end);
    } catch (const std::bad_alloc&) {
    }
    order_->Ends(end);
  }
  if (end == nullptr) device_->HasUnseenWork();  // nobody knows when it is done
  const base::MutexLock lock(&pools_mutex_);     // nobody else is here any more
  for (const auto& weak : pools_) {
    if (const std::shared_ptr<MemoryPool> pool = weak.lock()) pool->StreamEnds(id_, end);
  }
}

Time Stream::Deadline(int64_t timeout_ns) const {
  if (timeout_ns == GPUSHARE_FOREVER) return kNever;
  const Time now = gpu_.clock().Now();
  const Nanos timeout = std::max(Nanos(timeout_ns), kNoWait);
  return timeout > kNever - now ? kNever : now + timeout;
}

absl::StatusOr<bool> Stream::Capturing() const {
  // Nobody else can have begun a capture of a stream that nobody else has; but a capture that we
  // began may have spread to it through an event.
  if ((uncommon_.load(std::memory_order_relaxed) & kExposed) == 0 &&
      gpu_.captures().load(std::memory_order_relaxed) == 0) {
    return false;
  }
  Capture capture = Capture::kNone;
  const driver::Result result = gpu_.driver().StreamCapture(native_, &capture);
  // Of the legacy stream the driver says that it cannot tell while others capture; it cannot
  // capture itself.
  if (result != driver::Result::kSuccess && native_ != nullptr) {
    return driver::ToStatus(result, "cuStreamGetCaptureInfo");
  }
  return capture != Capture::kNone;
}

absl::Status Stream::Refused(gate::Verdict verdict) const {
  const std::string tenant = Quoted(device_->tenant().name());
  if (verdict == gate::Verdict::kDeadline) {
    if (device_->suspended()) return device_->SuspendedTooLong();
    return absl::DeadlineExceededError(
        absl::StrCat("tenant ", tenant,
                     ": it was not its turn before the timeout; wait longer, or raise its "
                     "share ('weight', 'guarantee' or 'cap')"));
  }
  if (verdict == gate::Verdict::kEnded) {
    return absl::CancelledError(absl::StrCat("tenant ", tenant, ": ", gate::kEvicted));
  }
  if (verdict == gate::Verdict::kInterrupted) {
    return absl::CancelledError(absl::StrCat("tenant ", tenant, ": ", gate::kInterruptedText));
  }
  return absl::CancelledError(
      absl::StrCat("tenant ", tenant, ": its virtual device went away while this call waited"));
}

template <typename Call>
driver::Result Stream::InContext(const Call& call) {
  // Work on the legacy stream goes to whatever context is current.
  const auto mode = native_ == nullptr ? ContextScope::Mode::kAsk : ContextScope::Mode::kTrust;
  driver::Result result;
  {
    const ContextScope current(device_->site(), mode);
    if (!current.ok()) return driver::Result::kInvalidContext;
    result = call();
    if (mode == ContextScope::Mode::kAsk || !ContextScope::Suspicious(result)) return result;
  }
  ContextScope::Distrust();
  const ContextScope current(device_->site());
  return current.ok() ? call() : driver::Result::kInvalidContext;
}

// ---- Launches ----

template <typename Call>
absl::Status Stream::Submit(const gate::Work& work, int64_t timeout_ns, const char* name,
                            const Call& call) {
  if (timeout_ns < 0) {
    return absl::InvalidArgumentError(absl::StrCat("launch: a timeout of ", timeout_ns,
                                                   "ns given, 0 to GPUSHARE_FOREVER allowed"));
  }
  // What the gate does not see, and what becomes part of a graph, has the stream's own priority.
  const auto plain = [&] { return call(0); };
  if (leases_.load(std::memory_order_relaxed) > 0) {
    // The lease is inside, unless it was released right now.
    const Inside within(OwnDoor(), Inside::As::kWithin);
    if (within.inside()) return driver::ToStatus(InContext(plain), name);
  }
  GPUSHARE_ASSIGN_OR_RETURN(const bool capturing, Capturing());
  if (capturing) return driver::ToStatus(InContext(plain), name);
  gate::Gate& gate = device_->gate();
  const ContextScope current(device_->site(),
                             ContextScope::Mode::kTrust);  // the gate may record an event
  if (!current.ok()) return current.status();
  for (std::optional<Time> deadline;;) {
    gate::Admission admission = {.stream = stream_gate_};
    if (work.kind != gate::Work::Kind::kKernel || !lane_->Take(work.key, &admission.launch)) {
      if (!deadline.has_value()) deadline = Deadline(timeout_ns);
      admission = gate.Admit(*stream_gate_, work, *deadline);
    }
    if (admission.verdict != gate::Verdict::kAdmitted) return Refused(admission.verdict);
    const Inside inside(OwnDoor());  // that has come into use since, perhaps
    if (!inside.inside()) {          // it was suspended since: the gate holds it now
      gate.Complete(admission, /*submitted=*/false);
      continue;
    }
    device_->SetBusy();
    const driver::Result result = InContext([&] { return call(lane_->Level()); });
    gate.Complete(admission, result == driver::Result::kSuccess);
    return driver::ToStatus(result, name);
  }
}

absl::Status Stream::LaunchedInVain(driver::Function function, const driver::LaunchShape& shape,
                                    void** params, const Paid& paid) const {
  driver::Result result = paid.result;
  if (ContextScope::Suspicious(result)) {
    ContextScope::Distrust();
    const ContextScope current(device_->site());
    result = current.ok() ? LaunchAtLevel(function, shape, params, lane_->Level())
                          : driver::Result::kInvalidContext;
  }
  const gate::Admission admission = {.stream = stream_gate_, .launch = paid.launch};
  device_->gate().Complete(admission, result == driver::Result::kSuccess);
  if (result == driver::Result::kSuccess) return absl::OkStatus();
  return LaunchRefused(driver::ToStatus(result, "cuLaunchKernel"), result, shape,
                       device_->door() != nullptr);
}

absl::Status Stream::Launch(driver::Function function, const driver::LaunchShape& shape,
                            void** params, bool cooperative, int64_t timeout_ns) {
  if (function == nullptr) return absl::InvalidArgumentError("launch: the function is null");
  gate::Work work;
  work.key = gate::KernelKey(function, shape);
  work.kind = cooperative ? gate::Work::Kind::kCooperative : gate::Work::Kind::kKernel;
  const driver::Driver& driver = gpu_.driver();
  const char* const name = cooperative ? "cuLaunchCooperativeKernel" : "cuLaunchKernel";
  if (!gpu_.footprints().Find(work.key, &work.footprint)) {
    const driver::Result result =
        InContext([&] { return gpu_.FindFootprint(function, shape, work.key, &work.footprint); });
    // That another call of the driver found it out first is nothing to the caller.
    if (result != driver::Result::kSuccess) {
      return LaunchRefused(driver::ToStatus(result, name), result, shape,
                           device_->door() != nullptr);
    }
  }
  work.footprint *= sms_ratio_;
  driver::Result result = driver::Result::kSuccess;
  const absl::Status launched = Submit(work, timeout_ns, name, [&](int level) {
    result = cooperative ? driver.LaunchCooperative(function, shape, native_, params)
                         : LaunchAtLevel(function, shape, params, level);
    return result;
  });
  return result == driver::Result::kSuccess
             ? launched
             : LaunchRefused(launched, result, shape, device_->door() != nullptr);
}

absl::Status Stream::LaunchGraph(driver::GraphExec graph, int64_t timeout_ns) {
  if (graph == nullptr) return absl::InvalidArgumentError("launch: the graph is null");
  const char* const name = "cuGraphLaunch";
  const auto call = [&](int) { return gpu_.driver().LaunchGraph(graph, native_); };
  // Of a capture it becomes a part: what it costs and copies, that graph does.
  GPUSHARE_ASSIGN_OR_RETURN(const bool capturing, Capturing());
  if (capturing) return driver::ToStatus(InContext([&] { return call(0); }), name);
  gate::Graphs& graphs = gpu_.runtime()->graphs();
  const auto launch = [&](int64_t timeout) {
    // What a lease covers is not measured, and leaves the next launch the first of its version.
    gate::Work work;
    if (leases_.load(std::memory_order_relaxed) == 0) work = graphs.NextLaunch(graph);
    work.footprint *= sms_ratio_;
    return Submit(work, timeout, name, call);
  };
  const gate::CopyBytes bytes = graphs.CopiesOf(graph);
  return bytes.any() ? Crossing(bytes, timeout_ns, launch) : launch(timeout_ns);
}

absl::Status Stream::Crossing(const gate::CopyBytes& bytes, int64_t timeout_ns,
                              absl::FunctionRef<absl::Status(int64_t)> launch) {
  if (timeout_ns < 0) return launch(timeout_ns);
  gate::Gate& gate = device_->gate();
  const Time deadline = Deadline(timeout_ns);
  gate::CopyDirection held = gate::CopyDirection::kHostToDevice;
  // A suspension waits for leases, so it does not hold the copies of one.
  Door* const leased = DoorUnderLease();
  const Inside within(leased, Inside::As::kWithin);
  const gate::Verdict verdict = gate.AdmitCopies(bytes, deadline, gate::kNoBound, &held,
                                                 leased != nullptr && within.inside());
  if (verdict == gate::Verdict::kDeadline && !device_->suspended()) {
    const bool up = held == gate::CopyDirection::kHostToDevice;
    return absl::DeadlineExceededError(
        absl::StrCat("tenant ", Quoted(device_->tenant().name()), ": its limit did not let the ",
                     up ? bytes.to_device : bytes.to_host, " bytes pass that the graph copies ",
                     up ? "to the device" : "to the host",
                     " before the timeout; wait longer, or raise '", up ? "h2d" : "d2h", "'"));
  }
  if (verdict != gate::Verdict::kAdmitted) return Refused(verdict);
  const Nanos left = deadline == kNever ? Nanos(0) : deadline - gpu_.clock().Now();
  gate::AdmittedCopies admitted(gate, bytes);
  absl::Status launched =
      launch(deadline == kNever ? timeout_ns : std::max<int64_t>(left.count(), 0));
  if (launched.ok()) admitted.Made();
  return launched;
}

absl::Status Stream::LaunchHost(void (*function)(void*), void* argument) {
  if (function == nullptr) return absl::InvalidArgumentError("launch: the host function is null");
  const char* const name = "cuLaunchHostFunc";
  const auto call = [&] { return gpu_.driver().LaunchHost(native_, function, argument); };
  GPUSHARE_ASSIGN_OR_RETURN(const bool capturing, Capturing());
  // Of what a lease covers nothing is seen: this is like the rest of it.
  if (capturing || leases_.load(std::memory_order_relaxed) > 0) {
    return driver::ToStatus(InContext(call), name);
  }
  const ContextScope current(device_->site(),
                             ContextScope::Mode::kTrust);  // the gate records events
  if (!current.ok()) return current.status();
  gate::Gate& gate = device_->gate();
  gate.StallBegins(stream_gate_);
  const driver::Result result = InContext(call);
  if (result == driver::Result::kSuccess) gate.StallEnds(stream_gate_);
  return driver::ToStatus(result, name);
}

// ---- Copies ----

absl::Status Stream::CopyAsync(Direction direction, void* host, driver::DevicePtr to,
                               driver::DevicePtr from, uint64_t bytes) {
  const bool on_device = direction == Direction::kOnDevice;
  if (!on_device && host == nullptr && bytes > 0) {
    return absl::InvalidArgumentError("copy: the host address is null");
  }
  if (bytes == 0) return absl::OkStatus();
  const driver::Driver& driver = gpu_.driver();
  const auto copy = [&](uint64_t offset, uint64_t n) {
    char* const at = static_cast<char*>(host) + offset;
    switch (direction) {
      case Direction::kToDevice:
        return driver.CopyHtoDAsync(to + offset, at, n, native_);
      case Direction::kToHost:
        return driver.CopyDtoHAsync(at, from + offset, n, native_);
      case Direction::kOnDevice:
        break;
    }
    return driver.CopyDtoDAsync(to + offset, from + offset, n, native_);
  };
  const char* const name = direction == Direction::kToDevice ? "cuMemcpyHtoDAsync"
                           : direction == Direction::kToHost ? "cuMemcpyDtoHAsync"
                                                             : "cuMemcpyDtoDAsync";
  GPUSHARE_ASSIGN_OR_RETURN(const bool capturing, Capturing());
  if (capturing) return driver::ToStatus(InContext([&] { return copy(0, bytes); }), name);
  if (on_device) {
    return Submit(gate::OnDevice(gate::OnDeviceKind::kCopy, bytes), GPUSHARE_FOREVER, name,
                  [&](int) { return copy(0, bytes); });
  }
  const auto way = direction == Direction::kToDevice ? gate::CopyDirection::kHostToDevice
                                                     : gate::CopyDirection::kDeviceToHost;
  const ContextScope current(device_->site(),
                             ContextScope::Mode::kTrust);  // the gate records events
  if (!current.ok()) return current.status();
  for (uint64_t done = 0;;) {
    Door* const leased = DoorUnderLease();  // as in Crossing()
    const Inside within(leased, Inside::As::kWithin);
    gate::HostCopy rest = {.direction = way, .parts = bytes - done};
    rest.line = (direction == Direction::kToDevice ? to : from) + done;
    rest.though_suspended = leased != nullptr && within.inside();
    driver::Result result = driver::Result::kSuccess;
    bool held = false;
    const gate::Copied copied =
        device_->gate().Copy(*stream_gate_, rest, [&](uint64_t at, uint64_t n) {
          const Inside inside(rest.though_suspended ? nullptr : OwnDoor());
          held = !inside.inside();
          if (held) return false;
          result = InContext([&] { return copy(done + at, n); });
          return result == driver::Result::kSuccess;
        });
    if (copied.verdict != gate::Verdict::kAdmitted) return Refused(copied.verdict);
    if (!held) return driver::ToStatus(result, name);
    done += copied.parts;  // it was suspended since: the gate holds the rest now
  }
}

absl::Status Stream::SetAsync(driver::DevicePtr to, unsigned char value, uint64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  return Submit(gate::OnDevice(gate::OnDeviceKind::kSet, bytes), GPUSHARE_FOREVER,
                "cuMemsetD8Async",
                [&](int) { return gpu_.driver().SetD8Async(to, value, bytes, native_); });
}

// ---- Order ----

absl::Status Stream::Synchronize() {
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  gate::Gate& gate = device_->gate();
  gate.Synchronizing(stream_gate_);
  const driver::Result result = gpu_.driver().SynchronizeStream(native_);
  gate.Synchronized();
  return driver::ToStatus(result, "cuStreamSynchronize");
}

void Stream::Yield() {
  const ContextScope current(device_->site());
  device_->gate().Synchronizing(nullptr);
}

absl::Status Stream::Record(driver::Event event) {
  if (event == nullptr) return absl::InvalidArgumentError("record: the event is null");
  return driver::ToStatus(InContext([&] { return gpu_.driver().RecordEvent(event, native_); }),
                          "cuEventRecord");
}

absl::Status Stream::Wait(driver::Event event) {
  if (event == nullptr) return absl::InvalidArgumentError("wait: the event is null");
  const char* const name = "cuStreamWaitEvent";
  const auto call = [&] { return gpu_.driver().StreamWaitEvent(native_, event); };
  const absl::StatusOr<bool> capturing = Capturing();
  if (!capturing.ok() || *capturing || leases_.load(std::memory_order_relaxed) > 0) {
    return driver::ToStatus(InContext(call), name);
  }
  const ContextScope current(device_->site(),
                             ContextScope::Mode::kTrust);  // the gate records events
  if (!current.ok()) return current.status();
  gate::Gate& gate = device_->gate();
  const bool marked = gate.WaitBegins(stream_gate_);
  const driver::Result result = InContext(call);
  if (marked && result == driver::Result::kSuccess) gate.WaitEnds(stream_gate_);
  return driver::ToStatus(result, name);
}

// ---- Capture ----

absl::Status Stream::BeginCapture() {
  if (stream_gate_ != nullptr && leases_.load(std::memory_order_relaxed) == 0) {
    // What is open has its marker before: while the stream captures, none can be recorded.
    const ContextScope current(device_->site(), ContextScope::Mode::kTrust);
    if (!current.ok()) return current.status();
    device_->gate().StallBegins(stream_gate_);
  }
  gpu_.captures().fetch_add(1, std::memory_order_relaxed);
  const absl::Status status = driver::ToStatus(
      InContext([&] { return gpu_.driver().BeginCapture(native_); }), "cuStreamBeginCapture");
  // Counted already: it was begun here before and ended past us.
  if (!status.ok() || begun_capture_.exchange(true, std::memory_order_relaxed)) {
    gpu_.captures().fetch_sub(1, std::memory_order_relaxed);
  }
  return status;
}

absl::StatusOr<std::shared_ptr<Graph>> Stream::EndCapture() {
  const ContextScope current(device_->site());
  GPUSHARE_RETURN_IF_ERROR(current.status());
  driver::Graph graph = nullptr;
  const driver::Result result = gpu_.driver().EndCapture(native_, &graph);
  // Also a failed end ends the capture, except on the wrong thread.
  Capture after = Capture::kNone;
  static_cast<void>(gpu_.driver().StreamCapture(native_, &after));
  if (after == Capture::kNone && begun_capture_.exchange(false, std::memory_order_relaxed)) {
    gpu_.captures().fetch_sub(1, std::memory_order_relaxed);
  }
  GPUSHARE_RETURN_IF_ERROR(driver::ToStatus(result, "cuStreamEndCapture"));
  return Graph::Instantiate(device_, graph);
}

}  // namespace gpushare::device
