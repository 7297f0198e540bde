// SPDX-License-Identifier: Apache-2.0
// Markers: which launches an event closes, who records it, and what happens if none can be recorded.
#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/no_cancel.h"
#include "driver/errors.h"
#include "gate/state.h"

namespace gpushare::gate {
namespace {

// CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and the other errors about captures.
constexpr int kFirstCaptureError = 900, kLastCaptureError = 908;

}  // namespace

Marker Engine::Impl::NewMarker(StreamGate& stream) {
  // The boundary is drawn now, so launches of other threads during the driver's call come behind it.
  replay.Boundary(stream.replay, /*holds=*/false);
  stream.marking = true;
  Marker marker;
  marker.id = next_marker++;
  marker.stream = &stream;
  marker.phase = stream.tenant->phase;
  marker.commands = std::exchange(stream.unmarked, 0);
  marker.unknown = std::exchange(stream.unmarked_unknown, 0);
  marker.charged_ns = std::exchange(stream.unmarked_ns, 0);
  marker.lease = std::exchange(stream.unmarked_lease, false);
  marker.passed = std::exchange(stream.unmarked_passed, false);
  return marker;
}

void Engine::Impl::CloseOpen(TenantState& tenant, StreamGate* only, const StreamGate* ended) {
  Marker todo[16];
  int count = 0;
  const Time began = clock.Now();
  {
    const Section section(*this);
    SyncLaunches(tenant, began);
    // A program may have thousands of streams.
    const std::span<const std::unique_ptr<StreamGate>> all(tenant.streams);
    for (const auto& stream : only == nullptr ? all : all.subspan(only->index, 1)) {
      if (!stream->live || stream->unmarked == 0 || stream->marking) continue;
      if (stream->thread != nullptr && stream->thread != ThisThread()) continue;
      if (only == nullptr && stream->entering > 0)
        continue;              // the entering thread or the next caller marks it
      if (count == 16) break;  // the other streams are marked next time
      Marker& marker = todo[count];
      try {
        marker = NewMarker(*stream);
      } catch (const std::bad_alloc&) {
        // The caller must go on without memory too, so this stream stays open and is marked next time. Other streams get their
        // markers.
        LookBy(began + kSilence);
        continue;
      }
      marker.ended_now = stream.get() == ended && marker.commands == 1;
      ++count;
      arbiter.Launched(tenant.id, marker.commands, began);
    }
  }
  if (count == 0) return;
  for (int i = 0; i < count; ++i) RecordMarker(todo[i]);
  const Time now = clock.Now();
  const Section section(*this);
  for (int i = 0; i < count; ++i) AddMarker(todo[i], now);
  LookBy(NextPoll(now));
}

// Puts the marker into the stream's list. False: there is no memory for it.
bool Engine::Impl::KeepMarker(StreamGate& stream, const Marker& marker) {
  try {
    if (stream.markers.empty()) marked_streams.push_back(&stream);
    stream.markers.push_back(marker);
    return true;
  } catch (const std::bad_alloc&) {
    if (stream.markers.empty()) std::erase(marked_streams, &stream);
    return false;
  }
}

// Hands a marker whose boundary is drawn to the reconciler. Without an event or memory for the marker, or if its stream was
// removed meanwhile, its work is settled as predicted.
void Engine::Impl::AddMarker(const Marker& marker, Time now) {
  StreamGate& stream = *marker.stream;
  TenantState& tenant = *stream.tenant;
  stream.marking = false;
  if (stream.live && marker.event != nullptr && KeepMarker(stream, marker)) {
    ++stream.markers_pending;
    ++tenant.stats.markers;
    return;
  }
  if (marker.event != nullptr) stream.events->Give(marker.event);
  if (stream.live) replay.DropBoundary(stream.replay);
  if (tenant.removed) return;
  if (marker.passed) PassedDone(tenant, Nanos(marker.charged_ns), now);
  SettleAsPredicted(tenant, marker.phase, marker.charged_ns, marker.commands, marker.unknown, now);
}

void Engine::Impl::SettleAsPredicted(TenantState& tenant, sched::Phase phase, int64_t charged_ns,
                                     int commands, int unknown, Time now) {
  arbiter.Settle(tenant.id, phase, Nanos(charged_ns), Nanos(charged_ns), commands, now);
  UnknownDone(tenant, unknown);
}

void Engine::Impl::RecordMarker(Marker& marker) {
  StreamGate& stream = *marker.stream;
  const base::NoCancel whole;  // the stream is `marking` until the marker is added
  const InContextOf there(*this, stream);
  if (there.ok()) marker.event = RecordMarkerHere(stream, marker);
}

bool Engine::Impl::MayCapture(const StreamGate& stream) {
  const InContextOf there(*this, stream);
  if (!there.ok()) return true;
  driver::Driver::Capture capture = driver::Driver::Capture::kNone;
  const driver::Result asked = driver.StreamCapture(stream.handle, &capture);
  return asked == driver::Result::kSuccess ? capture != driver::Driver::Capture::kNone
                                           : asked != driver::Result::kNotSupported;
}

driver::Event Engine::Impl::RecordMarkerHere(StreamGate& stream, Marker& marker) {
  driver::Driver::Capture capture = driver::Driver::Capture::kNone;
  const driver::Result asked = driver.StreamCapture(stream.handle, &capture);
  if (asked != driver::Result::kSuccess && asked != driver::Result::kNotSupported) {
    Refused(*stream.tenant, asked, "cuStreamIsCapturing");
    return nullptr;
  }
  if (capture != driver::Driver::Capture::kNone) return nullptr;
  driver::Event event = nullptr;
  try {
    const driver::Result taken = stream.events->Take(&event);
    if (taken != driver::Result::kSuccess) {
      Refused(*stream.tenant, taken, "cuEventCreate");
      return nullptr;
    }
  } catch (const std::bad_alloc&) {
    return nullptr;  // its work is settled as predicted
  }
  marker.recording = clock.Now();
  const driver::Result result = driver.RecordEvent(event, stream.handle);
  marker.recorded = clock.Now();
  if (result == driver::Result::kSuccess) return event;
  // An event that died with its context cannot be used again.
  if (result != driver::Result::kInvalidHandle) stream.events->Give(event);
  Refused(*stream.tenant, result, "cuEventRecord");
  return nullptr;
}

void Engine::Impl::Refused(TenantState& tenant, driver::Result refused, const char* call) noexcept {
  try {
    Report(tenant, driver::ToStatus(refused, call));
  } catch (const std::bad_alloc&) {
    events_suspect = true;  // a lost context will show again
  }
}

void Engine::Impl::Note(Incident incident, const TenantState& tenant) noexcept {
  try {
    incident.tenant = tenant.name;
    incidents.push_back(std::move(incident));
  } catch (const std::bad_alloc&) {
  }
}

void Engine::Impl::Report(TenantState& tenant, const absl::Status& refused) {
  // It is no fault if a capture is in progress.
  const int code = static_cast<int>(driver::FromStatus(refused));
  if (code >= kFirstCaptureError && code <= kLastCaptureError) return;
  const Section section(*this);
  events_suspect = true;
  LookBy(clock.Now());
  ++tenant.stats.markers_failed;
  tenant.stats.driver_error = std::string(refused.message());
  const bool lost =
      refused.code() == absl::StatusCode::kAborted || refused.code() == absl::StatusCode::kDataLoss;
  absl::Status& of_context = tenant.own_context != nullptr ? tenant.health : health;
  if (!lost || !of_context.ok()) return;
  of_context = refused;
  if (watchdog == nullptr) return;
  // The driver does not tell which tenant caused the fault. All tenants with work in flight in the context are reported, and
  // `tenant`, whose marker was refused.
  for (TenantState* open : open_tenants) SyncLaunches(*open, clock.Now());
  for (const auto& suspect : tenants) {
    if (suspect == nullptr || suspect->own_context != tenant.own_context) continue;
    const auto stream =
        std::find_if(suspect->streams.begin(), suspect->streams.end(), [](const auto& s) {
          return s->live && (s->markers_pending > 0 || s->unmarked > 0 || s->marking);
        });
    const bool holds_lease = std::any_of(leases.begin(), leases.end(), [&](const LeaseState& l) {
      return l.tenant == suspect.get();
    });
    const bool in_flight = stream != suspect->streams.end();
    if (!in_flight && !holds_lease && suspect.get() != &tenant) continue;
    Note({.kind = Incident::Kind::kFault,
          .tenant = {},
          .stream = in_flight ? (*stream)->handle : nullptr,
          .result = driver::FromStatus(refused)},
         *suspect);
  }
}

void Engine::Impl::SettleUnmarked(TenantState& tenant, StreamGate& stream, Time now) {
  if (stream.unmarked == 0) return;
  replay.Abandon(stream.replay);
  if (std::exchange(stream.unmarked_passed, false)) {
    PassedDone(tenant, Nanos(stream.unmarked_ns), now);
  }
  arbiter.Launched(tenant.id, stream.unmarked, now);
  SettleAsPredicted(tenant, tenant.phase, std::exchange(stream.unmarked_ns, 0),
                    std::exchange(stream.unmarked, 0), std::exchange(stream.unmarked_unknown, 0),
                    now);
}

void Engine::Impl::UnknownDone(TenantState& tenant, int commands) {
  if (commands == 0) return;
  tenant.unknown_in_flight -= commands;
  if (!tenant.waiting.empty()) Wake(tenant);
}

void Engine::Impl::MarkStart(Marker marker) {
  RecordMarker(marker);
  const Time now = clock.Now();
  const Section section(*this);
  AddMarker(marker, now);
  marker.stream->tenant->launching_since = now;  // the launch that the marker is for follows
}

}  // namespace gpushare::gate
