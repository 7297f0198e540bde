// SPDX-License-Identifier: Apache-2.0
#include "sim/graph/user_object.h"

#include "sim/state.h"

namespace gpushare::sim {

UserObject::~UserObject() {
  State& s = state();
  s.user_objects.Remove(handle);
  s.host_functions.Post(destroy, data);
}

}  // namespace gpushare::sim
