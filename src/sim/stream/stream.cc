// SPDX-License-Identifier: Apache-2.0
#include "sim/stream/stream.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "sim/device/stamps.h"
#include "sim/processes/device.h"
#include "sim/state.h"
#include "sim/stream/copy.h"
#include "sim/stream/memory_operation.h"
#include "sim/stream/memory_work.h"

namespace gpushare::sim {
namespace {

void MayStart(Command* command) { state().eligible.push_back({command, command->generation}); }

// Starts the command when its time has come.
void Defer(Command* command) {
  if (command->due_set) return;
  command->due_set = true;
  state().timeline.Push(command->earliest, command, Due::kStart, 0);
}

void Start(Command* command) {
  State& s = state();
  const uint64_t now = s.clock.now();
  if (command->earliest > now) return Defer(command);
  command->started = true;
  switch (command->type) {
    case CommandType::kKernel:
      command->stream->device->StartKernel(command);
      break;
    case CommandType::kCopy:
    case CommandType::kSet:
    case CommandType::kPrefetch:
      command->stream->device->StartTransfer(command, s.timeline, now);
      break;
    case CommandType::kRecord:
      if (command->timed && s.config.record_device > 0) {
        command->stream->device->StartRecord(command, s.timeline, now);
      } else {
        Complete(command);
      }
      break;
    case CommandType::kEmpty:
    case CommandType::kMemory:
      Complete(command);
      break;
    case CommandType::kWaitValue:
      BlockOnValue(command);
      break;
    case CommandType::kWriteValue:
      s.timeline.Push(now, command, Due::kDone, 0);
      break;
    case CommandType::kHost:
      s.host_functions.Run(command);
      break;
    case CommandType::kGraph:
      for (const GraphRun::Node& node : command->graph->nodes) {
        if (node.command->pending == 0) MayStart(node.command);
      }
      if (command->graph->nodes.empty()) Complete(command);
      break;
  }
}

// Wakes threads whose waits for shared events are over, and updates which process has the SMs of each device. Returns when to
// call again.
uint64_t UpdateSlice() {
  State& s = state();
  SharedEvents& events = s.shared->events();
  if (!events.waiters().empty() && events.IsOver()) {
    s.clock.WakeAll(events.waiters(), s.config.sync_return);
  }
  uint64_t next = kForever;
  for (const auto& device : s.devices) {
    next = std::min(next, s.shared->slices().Update(*device, s.timeline, s.clock.now()));
  }
  return next;
}

void DeleteIfDone(Stream* stream) {
  if (!stream->destroyed || stream->head != nullptr) return;
  std::vector<Stream*>& streams = stream->context->streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  state().clock.WakeAll(stream->space, 0);  // they will find the stream gone
  delete stream;
}

// Frees what a command holds once its work is done or dropped.
void Release(Command* command) {
  State& s = state();
  for (Edge* edge = command->dependents; edge != nullptr;) {
    Command* const to = edge->to;
    if (to->generation == edge->generation && --to->pending == 0 &&
        (to->run != nullptr ? to->run->command->started : to->stream->head == to)) {
      MayStart(to);
    }
    Edge* const next = edge->next;
    s.pool.Delete(edge);
    edge = next;
  }
  command->dependents = nullptr;
  if (!command->waiters.empty()) s.clock.WakeAll(command->waiters, s.config.sync_return);
  if (command->type == CommandType::kRecord && command->timed && command->started &&
      s.config.record_device > 0) {
    command->stream->device->EndRecord();
  }
  if (command->type == CommandType::kRecord && command->event != nullptr) {
    Event* const event = command->event;
    if (event->record == command) {
      event->record = nullptr;
      event->stamp = s.clock.now();
    }
    if (event->shared != Event::kNotShared) [[unlikely]] {
      --event->shared_records;
      if (s.shared != nullptr) s.shared->events().Complete(event->shared, s.clock.now());
      CloseIfDone(event);
    }
  }
  if (command->type == CommandType::kCopy) std::free(command->copy.staged);
  if (command->type == CommandType::kMemory) [[unlikely]]
    FinishMemory(command->memory);
  if (Counts(command->type)) --command->account->queued;
}

void Unlink(Command* command) {
  State& s = state();
  Stream* const stream = command->stream;
  stream->head = command->next;
  if (stream->head == nullptr) stream->tail = nullptr;
  --stream->queued;
  if (!stream->space.empty()) s.clock.WakeOne(stream->space, s.config.wake_spin);
  s.pool.Delete(command);
  if (stream->head != nullptr && stream->head->pending == 0) MayStart(stream->head);
  DeleteIfDone(stream);
}

void Cancel(Command* command) {
  State& s = state();
  if (command->type == CommandType::kGraph) {
    for (const GraphRun::Node& node : command->graph->nodes) {
      if (node.command->generation == node.generation) Cancel(node.command);
    }
    delete command->graph;
  } else if (command->started && (Counts(command->type))) {
    command->stream->device->Cancel(command, s.timeline, s.clock.now());
  }
  Release(command);
  if (command->run != nullptr) s.pool.Delete(command);
}

}  // namespace

void Submit(Stream* stream, Command* command) {
  State& s = state();
  // The legacy stream waits for all blocking streams, and they for it.
  if (!stream->non_blocking) {
    Context* const context = stream->context;
    if (stream->legacy) {
      for (Stream* other : context->streams) {
        if (!other->non_blocking && other->green == stream->green && other->tail != nullptr) {
          s.pool.AddEdge(other->tail, command);
        }
      }
    } else if (Command* const before = LegacyOf(*stream)->tail; before != nullptr) {
      s.pool.AddEdge(before, command);
    }
  }
  ++stream->queued;
  if (stream->tail != nullptr) {
    stream->tail->next = command;
    stream->tail = command;
    return;
  }
  stream->head = stream->tail = command;
  if (command->pending != 0) return;
  if (command->earliest > s.clock.now()) {
    // Nothing else changes, so there is no need to settle.
    Defer(command);
    s.clock.SetNextEvent(s.shared == nullptr ? s.timeline.next()
                                             : std::min(s.clock.next_event(), s.timeline.next()));
    return;
  }
  MayStart(command);
  Settle();
}

void Complete(Command* command) {
  State& s = state();
  Context* const context = command->stream->context;
  bool faulted = false;
  if (command->type == CommandType::kKernel) {
    faulted = command->kernel.faults;
    if (command->kernel.stamped) [[unlikely]]
      faulted = !WriteStamps(*command, s.clock.now()) || faulted;
  }
  if (command->type == CommandType::kGraph) delete command->graph;
  Release(command);
  if (GraphRun* const run = command->run) {
    s.pool.Delete(command);
    if (--run->left == 0) Complete(run->command);
  } else {
    Unlink(command);
  }
  if (faulted) LoseContext(context, kIllegalAddress);
}

// Starts everything that can start. Inline in RunDueEvents(), which runs for every event of the device.
[[gnu::always_inline]] static inline void SettleHere() {
  State& s = state();
  uint64_t slice = kForever;
  for (;;) {
    // Starting one command may add others.
    for (size_t i = 0; i < s.eligible.size(); ++i) {
      Command* const command = s.eligible[i].command;
      if (command->generation == s.eligible[i].generation) Start(command);
    }
    s.eligible.clear();
    for (const auto& device : s.devices) {
      if (device->needs_dispatch()) device->Dispatch(s.timeline, s.clock.now());
    }
    if (!s.value_waits.empty()) [[unlikely]]
      CheckValueWaits();
    if (!s.eligible.empty()) continue;
    if (s.shared == nullptr) [[likely]]
      break;
    slice = UpdateSlice();
    if (std::none_of(s.devices.begin(), s.devices.end(),
                     [](const auto& device) { return device->needs_dispatch(); })) {
      break;
    }
  }
  s.clock.SetNextEvent(std::min(s.timeline.next(), slice));
}

void Settle() { SettleHere(); }

void RunDueEvents() {
  State& s = state();
  const uint64_t now = s.clock.now();
  if (s.shared != nullptr) [[unlikely]] {
    for (const auto& device : s.devices) s.shared->slices().Notice(*device, s.timeline, now);
  }
  while (s.timeline.next() <= now) {
    Command* const command = s.timeline.top().command;
    const bool stale = command->generation != s.timeline.top().generation;
    const Due due = s.timeline.top().due();
    const uint32_t count = s.timeline.top().count();
    s.timeline.Pop();
    if (stale) continue;
    switch (due) {
      case Due::kStart:
        command->due_set = false;
        Start(command);
        break;
      case Due::kGroups:
        if (command->stream->device->FinishGroups(command, count, now)) Complete(command);
        break;
      case Due::kBatch:
        if (command->stream->device->FinishBatch(command, count, now)) Complete(command);
        break;
      case Due::kDone: {
        Context* const context = command->stream->context;
        bool fault = false;
        if (command->type == CommandType::kWriteValue) {
          fault = !WriteValue(*command);
        } else if (command->type != CommandType::kRecord) {
          fault = !MoveBytes(*command);
          command->stream->device->FinishTransfer(command, s.timeline, now);
        }
        Complete(command);
        if (fault) [[unlikely]]
          LoseContext(context, kIllegalAddress);
        break;
      }
    }
  }
  SettleHere();
}

void CancelStream(Stream* stream) {
  State& s = state();
  while (Command* const command = stream->head) {
    Cancel(command);
    stream->head = command->next;
    if (stream->head == nullptr) stream->tail = nullptr;
    s.pool.Delete(command);
  }
  stream->queued = 0;
  s.clock.WakeAll(stream->space, s.config.wake_spin);
  DeleteIfDone(stream);
}

namespace {

bool HasGraphIn(const Stream& stream, const Context* context) {
  for (const Command* command = stream.head; command != nullptr; command = command->next) {
    if (command->type != CommandType::kGraph) continue;
    for (const GraphRun::Node& node : command->graph->nodes) {
      if (node.command->generation == node.generation && node.command->stream->context == context) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

void CancelGraphsIn(const Context* context) {
  for (Context* other : state().contexts.All()) {
    if (other == context) continue;
    std::vector<Stream*> streams = other->streams;
    streams.push_back(other->legacy.get());
    for (Stream* stream : streams) {
      if (HasGraphIn(*stream, context)) CancelStream(stream);
    }
  }
}

void LoseContext(Context* context, int code) {
  context->lost = code;
  CancelGraphsIn(context);
  CancelStream(context->legacy.get());
  for (const GreenContext* green : context->greens) {
    CancelStream(green->legacy.get());
    CancelStream(green->order.get());
  }
  // A copy of the list: a destroyed stream is removed with its last command.
  const std::vector<Stream*> streams = context->streams;
  for (Stream* stream : streams) CancelStream(stream);
}

}  // namespace gpushare::sim
