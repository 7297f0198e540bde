// SPDX-License-Identifier: Apache-2.0
#include "shim/record/names.h"

#include "shim/gated.h"

namespace gpushare::shim::recording {

std::string Names::Find(CUfunction function) {
  {
    const base::MutexLock lock(&mutex_);
    const auto at = names_.find(function);
    if (at != names_.end()) return at->second;
  }
  const char* name = nullptr;
  if (Driver<"cuFuncGetName", CUresult(const char**, CUfunction)>::Call(&name, function) !=
          CUDA_SUCCESS ||
      name == nullptr) {
    return "";
  }
  Put(function, name);
  return name;
}

}  // namespace gpushare::shim::recording
