// SPDX-License-Identifier: Apache-2.0
// What functions are called. A program finds most of its functions by name, which is kept as it was asked for; of the others
// the driver says it, where it is new enough.
//
// Threading: thread-safe. No lock is held across a call of the driver.
#ifndef GPUSHARE_SHIM_RECORD_NAMES_H_
#define GPUSHARE_SHIM_RECORD_NAMES_H_

#include <cuda.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"

namespace gpushare::shim::recording {

class Names {
 public:
  // CUfunctions and CUkernels: a launch takes both. A handle comes back for another when its module was unloaded.
  void Put(const void* handle, std::string name) {
    const base::MutexLock lock(&mutex_);
    names_[handle] = std::move(name);
  }
  // Another handle of a function that may be known.
  void PutAlike(const void* handle, const void* known) {
    const base::MutexLock lock(&mutex_);
    const auto at = names_.find(known);
    if (at == names_.end()) {
      names_.erase(handle);
    } else {
      std::string name = at->second;
      names_[handle] = std::move(name);
    }
  }
  // "": the driver is too old to say.
  std::string Find(CUfunction function);

 private:
  base::Mutex mutex_;
  std::unordered_map<const void*, std::string> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_NAMES_H_
