// SPDX-License-Identifier: Apache-2.0
#include "device/watch/trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/trace_json.h"
#include "device/gpu/gpu.h"
#include "device/process/runtime.h"
#include "device/share/virtual_device.h"
#include "spec/text.h"

namespace gpushare::device {
namespace {

constexpr uint32_t kDefaultCapacity = 1u << 16;
constexpr size_t kReadAtOnce = 4096;

gpushare_trace_event ToC(const gate::NamedEvent& named, int gpu) {
  const gate::TraceEvent& event = named.event;
  gpushare_trace_event out = {};
  out.struct_size = sizeof(out);
  out.kind = static_cast<int32_t>(event.kind);
  out.gpu = gpu;
  out.flags = event.flags;
  out.begin_ns = event.begin.time_since_epoch().count();
  out.end_ns = event.end.time_since_epoch().count();
  out.value = event.value;
  out.other = event.other;
  out.commands = event.count;
  std::strncpy(out.tenant, named.tenant.c_str(), sizeof(out.tenant) - 1);
  return out;
}

// The C ABI's numbers are the engine's.
static_assert(GPUSHARE_TRACE_WAIT == static_cast<int>(gate::TraceEvent::Kind::kWait));
static_assert(GPUSHARE_TRACE_LEASE == static_cast<int>(gate::TraceEvent::Kind::kLease));
static_assert(GPUSHARE_TRACE_DEVICE == static_cast<int>(gate::TraceEvent::Kind::kDevice));
static_assert(GPUSHARE_TRACE_COPY_WAIT == static_cast<int>(gate::TraceEvent::Kind::kCopyWait));
static_assert(GPUSHARE_TRACE_MEMORY == static_cast<int>(gate::TraceEvent::Kind::kMemory));
static_assert(GPUSHARE_TRACE_DENIED == static_cast<int>(gate::TraceEvent::Kind::kDenied));
static_assert(GPUSHARE_TRACE_SUSPEND == static_cast<int>(gate::TraceEvent::Kind::kSuspend));
static_assert(GPUSHARE_TRACE_GAVE_UP == gate::TraceEvent::kGaveUp);
static_assert(GPUSHARE_TRACE_FOR_LEASE == gate::TraceEvent::kForLease);
static_assert(GPUSHARE_TRACE_EXCLUSIVE == gate::TraceEvent::kExclusive);
static_assert(GPUSHARE_TRACE_OVERRUN == gate::TraceEvent::kOverrun);
static_assert(GPUSHARE_TRACE_OVERDUE == gate::TraceEvent::kOverdue);
static_assert(GPUSHARE_TRACE_DEVICE_FULL == gate::TraceEvent::kDeviceFull);

}  // namespace

Trace::Trace(std::shared_ptr<Runtime> runtime, uint32_t capacity)
    : runtime_(std::move(runtime)), capacity_(capacity), started_(runtime_->clock().Now()) {}

absl::StatusOr<std::shared_ptr<Trace>> Trace::Start(const std::shared_ptr<Runtime>& runtime,
                                                    const gpushare_trace_options& options) {
  const uint32_t capacity = options.capacity == 0 ? kDefaultCapacity : options.capacity;
  if (capacity > gate::Recorder::kMostCapacity) {
    return absl::InvalidArgumentError(absl::StrCat("trace capacity: ", capacity,
                                                   " events given, 1 to ",
                                                   gate::Recorder::kMostCapacity, " allowed"));
  }
  std::shared_ptr<Trace> trace(new Trace(runtime, capacity));
  GPUSHARE_RETURN_IF_ERROR(runtime->StartTrace(trace));
  return trace;
}

void Trace::RecordMemory(Gpu& gpu) {
  for (const std::shared_ptr<VirtualDevice>& device : gpu.Devices()) device->RecordMemory();
}

void Trace::Attach(const std::shared_ptr<Gpu>& gpu) {
  {
    base::MutexLock lock(&mutex_);
    if (stopped_) return;
    gpu->recorder()->Start(capacity_);
    sources_.push_back({gpu->recorder(), gpu, gpu->ordinal(), gpu->info().name});
  }
  RecordMemory(*gpu);
}

void Trace::Stop() {
  std::vector<Source> sources;
  {
    base::MutexLock lock(&mutex_);
    if (std::exchange(stopped_, true)) return;
    sources = sources_;
  }
  for (const Source& source : sources) {
    // So that its lines reach to the end.
    if (const std::shared_ptr<Gpu> gpu = source.gpu.lock()) RecordMemory(*gpu);
    source.recorder->Stop();
  }
}

std::vector<gpushare_trace_event> Trace::Read(size_t most) {
  std::vector<gpushare_trace_event> events;
  base::MutexLock lock(&mutex_);
  for (const Source& source : sources_) {
    if (events.size() >= most) break;
    for (const gate::NamedEvent& event : source.recorder->Read(most - events.size(), &lost_)) {
      events.push_back(ToC(event, source.ordinal));
    }
  }
  return events;
}

uint64_t Trace::lost() const {
  base::MutexLock lock(&mutex_);
  return lost_;
}

absl::Status Trace::Write(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("trace file ", Quoted(path), ": ",
                                                   std::strerror(errno),
                                                   "; a file that can be written is wanted"));
  }
  base::TraceJson json(started_);
  {
    base::MutexLock lock(&mutex_);
    for (const Source& source : sources_) json.AddGpu(source.ordinal, source.name);
  }
  for (;;) {
    const std::vector<gpushare_trace_event> events = Read(kReadAtOnce);
    if (events.empty()) break;
    for (const gpushare_trace_event& event : events) json.Add(event);
  }
  json.SetLost(lost());
  int failed = 0;
  json.Write([&](std::string_view text) {
    if (failed == 0 && std::fwrite(text.data(), 1, text.size(), file) != text.size()) {
      failed = errno;
    }
  });
  if (std::fclose(file) != 0 && failed == 0) failed = errno;
  if (failed == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("trace file ", Quoted(path), ": ", std::strerror(failed)));
}

}  // namespace gpushare::device
