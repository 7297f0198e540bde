// SPDX-License-Identifier: Apache-2.0
// User objects: an object of the program that lives as long as something refers to it: the program, a graph, an executable, or
// a launch that has not completed.
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
  // Runs when the last reference is gone; calls `destroy` on the thread of the host functions.
  ~UserObject();

  uint64_t handle = 0;
  void (*destroy)(void* data) = nullptr;
  void* data = nullptr;
  uint64_t by_program = 0;           // references held by the program
  std::shared_ptr<UserObject> self;  // set while the program has any
};

// A user object that a graph refers to, and the number of references: they are returned one by one.
struct HeldObject {
  std::shared_ptr<UserObject> object;
  uint64_t count;
};
using HeldObjects = std::vector<HeldObject>;

}  // namespace gpushare::sim

#endif  // GPUSHARE_SIM_GRAPH_USER_OBJECT_H_
