// SPDX-License-Identifier: Apache-2.0
// User objects, and the references that programs and graphs hold.
#include <algorithm>
#include <climits>
#include <memory>

#include "sim/api/api.h"
#include "sim/graph/params.h"

namespace gpushare::sim {
namespace {

UserObject* FindObject(CUuserObject handle) { return state().user_objects.Find(handle); }

bool IsCount(unsigned count) { return count > 0 && count <= INT_MAX; }

// Releases references of the program. Releasing the last one destroys the object unless a graph holds references.
void Release(UserObject* object, uint64_t count) {
  object->by_program -= count;
  if (object->by_program == 0) object->self.reset();
}

HeldObjects::iterator FindHeld(Graph* graph, const UserObject* object) {
  return std::find_if(graph->user_objects.begin(), graph->user_objects.end(),
                      [&](const HeldObject& held) { return held.object.get() == object; });
}

}  // namespace
}  // namespace gpushare::sim

using namespace gpushare::sim;  // NOLINT: the entry points are global names

SIM_API(cuUserObjectCreate)
(CUuserObject* handle, void* data, CUhostFn destroy, unsigned count, unsigned flags) {
  SIM_ENTER(cuUserObjectCreate, kNone);
  // The flag is mandatory: it says that nobody can wait for the destructor.
  if (handle == nullptr || destroy == nullptr || !IsCount(count) ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!state().host_functions.Prepare()) return CUDA_ERROR_OPERATING_SYSTEM;
  const auto object = std::make_shared<UserObject>();
  object->handle = state().user_objects.Add(object.get());
  object->destroy = destroy;
  object->data = data;
  object->by_program = count;
  object->self = object;
  *handle = reinterpret_cast<CUuserObject>(object->handle);
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRetain)(CUuserObject handle, unsigned count) {
  SIM_ENTER(cuUserObjectRetain, kNone);
  UserObject* const object = FindObject(handle);
  if (object == nullptr || !IsCount(count)) return CUDA_ERROR_INVALID_VALUE;
  object->by_program += count;
  object->self = object->shared_from_this();
  return CUDA_SUCCESS;
}

SIM_API(cuUserObjectRelease)(CUuserObject handle, unsigned count) {
  SIM_ENTER(cuUserObjectRelease, kNone);
  UserObject* const object = FindObject(handle);
  if (object == nullptr || !IsCount(count) || count > object->by_program) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Release(object, count);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphRetainUserObject)
(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
  SIM_ENTER(cuGraphRetainUserObject, kNone);
  Graph* const graph = FindGraph(graph_handle);
  UserObject* const object = FindObject(handle);
  const bool moves = flags == CU_GRAPH_USER_OBJECT_MOVE;
  if (graph == nullptr || object == nullptr || !IsCount(count) || (flags != 0 && !moves) ||
      (moves && count > object->by_program)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto held = FindHeld(graph, object);
  if (held != graph->user_objects.end()) {
    held->count += count;
  } else {
    graph->user_objects.push_back({object->shared_from_this(), count});
  }
  if (moves) Release(object, count);
  return CUDA_SUCCESS;
}

SIM_API(cuGraphReleaseUserObject)(CUgraph graph_handle, CUuserObject handle, unsigned count) {
  SIM_ENTER(cuGraphReleaseUserObject, kNone);
  Graph* const graph = FindGraph(graph_handle);
  const UserObject* const object = FindObject(handle);
  if (graph == nullptr || object == nullptr || !IsCount(count)) return CUDA_ERROR_INVALID_VALUE;
  const auto held = FindHeld(graph, object);
  if (held == graph->user_objects.end() || held->count < count) return CUDA_ERROR_INVALID_VALUE;
  held->count -= count;
  if (held->count == 0) graph->user_objects.erase(held);
  return CUDA_SUCCESS;
}
