// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/capture.h"

#include <algorithm>
#include <utility>

#include "sim/graph/ops.h"

namespace gpushare::sim {

void Invalidate(Capture* capture) { capture->invalidated = true; }

CUresult CheckUnsafeSlow(const ThreadContext& thread) {
  if (thread.capture_mode == CaptureMode::kRelaxed) return CUDA_SUCCESS;
  bool refused = false;
  for (const auto& capture : state().captures.active) {
    if (capture->invalidated) continue;
    const bool own = capture->thread == &thread;
    const bool forbids =
        own ? capture->mode != CaptureMode::kRelaxed
            : capture->mode == CaptureMode::kGlobal && thread.capture_mode == CaptureMode::kGlobal;
    if (!forbids) continue;
    refused = true;
    Invalidate(capture.get());
  }
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult CheckSubmitSlow(Stream* stream) {
  if (stream->capture != nullptr) {
    return stream->capture->invalidated ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  }
  if (!stream->legacy) return CUDA_SUCCESS;
  bool refused = false;
  for (const auto& capture : state().captures.active) {
    for (const Stream* captured : capture->streams) {
      if (captured->context != stream->context || captured->non_blocking) continue;
      refused = true;
      Invalidate(capture.get());
    }
  }
  return refused ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

CUresult CheckStreamIdle(const ThreadContext& thread, Stream* stream) {
  if (state().captures.active.empty()) return CUDA_SUCCESS;
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return RefuseCapture(stream);
  }
  if (stream->legacy) {
    const CUresult result = CheckSubmitSlow(stream);
    if (result != CUDA_SUCCESS) return result;
  }
  return CheckUnsafeSlow(thread);
}

CUresult CheckContextIdle(const ThreadContext& thread, const Context* context,
                          const GreenContext* green) {
  bool refused = false;
  for (const auto& capture : state().captures.active) {
    if (capture->invalidated) continue;
    if (std::none_of(capture->streams.begin(), capture->streams.end(), [&](const Stream* stream) {
          return stream->context == context && (green == nullptr || stream->green == green);
        })) {
      continue;
    }
    refused = true;
    Invalidate(capture.get());
  }
  const CUresult unsafe = CheckUnsafe(thread);
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : unsafe;
}

GraphNode* AddCapturedNode(Stream* stream, NodeType type) {
  Capture* const capture = stream->capture;
  GraphNode* const node = AddNode(capture->target, type, stream->capture_tail);
  node->context = stream->context;
  node->partition = stream->partition;
  node->priority = stream->priority;
  node->own_priority = true;
  stream->capture_tail.assign(1, node);
  return node;
}

CUresult CaptureRecord(Stream* stream, Event* event) {
  event->capture = stream->capture;
  event->capture_id = stream->capture->id;
  event->capture_tail = stream->capture_tail;
  event->recorded = true;
  if (event->record != nullptr) event->record->event = nullptr;
  event->record = nullptr;
  return CUDA_SUCCESS;
}

CUresult CaptureWait(Stream* stream, Event* event) {
  Capture* const capture = event->capture;
  if (capture == nullptr) {
    // The event is not part of the capture, so the capture cannot depend on it.
    Invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->capture == nullptr) {
    if (stream->legacy) {
      Invalidate(capture);
      return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    stream->capture = capture;
    stream->capture_tail = event->capture_tail;
    capture->streams.push_back(stream);
    return CUDA_SUCCESS;
  }
  if (stream->capture != capture) {
    Invalidate(capture);
    Invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  for (GraphNode* node : event->capture_tail) {
    std::vector<GraphNode*>& tail = stream->capture_tail;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  return CUDA_SUCCESS;
}

CUresult BeginCapture(const ThreadContext& thread, Stream* stream, CUstreamCaptureMode mode,
                      Graph* existing) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  State& s = state();
  auto capture = std::make_unique<Capture>();
  capture->id = ++s.captures.ids;
  capture->mode = static_cast<CaptureMode>(mode);
  capture->origin = stream;
  capture->thread = &thread;
  if (existing == nullptr) {
    capture->graph = std::make_unique<Graph>();
    capture->graph->capturing = true;
    // Nodes and cuStreamGetCaptureInfo refer to this handle.
    capture->graph->handle = s.graphs.Add(capture->graph.get());
    capture->target = capture->graph.get();
  } else {
    capture->target = existing;
  }
  capture->streams.push_back(stream);
  stream->capture = capture.get();
  stream->capture_tail.clear();
  s.captures.active.push_back(std::move(capture));
  return CUDA_SUCCESS;
}

namespace {

// Detaches the capture from its streams and events and removes it from the list.
std::unique_ptr<Capture> Finish(Capture* capture) {
  State& s = state();
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  for (Event* event : s.events.All()) {
    if (event->capture == capture) {
      event->capture = nullptr;
      event->capture_tail.clear();
    }
  }
  std::vector<std::unique_ptr<Capture>>& active = s.captures.active;
  const auto found = std::find_if(active.begin(), active.end(),
                                  [&](const auto& one) { return one.get() == capture; });
  std::unique_ptr<Capture> result = std::move(*found);
  active.erase(found);
  return result;
}

// A stream that joined the capture counts as joined back when the origin's tail depends on everything it did.
bool AllJoined(const Capture& capture) {
  std::vector<const GraphNode*> reached(capture.origin->capture_tail.begin(),
                                        capture.origin->capture_tail.end());
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const GraphNode* node : reached[i]->dependencies) {
      if (std::find(reached.begin(), reached.end(), node) == reached.end()) reached.push_back(node);
    }
  }
  for (const Stream* stream : capture.streams) {
    if (stream == capture.origin) continue;
    for (const GraphNode* node : stream->capture_tail) {
      if (std::find(reached.begin(), reached.end(), node) == reached.end()) return false;
    }
  }
  return true;
}

}  // namespace

CUresult EndCapture(const ThreadContext& thread, Stream* stream, CUgraph* graph) {
  Capture* const capture = stream->capture;
  *graph = nullptr;
  if (capture == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) {
    Invalidate(capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  if (capture->mode != CaptureMode::kRelaxed && capture->thread != &thread) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  CUresult result = CUDA_SUCCESS;
  if (capture->invalidated) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (!AllJoined(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  const std::unique_ptr<Capture> ended = Finish(capture);
  if (ended->graph == nullptr) {
    if (result == CUDA_SUCCESS) *graph = reinterpret_cast<CUgraph>(ended->target->handle);
    return result;
  }
  ended->graph->capturing = false;
  if (result != CUDA_SUCCESS) {
    DropGraph(ended->graph.get());
    return result;
  }
  *graph = reinterpret_cast<CUgraph>(ended->graph->handle);
  static_cast<void>(ended->graph.release());  // owned through its handle from now on
  return CUDA_SUCCESS;
}

void AbandonCapture(Stream* stream) {
  Capture* const capture = stream->capture;
  if (capture == nullptr) return;
  Invalidate(capture);
  if (capture->origin == stream) {
    const std::unique_ptr<Capture> ended = Finish(capture);
    if (ended->graph != nullptr) DropGraph(ended->graph.get());
    return;
  }
  std::vector<Stream*>& streams = capture->streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  stream->capture = nullptr;
}

}  // namespace gpushare::sim
