// SPDX-License-Identifier: Apache-2.0
// Stream capture and its rules.
#include "tests/sim/sim_test.h"

namespace gpushare::sim_test {
namespace {

class CaptureTest : public SimTest {
 protected:
  CUstreamCaptureStatus Status(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_CU(cuStreamIsCapturing(stream, &status));
    return status;
  }
  size_t CountNodes(CUgraph graph) {
    size_t count = 0;
    EXPECT_CU(cuGraphGetNodes(graph, nullptr, &count));
    return count;
  }
  size_t CountEdges(CUgraph graph) {
    size_t count = 0;
    EXPECT_CU(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
    return count;
  }
};

TEST_F(CaptureTest, CapturedWorkDoesNotRun) {
  const CUstream a = NewStream();
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(Spin(a, 20'000, 10));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Truth(0).queued, 0u);
  EXPECT_EQ(CountNodes(graph), 2u);
  CUgraphExec exec;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  EXPECT_EQ(DoneAt(a, start), 30'000u);
  ASSERT_CU(cuGraphExecDestroy(exec));
  ASSERT_CU(cuGraphDestroy(graph));
}

TEST_F(CaptureTest, EventsForkAndJoin) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent(), join = NewEvent();
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(fork, a));
  ASSERT_CU(cuStreamWaitEvent(b, fork, 0));
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_CU(Spin(b, 30'000, 10));
  ASSERT_CU(Spin(a, 20'000, 10));
  ASSERT_CU(cuEventRecord(join, b));
  ASSERT_CU(cuStreamWaitEvent(a, join, 0));
  ASSERT_CU(Spin(a, 10'000, 10));
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(CountNodes(graph), 4u);
  CUgraphExec exec;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, b));
  EXPECT_EQ(DoneAt(b, start), 50'000u);  // the branches overlap
}

// Three branches on a device of which two fit at a time. Those that wait for the same node start in the order of the graph.
TEST_F(CaptureTest, BranchesStartInTheirOrder) {
  const CUstream a = NewStream(), b = NewStream(), c = NewStream();
  const CUevent fork = NewEvent(), join = NewEvent();
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuEventRecord(fork, a));
  ASSERT_CU(cuStreamWaitEvent(b, fork, 0));
  ASSERT_CU(cuStreamWaitEvent(c, fork, 0));
  ASSERT_CU(Spin(a, 30'000, 50));
  ASSERT_CU(Spin(b, 20'000, 50));
  ASSERT_CU(Spin(c, 20'000, 50));
  for (const CUstream branch : {b, c}) {
    ASSERT_CU(cuEventRecord(join, branch));
    ASSERT_CU(cuStreamWaitEvent(a, join, 0));
  }
  CUgraph graph = nullptr;
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  CUgraphExec exec;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, a));
  // In the other order it would take 60'000.
  EXPECT_EQ(DoneAt(a, start), 50'000u);
}

TEST_F(CaptureTest, AForkThatIsNotJoinedFails) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent();
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuEventRecord(fork, a));
  ASSERT_CU(cuStreamWaitEvent(b, fork, 0));
  ASSERT_CU(Spin(b, 10'000, 10));
  CUgraph graph = reinterpret_cast<CUgraph>(1);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Status(b), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_F(CaptureTest, OnlyTheOriginMayEnd) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent();
  CUgraph graph;
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_CU(cuEventRecord(fork, a));
  ASSERT_CU(cuStreamWaitEvent(b, fork, 0));
  EXPECT_EQ(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TheThreadThatBeganMustEndUnlessRelaxed) {
  const CUstream a = NewStream();
  CUgraph graph = nullptr;
  CUresult result = CUDA_SUCCESS;
  const auto end_elsewhere = [&] {
    SimThread other("other", [&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      result = cuStreamEndCapture(a, &graph);
    });
  };
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  end_elsewhere();
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  end_elsewhere();
  EXPECT_EQ(result, CUDA_SUCCESS);
}

TEST_F(CaptureTest, AskingACapturingStreamInvalidatesIt) {
  const CUstream a = NewStream();
  CUgraph graph;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(Spin(a, 1000, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_CU(Spin(a, 1000, 1));
}

TEST_F(CaptureTest, AGlobalCaptureForbidsUnsafeCallsInEveryThread) {
  const CUstream a = NewStream(), other_stream = NewStream();
  const CUevent event = NewEvent();
  CUgraph graph;
  CUdeviceptr pointer;
  const auto elsewhere = [&](CUstreamCaptureMode mode, const std::function<CUresult()>& call) {
    CUresult result = CUDA_SUCCESS;
    SimThread other("other", [&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
      EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      result = call();
    });
    other.Join();
    return result;
  };
  const std::function<CUresult()> unsafe[] = {
      [&] { return cuEventQuery(event); },
      [&] { return cuMemAlloc(&pointer, 1000); },
      [&] { return cuStreamSynchronize(other_stream); },
  };
  for (const auto& call : unsafe) {
    ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_CU(elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED, call));
    EXPECT_CU(elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, call));
    EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, call),
              CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  // Launching into other streams and recording events is always allowed.
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_CU(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return Spin(other_stream, 10, 1); }));
  EXPECT_CU(
      elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { return cuEventRecord(event, other_stream); }));
  EXPECT_CU(cuStreamEndCapture(a, &graph));
}

// As CUDA says of a handle that encompasses an active capture. A free waits for the same work, and is only unsafe.
TEST_F(CaptureTest, ACaptureForbidsWaitsForItsContextInEveryModeAndThread) {
  const CUstream a = NewStream(), busy = NewStream();
  CUgraph graph;
  CUdeviceptr pointer;
  ASSERT_CU(cuMemAlloc(&pointer, 1000));
  for (const bool waits_for_context : {true, false}) {
    ASSERT_CU(Spin(busy, 1'000'000, 1));
    ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    SimThread other("other", [&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
      EXPECT_CU(cuThreadExchangeStreamCaptureMode(&mode));
      if (waits_for_context) {
        EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
      } else {
        EXPECT_CU(cuMemFree(pointer));
        EXPECT_CU(cuStreamQuery(busy));
      }
    });
    other.Join();
    EXPECT_EQ(Status(a), waits_for_context ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE);
    EXPECT_EQ(cuStreamEndCapture(a, &graph),
              waits_for_context ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
  }
  // A capture in another context does not matter.
  CUcontext mine = nullptr;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuCtxCreate_v2(&mine, 0, device_));
  EXPECT_CU(cuCtxSynchronize());
  EXPECT_CU(cuCtxDestroy(mine));
  EXPECT_CU(cuStreamEndCapture(a, &graph));
}

TEST_F(CaptureTest, AThreadLocalCaptureForbidsThemOnlyInItsThread) {
  const CUstream a = NewStream();
  CUgraph graph;
  CUdeviceptr pointer;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  {
    SimThread other("other", [&] {
      EXPECT_CU(cuCtxSetCurrent(context_));
      EXPECT_CU(cuMemAlloc(&pointer, 1000));
    });
  }
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuMemAlloc(&pointer, 1000), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  // A relaxed capture allows all calls except those on the stream itself.
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(cuMemAlloc(&pointer, 1000));
  EXPECT_CU(cuStreamEndCapture(a, &graph));
}

TEST_F(CaptureTest, TheLegacyStreamMayNotBeUsedWhileABlockingStreamCaptures) {
  const CUstream a = NewStream(0, CU_STREAM_DEFAULT), b = NewStream();
  CUgraph graph;
  EXPECT_EQ(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status;
  EXPECT_EQ(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(Status(a), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(Spin(nullptr, 1000, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_CU(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CU(Spin(nullptr, 1000, 1));  // a non-blocking stream is not affected
  EXPECT_CU(cuStreamEndCapture(b, &graph));
}

TEST_F(CaptureTest, EventsAndStreamsDoNotCrossCaptures) {
  const CUstream a = NewStream(), b = NewStream(), c = NewStream();
  const CUevent outside = NewEvent(), in_a = NewEvent();
  CUgraph graph;
  ASSERT_CU(Spin(c, 10'000, 1));
  ASSERT_CU(cuEventRecord(outside, c));
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuEventRecord(in_a, a));
  EXPECT_EQ(cuEventQuery(in_a), CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_CU(cuStreamEndCapture(b, &graph));

  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuEventRecord(in_a, a));
  EXPECT_EQ(cuStreamWaitEvent(b, in_a, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(CaptureTest, TheCaptureCanBeInspectedAndItsTailReplaced) {
  const CUstream a = NewStream();
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(Spin(a, 10'000, 10));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph graph = nullptr, ended = nullptr;
  const CUgraphNode* tail = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  ASSERT_CU(cuStreamGetCaptureInfo_v3(a, &status, &id, &graph, &tail, &edges, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_NE(id, 0u);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(CountNodes(graph), 1u);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);  // the graph belongs to the capture
  CUgraphNode mine = nullptr;
  ASSERT_CU(cuGraphAddEmptyNode(&mine, graph, tail, count));
  ASSERT_CU(cuStreamUpdateCaptureDependencies_v2(a, &mine, nullptr, 1,
                                                 CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  ASSERT_CU(Spin(a, 10'000, 10));
  ASSERT_CU(cuStreamEndCapture(a, &ended));
  EXPECT_EQ(ended, graph);
  EXPECT_EQ(CountNodes(graph), 3u);
  EXPECT_EQ(CountEdges(graph), 2u);
}

TEST_F(CaptureTest, CopiesSetsAndHostFunctionsAreCaptured) {
  const CUstream a = NewStream();
  void* host = nullptr;
  CUdeviceptr device;
  ASSERT_CU(cuMemAllocHost(&host, 64));
  ASSERT_CU(cuMemAlloc(&device, 64));
  int calls = 0;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CU(cuMemsetD8Async(device, 42, 64, a));
  ASSERT_CU(cuMemcpyDtoHAsync(host, device, 64, a));
  ASSERT_CU(cuLaunchHostFunc(
      a, [](void* data) { ++*static_cast<int*>(data); }, &calls));
  CUgraph graph;
  ASSERT_CU(cuStreamEndCapture(a, &graph));
  static_cast<char*>(host)[9] = 0;
  CUgraphExec exec;
  ASSERT_CU(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 1; i <= 3; ++i) {
    ASSERT_CU(cuGraphLaunch(exec, a));
    ASSERT_CU(cuStreamSynchronize(a));
    EXPECT_EQ(calls, i);
  }
  EXPECT_EQ(static_cast<char*>(host)[9], 42);
}

TEST_F(CaptureTest, ACapturingStreamCanBeDestroyed) {
  const CUstream a = NewStream(), b = NewStream();
  const CUevent fork = NewEvent();
  CUgraph graph;
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuEventRecord(fork, a));
  ASSERT_CU(cuStreamWaitEvent(b, fork, 0));
  ASSERT_CU(cuStreamDestroy(b));
  EXPECT_EQ(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_CU(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CU(cuStreamDestroy(a));
  EXPECT_CU(cuCtxSynchronize());  // no stream captures any more
}

}  // namespace
}  // namespace gpushare::sim_test
