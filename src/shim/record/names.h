// SPDX-License-Identifier: Apache-2.0
// The names of functions. A program looks up most of its functions by name, and that name is remembered. For other functions
// the driver is asked, if it is new enough.
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
  // `handle` is a CUfunction or a CUkernel: a launch takes either. After its module is unloaded, the handle may be reused for
  // another function.
  void Put(const void* handle, std::string name) {
    const base::MutexLock lock(&mutex_);
    names_[handle] = std::move(name);
  }
  // Gives `handle` the name of `known`, another handle of the same function, if that has one.
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
  // "" if the name is not known and the driver is too old to tell.
  std::string Find(CUfunction function);

 private:
  base::Mutex mutex_;
  std::unordered_map<const void*, std::string> names_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gpushare::shim::recording

#endif  // GPUSHARE_SHIM_RECORD_NAMES_H_
