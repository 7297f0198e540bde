// SPDX-License-Identifier: Apache-2.0
// Stream capture.
#include "sim/graph/capture.h"

#include <algorithm>
#include <vector>

#include "sim/api/api.h"

namespace gpushare::sim {
namespace {

CUresult Begin(const ThreadContext& thread, CUstream handle, CUstreamCaptureMode mode,
               NullStream null) {
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  return result != CUDA_SUCCESS ? result : BeginCapture(thread, stream, mode, nullptr);
}

CUresult BeginToGraph(const ThreadContext& thread, CUstream handle, CUgraph graph_handle,
                      const CUgraphNode* dependencies, size_t count, CUstreamCaptureMode mode,
                      NullStream null) {
  State& s = state();
  Graph* const graph = s.graphs.Find(graph_handle);
  if (graph == nullptr || graph->capturing || (count > 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<GraphNode*> tail;
  for (size_t i = 0; i < count; ++i) {
    tail.push_back(s.nodes.Find(dependencies[i]));
    if (tail.back() == nullptr || tail.back()->graph != graph) return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream;
  CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = BeginCapture(thread, stream, mode, graph);
  if (result == CUDA_SUCCESS) stream->capture_tail = tail;
  return result;
}

CUresult End(const ThreadContext& thread, CUstream handle, CUgraph* graph, NullStream null) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  return result != CUDA_SUCCESS ? result : EndCapture(thread, stream, graph);
}

CUstreamCaptureStatus StatusOf(const Stream& stream) {
  if (stream.capture == nullptr) return CU_STREAM_CAPTURE_STATUS_NONE;
  return stream.capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

// The legacy stream cannot be queried while a stream that synchronises with it captures.
CUresult FindToAsk(CUstream handle, NullStream null, Stream** stream) {
  const CUresult result = FindStream(handle, null, stream);
  if (result != CUDA_SUCCESS) return result;
  if (!(*stream)->legacy) return CUDA_SUCCESS;
  for (const auto& capture : state().captures.active) {
    for (const Stream* captured : capture->streams) {
      if (captured->context == (*stream)->context && !captured->non_blocking) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
  }
  return CUDA_SUCCESS;
}

CUresult IsCapturing(CUstream handle, CUstreamCaptureStatus* status, NullStream null) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindToAsk(handle, null, &stream);
  if (result == CUDA_SUCCESS) *status = StatusOf(*stream);
  return result;
}

CUresult Info(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
              const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count,
              NullStream null) {
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream;
  const CUresult result = FindToAsk(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  *status = StatusOf(*stream);
  if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  if (id != nullptr) *id = stream->capture->id;
  if (graph != nullptr) *graph = reinterpret_cast<CUgraph>(stream->capture->target->handle);
  if (dependencies != nullptr) {
    // The list stays valid until the next call on the stream, as the driver promises.
    stream->capture_handles.clear();
    for (const GraphNode* node : stream->capture_tail) {
      stream->capture_handles.push_back(node->handle);
    }
    *dependencies = reinterpret_cast<const CUgraphNode*>(stream->capture_handles.data());
  }
  if (edges != nullptr) *edges = nullptr;  // all edges are plain
  if (count != nullptr) *count = stream->capture_tail.size();
  return CUDA_SUCCESS;
}

CUresult UpdateDependencies(CUstream handle, const CUgraphNode* dependencies, size_t count,
                            unsigned flags, NullStream null) {
  State& s = state();
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count > 0 && dependencies == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Stream* stream;
  const CUresult result = FindStream(handle, null, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (StatusOf(*stream) != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_ERROR_ILLEGAL_STATE;
  std::vector<GraphNode*> tail;
  if (flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES) tail = stream->capture_tail;
  for (size_t i = 0; i < count; ++i) {
    GraphNode* const node = s.nodes.Find(dependencies[i]);
    if (node == nullptr || node->graph != stream->capture->target) return CUDA_ERROR_INVALID_VALUE;
    if (std::find(tail.begin(), tail.end(), node) == tail.end()) tail.push_back(node);
  }
  stream->capture_tail = tail;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_STREAM_API(cuStreamBeginCapture_v2, _ptsz, kCall, (CUstream stream, CUstreamCaptureMode mode),
               Begin(scope.thread(), stream, mode, null));
SIM_STREAM_API(cuStreamBeginCapture, _ptsz, kCall, (CUstream stream),
               Begin(scope.thread(), stream, CU_STREAM_CAPTURE_MODE_GLOBAL, null));
SIM_STREAM_API(cuStreamBeginCaptureToGraph, _ptsz, kCall,
               (CUstream stream, CUgraph graph, const CUgraphNode* dependencies,
                const CUgraphEdgeData*, size_t count, CUstreamCaptureMode mode),
               BeginToGraph(scope.thread(), stream, graph, dependencies, count, mode, null));
SIM_STREAM_API(cuStreamEndCapture, _ptsz, kCall, (CUstream stream, CUgraph* graph),
               End(scope.thread(), stream, graph, null));
SIM_STREAM_API(cuStreamIsCapturing, _ptsz, kNone, (CUstream stream, CUstreamCaptureStatus* status),
               IsCapturing(stream, status, null));
SIM_STREAM_API(cuStreamGetCaptureInfo, _ptsz, kNone,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id),
               Info(stream, status, id, nullptr, nullptr, nullptr, nullptr, null));
SIM_STREAM_API(cuStreamGetCaptureInfo_v2, _ptsz, kNone,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** dependencies, size_t* count),
               Info(stream, status, id, graph, dependencies, nullptr, count, null));
SIM_STREAM_API(cuStreamGetCaptureInfo_v3, _ptsz, kNone,
               (CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                const CUgraphNode** dependencies, const CUgraphEdgeData** edges, size_t* count),
               Info(stream, status, id, graph, dependencies, edges, count, null));
SIM_STREAM_API(cuStreamUpdateCaptureDependencies, _ptsz, kNone,
               (CUstream stream, CUgraphNode* dependencies, size_t count, unsigned flags),
               UpdateDependencies(stream, dependencies, count, flags, null));
SIM_STREAM_API(cuStreamUpdateCaptureDependencies_v2, _ptsz, kNone,
               (CUstream stream, CUgraphNode* dependencies, const CUgraphEdgeData*, size_t count,
                unsigned flags),
               UpdateDependencies(stream, dependencies, count, flags, null));

SIM_API(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode* mode) {
  SIM_ENTER(cuThreadExchangeStreamCaptureMode, kNone);
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ThreadContext& thread = scope.thread();
  const auto wanted = static_cast<CaptureMode>(*mode);
  *mode = static_cast<CUstreamCaptureMode>(thread.capture_mode);
  thread.capture_mode = wanted;
  return CUDA_SUCCESS;
}
