// SPDX-License-Identifier: Apache-2.0
#ifndef GPUSHARE_BOOKS_CONTEXT_OF_H_
#define GPUSHARE_BOOKS_CONTEXT_OF_H_

#include <cuda.h>

#include "driver/table.h"

namespace gpushare::books {

// Makes a stream's context current during its own lifetime. An event belongs to the context of the stream that it is recorded
// in, which may not be the current one.
class ContextOf {
 public:
  ContextOf(const driver::Table& driver, CUstream stream) : driver_(driver) {
    CUcontext current = nullptr;
    driver_.CtxGetCurrent(&current);
    if (driver_.StreamGetCtx(stream, &context_) != CUDA_SUCCESS || context_ == nullptr) {
      context_ = current;
    }
    pushed_ = context_ != current && driver_.CtxPushCurrent(context_) == CUDA_SUCCESS;
  }
  ~ContextOf() {
    CUcontext popped = nullptr;
    if (pushed_) driver_.CtxPopCurrent(&popped);
  }
  ContextOf(const ContextOf&) = delete;
  ContextOf& operator=(const ContextOf&) = delete;

  CUcontext get() const { return context_; }

 private:
  const driver::Table& driver_;
  CUcontext context_ = nullptr;
  bool pushed_ = false;
};

}  // namespace gpushare::books

#endif  // GPUSHARE_BOOKS_CONTEXT_OF_H_
