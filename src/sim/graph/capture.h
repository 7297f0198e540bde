// SPDX-License-Identifier: Apache-2.0
// The rules of stream capture.
#ifndef GPUSHARE_SIM_GRAPH_CAPTURE_H_
#define GPUSHARE_SIM_GRAPH_CAPTURE_H_

#include "sim/api/api.h"
#include "sim/graph/graph.h"
#include "sim/stream/stream.h"

namespace gpushare::sim {

// For calls that may be unsafe while some thread captures: allocating, querying, synchronising. Refuses them as
// cuThreadExchangeStreamCaptureMode describes, and invalidates the captures that forbid them.
CUresult CheckUnsafeSlow(const ThreadContext& thread);
inline CUresult CheckUnsafe(const ThreadContext& thread) {
  return state().captures.active.empty() ? CUDA_SUCCESS : CheckUnsafeSlow(thread);
}

// For work submitted to the stream. On success, if the stream is capturing, the work has to become a node (AddCapturedNode)
// instead of a command. The legacy stream may not be used while a stream that synchronises with it captures.
CUresult CheckSubmitSlow(Stream* stream);
inline CUresult CheckSubmit(Stream* stream) {
  return state().captures.active.empty() ? CUDA_SUCCESS : CheckSubmitSlow(stream);
}

// For queries of and waits for the stream itself, illegal while it captures.
CUresult CheckStreamIdle(const ThreadContext& thread, Stream* stream);

// For waits for a context, or for a green one: illegal while one of its streams captures, in whichever mode the thread is.
CUresult CheckContextIdle(const ThreadContext& thread, const Context* context,
                          const GreenContext* green);

// Adds the next node of a capturing stream; it depends on the stream's tail.
GraphNode* AddCapturedNode(Stream* stream, NodeType type);

CUresult CaptureRecord(Stream* stream, Event* event);
// Makes the stream join the capture into which the event was recorded.
CUresult CaptureWait(Stream* stream, Event* event);

CUresult BeginCapture(const ThreadContext& thread, Stream* stream, CUstreamCaptureMode mode,
                      Graph* existing);
CUresult EndCapture(const ThreadContext& thread, Stream* stream, CUgraph* graph);
// Invalidates the capture of a stream that is being destroyed.
void AbandonCapture(Stream* stream);

void Invalidate(Capture* capture);
// For calls that cannot become a node: a capturing stream loses its capture.
inline CUresult RefuseCapture(Stream* stream) {
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  Invalidate(stream->capture);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}
// For work submitted to the stream that cannot become a node.
inline CUresult CheckSubmitUncaptured(Stream* stream) {
  const CUresult result = CheckSubmit(stream);
  return result == CUDA_SUCCESS ? RefuseCapture(stream) : result;
}

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_CAPTURE_H_
