// SPDX-License-Identifier: Apache-2.0
// User objects: what keeps them alive, and when their destructors run.
#include "tests/sim/sim_test.h"

// The headers of CUDA 13 declare only the newest versions.
extern "C" CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                                 CUgraphExecUpdateResultInfo* info);

namespace gpushare::sim_test {
namespace {

class UserObjectTest : public SimTest {
 protected:
  struct Object {
    int destroyed = 0;
    uint64_t at = 0;
    CUresult in_driver = CUDA_SUCCESS;
  };
  static void Destroy(void* data) {
    auto* const object = static_cast<Object*>(data);
    ++object->destroyed;
    object->at = Now();
    object->in_driver = cuCtxSynchronize();
  }
  static CUuserObject Create(Object* object, unsigned count = 1) {
    CUuserObject handle = nullptr;
    EXPECT_CU(
        cuUserObjectCreate(&handle, object, &Destroy, count, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    return handle;
  }
  // A graph that has the only reference to the object.
  CUgraph GraphWith(Object* object, uint64_t ns = 10'000) {
    const CUgraph graph = NewGraph();
    AddSpin(graph, {}, ns);
    EXPECT_CU(cuGraphRetainUserObject(graph, Create(object), 1, CU_GRAPH_USER_OBJECT_MOVE));
    return graph;
  }
  // Lets the destructors' thread run, and returns how often it has destroyed the object.
  static int Destroyed(const Object& object) {
    gpushare_sim_spend(1);
    return object.destroyed;
  }
};

TEST_F(UserObjectTest, TheLastReferenceCallsTheDestructorOnce) {
  Object object;
  const CUuserObject handle = Create(&object, 2);
  ASSERT_CU(cuUserObjectRetain(handle, 3));
  ASSERT_CU(cuUserObjectRelease(handle, 4));
  EXPECT_EQ(Destroyed(object), 0);
  EXPECT_EQ(cuUserObjectRelease(handle, 2), CUDA_ERROR_INVALID_VALUE);  // there is only 1 reference
  ASSERT_CU(cuUserObjectRelease(handle, 1));
  EXPECT_EQ(Destroyed(object), 1);
  EXPECT_EQ(object.in_driver, CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(cuUserObjectRetain(handle, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuUserObjectRelease(handle, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(UserObjectTest, AGraphKeepsWhatItRetained) {
  Object object;
  const CUuserObject handle = Create(&object);
  const CUgraph graph = NewGraph();
  ASSERT_CU(cuGraphRetainUserObject(graph, handle, 2, 0));
  ASSERT_CU(cuUserObjectRelease(handle, 1));
  EXPECT_EQ(Destroyed(object), 0);
  // The handle stays valid while the graph keeps the object.
  ASSERT_CU(cuUserObjectRetain(handle, 1));
  ASSERT_CU(cuUserObjectRelease(handle, 1));
  EXPECT_EQ(cuGraphReleaseUserObject(graph, handle, 3), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuGraphReleaseUserObject(graph, handle, 1));
  EXPECT_EQ(Destroyed(object), 0);
  CUgraph clone = nullptr;
  ASSERT_CU(cuGraphClone(&clone, graph));
  ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(Destroyed(object), 0);
  ASSERT_CU(cuGraphDestroy(clone));
  EXPECT_EQ(Destroyed(object), 1);
}

TEST_F(UserObjectTest, ALaunchKeepsItUntilItsEnd) {
  Object object;
  const CUgraph graph = GraphWith(&object, 50'000);
  const CUgraphExec exec = Make(graph);
  ASSERT_CU(cuGraphDestroy(graph));
  const CUstream stream = NewStream();
  const uint64_t start = Now();
  ASSERT_CU(cuGraphLaunch(exec, stream));
  ASSERT_CU(cuGraphExecDestroy(exec));
  gpushare_sim_spend(49'000);
  EXPECT_EQ(object.destroyed, 0);
  EXPECT_EQ(DoneAt(stream, start), 50'000u);
  EXPECT_EQ(Destroyed(object), 1);
  EXPECT_EQ(object.at - start, 50'000u);
}

TEST_F(UserObjectTest, ChildrenKeepTheirsAndUpdatesReplaceThem) {
  Object first, second;
  const CUgraph inner = GraphWith(&first), other = GraphWith(&second);
  CUgraphNode node;
  const CUgraph outer = NewGraph(), replacement = NewGraph();
  ASSERT_CU(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner));
  ASSERT_CU(cuGraphAddChildGraphNode(&node, replacement, nullptr, 0, other));
  const CUgraphExec exec = Make(outer);
  for (const CUgraph graph : {inner, other, outer}) ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(Destroyed(first), 0);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_CU(cuGraphExecUpdate_v2(exec, replacement, &info));
  EXPECT_EQ(Destroyed(first), 1);
  ASSERT_CU(cuGraphDestroy(replacement));
  EXPECT_EQ(Destroyed(second), 0);
  ASSERT_CU(cuGraphExecDestroy(exec));
  EXPECT_EQ(Destroyed(second), 1);
}

TEST_F(UserObjectTest, BadArgumentsChangeNothing) {
  Object object;
  CUuserObject handle = nullptr;
  constexpr unsigned kFlags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
  EXPECT_EQ(cuUserObjectCreate(&handle, &object, &Destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuUserObjectCreate(&handle, &object, &Destroy, 0, kFlags), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuUserObjectCreate(&handle, &object, nullptr, 1, kFlags), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuUserObjectCreate(nullptr, &object, &Destroy, 1, kFlags), CUDA_ERROR_INVALID_VALUE);
  handle = Create(&object);
  const CUgraph graph = NewGraph();
  EXPECT_EQ(cuGraphRetainUserObject(graph, handle, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphRetainUserObject(graph, handle, 1, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphRetainUserObject(graph, handle, 2, CU_GRAPH_USER_OBJECT_MOVE),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphReleaseUserObject(graph, handle, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_CU(cuGraphDestroy(graph));
  EXPECT_EQ(Destroyed(object), 0);
  // A reset calls the remaining destructors before it returns.
  ASSERT_CU(cuUserObjectRelease(handle, 1));
  Restart(kPlain);
  EXPECT_EQ(object.destroyed, 1);
}

}  // namespace
}  // namespace gpushare::sim_test
