// SPDX-License-Identifier: Apache-2.0
// User objects: something of the program's that lives as long as somebody refers to it, be it the program,
// a graph, an executable, or a launch that is not over.
#ifndef GPUSHARE_SIM_GRAPH_USER_OBJECT_H_
#define GPUSHARE_SIM_GRAPH_USER_OBJECT_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace gpushare::sim {

struct UserObject : std::enable_shared_from_this<UserObject> {
  UserObject() = default;
  UserObject(const UserObject&) = delete;
  UserObject& operator=(const UserObject&) = delete;
  // With the last reference: calls `destroy` on the thread of the host functions.
  ~UserObject();

  uint64_t handle = 0;
  void (*destroy)(void* data) = nullptr;
  void* data = nullptr;
  uint64_t by_program = 0;           // references that the program has
  std::shared_ptr<UserObject> self;  // while it has any
};

// What a graph refers to, and how often: references are given back one by one.
struct HeldObject {
  std::shared_ptr<UserObject> object;
  uint64_t count;
};
using HeldObjects = std::vector<HeldObject>;

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_USER_OBJECT_H_
