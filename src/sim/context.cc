// SPDX-License-Identifier: Apache-2.0
// Life of contexts.
#include <algorithm>
#include <memory>
#include <utility>

#include "sim/api/api.h"
#include "sim/graph/capture.h"
#include "sim/graph/ops.h"
#include "sim/processes/device.h"

namespace gpushare::sim {

Context* NewContext(Device* device, unsigned flags, bool primary) {
  State& s = state();
  auto context = std::make_unique<Context>();
  context->charged = s.config.context_memory;
  if (!device->memory.Charge(context->charged)) return nullptr;
  uint64_t* const kept = primary ? &s.primary_contexts[device->which] : nullptr;
  if (kept != nullptr && *kept != 0) {
    context->handle = *kept;
    s.contexts.Fill(*kept, context.get());
  } else {
    context->handle = s.contexts.Add(context.get());
    if (kept != nullptr) *kept = context->handle;
  }
  context->is_primary = primary;
  context->device = device;
  context->flags = flags;
  context->legacy = std::make_unique<Stream>();
  context->legacy->id = ++s.stream_ids;
  context->legacy->context = context.get();
  context->legacy->device = device;
  context->legacy->legacy = true;
  context->legacy->account = device->FindAccount(0);
  return context.release();
}

CUresult RetainPrimary(CUcontext* handle, CUdevice dev) {
  Device* const device = FindDevice(dev);
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary == nullptr) {
    device->primary = NewContext(device, device->primary_flags, true);
    if (device->primary == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++device->primary_count;
  *handle = HandleOf(device->primary);
  return CUDA_SUCCESS;
}

CUresult ReleasePrimary(CUdevice dev) {
  Device* const device = FindDevice(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (device->primary_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--device->primary_count == 0 && device->primary != nullptr) DestroyContext(device->primary);
  return CUDA_SUCCESS;
}

void DestroyContext(Context* context) {
  State& s = state();
  // Graph executables and captures go first: they refer to streams and functions.
  for (GraphExec* exec : s.graph_execs.All()) {
    if (exec->context == context) DestroyExec(exec);
  }
  CancelGraphsIn(context);
  while (!context->greens.empty()) DestroyGreenContext(context->greens.back());
  for (Stream* stream : std::vector<Stream*>(context->streams)) {
    AbandonCapture(stream);
    if (!stream->destroyed) s.streams.Remove(stream->handle);
    stream->destroyed = true;
    CancelStream(stream);  // the stream is freed with its work
  }
  CancelStream(context->legacy.get());
  Settle();
  for (Event* event : s.events.All()) {
    if (event->context != context) continue;
    if (event->record != nullptr) event->record->event = nullptr;
    s.events.Remove(event->handle);
    if (event->shared != Event::kNotShared && s.shared != nullptr) {
      s.shared->events().Close(event->shared);
    }
    delete event;
  }
  for (Module* module : s.modules.All()) {
    if (module->context == context) DestroyModule(module);
  }
  DestroyTexturesOf(context);
  ForgetArraysOf(context);
  context->device->memory.FreeAllOf(context);
  context->device->memory.Return(context->charged);
  s.managed.FreeAllOf(context);
  s.host.FreeAllOf(context);
  s.virtual_memory.FreeExternalOf(context);
  for (Context* other : s.contexts.All()) {
    auto& peers = other->peers;
    peers.erase(std::remove(peers.begin(), peers.end(), context->handle), peers.end());
  }
  if (context->is_primary) {
    s.contexts.Vacate(context->handle);
  } else {
    s.contexts.Remove(context->handle);
  }
  if (context->device->primary == context) context->device->primary = nullptr;
  delete context;
}

}  // namespace gpushare::sim
